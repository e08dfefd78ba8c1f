//! What the tokens of one model cost. Money is whole numbers throughout: of one token in
//! pico-dollars, of a request in nano-dollars, rounded up.

use std::ops::Range;
use std::str::FromStr;
use std::time::SystemTime;

use time::{Date, Month};

use gateway_names::Amount;

/// USD for a million tokens, which is as many micro-dollars: kept as pico-dollars for one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct UsdPerMillion(u64);

/// A day of UTC, as `2026-12-31`: the moment when it begins.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Day(pub SystemTime);

/// A text that is no figure, no day or no pattern.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0}")]
pub struct PriceMalformed(pub(super) &'static str);

impl FromStr for UsdPerMillion {
    type Err = PriceMalformed;

    fn from_str(text: &str) -> Result<Self, PriceMalformed> {
        let malformed = PriceMalformed("it is no price of 0 to 1000000 with at most six decimals");
        let (whole, part) = text.split_once('.').unwrap_or((text, "0"));
        let is_number = |digits: &str| digits.bytes().all(|byte| byte.is_ascii_digit());
        let fits = (1..=7).contains(&whole.len()) && (1..=6).contains(&part.len());
        if !fits || !is_number(whole) || !is_number(part) {
            return Err(malformed);
        }
        let pico = format!("{whole}{part:0<6}").parse().ok();
        let pico = pico.filter(|pico| *pico <= 1_000_000 * PICO_OF_MICRO);
        pico.map(Self).ok_or(malformed)
    }
}

impl FromStr for Day {
    type Err = PriceMalformed;

    fn from_str(text: &str) -> Result<Self, PriceMalformed> {
        let is_long = |(nth, byte): (usize, u8)| match nth {
            4 | 7 => byte == b'-',
            _ => byte.is_ascii_digit(),
        };
        let read = || {
            let number = |at: Range<usize>| text.get(at).and_then(|part| part.parse::<u8>().ok());
            let year = text.get(..4)?.parse().ok()?;
            let month = Month::try_from(number(5..7)?).ok()?;
            Date::from_calendar_date(year, month, number(8..10)?).ok()
        };
        let is_shaped = text.len() == 10 && text.bytes().enumerate().all(is_long);
        let day = is_shaped.then(read).flatten();
        let day = day.ok_or(PriceMalformed("it is no day, such as `2026-12-31`"))?;
        Ok(Self(day.midnight().assume_utc().into()))
    }
}

/// What the tokens of a model cost, by the length of the input.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Price {
    /// The most tokens that the model takes and gives, if that is known.
    context: Option<u64>,
    /// The tokens of input above which the rates hold for all tokens, ascending from 0.
    tiers: Vec<(u64, Rates)>,
}

/// The rates of one tier, by the constants below.
pub(super) type Rates = [UsdPerMillion; 7];

/// Input that is in no cache, read from a cache, written to one, and written to one for an hour.
const INPUT: usize = 0;
const READ: usize = 1;
const WRITTEN: usize = 2;
const LONG: usize = 3;
const OUTPUT: usize = 4;
/// Input and output of the dearest kind: sound or pictures.
const OTHER_INPUT: usize = 5;
const OTHER_OUTPUT: usize = 6;

impl Price {
    /// A price of one tier. Without a figure of their own, tokens of a cache cost what input does.
    pub fn flat(
        [input, output]: [UsdPerMillion; 2],
        [read, written]: [Option<UsdPerMillion>; 2],
        context: Option<u64>,
    ) -> Self {
        let (read, written) = (read.unwrap_or(input), written.unwrap_or(input));
        let dearest = input.max(read).max(written);
        let rates = [input, read, written, written, output, dearest, output];
        Self::tiered(context, vec![(0, rates)])
    }

    pub(super) fn tiered(context: Option<u64>, tiers: Vec<(u64, Rates)>) -> Self {
        Self { context, tiers }
    }

    /// Adds the rates for longer input than that of all before.
    pub(super) fn add(&mut self, start: u64, rates: Rates) -> Option<()> {
        let is_longer = self.tiers.last().is_some_and(|(last, _)| *last < start);
        is_longer.then(|| self.tiers.push((start, rates)))
    }

    pub(super) fn context(&self) -> Option<u64> {
        self.context
    }

    /// What costs as much as the dearer of the two, whatever is used.
    pub(super) fn dearest(self, other: &Self) -> Self {
        let starts = self.tiers.iter().chain(&other.tiers);
        let mut starts: Vec<u64> = starts.map(|(start, _)| *start).collect();
        starts.sort_unstable();
        starts.dedup();
        let dearer = |start| {
            let after = start + 1;
            (start, dearer(*self.at(after), other.at(after)))
        };
        Self {
            context: self
                .context
                .zip(other.context)
                .map(|(one, other)| one.max(other)),
            tiers: starts.into_iter().map(dearer).collect(),
        }
    }

    /// The rates for so many tokens of input.
    fn at(&self, input: u64) -> &Rates {
        let mut reached = self.tiers.iter().rev();
        let reached = reached.find(|(start, _)| input > *start);
        reached
            .or(self.tiers.first())
            .map_or(&FREE, |(_, rates)| rates)
    }

    /// What so many tokens of each kind of text cost, in the order of [`Rates`]. `None` if some are
    /// of another kind, which has a rate of its own.
    pub(super) fn cost(&self, tokens: [u64; 5], has_other_kinds: bool) -> Option<Amount> {
        let input = tokens[..OUTPUT].iter();
        let rates = self.at(input.fold(0, |sum, part| sum.saturating_add(*part)));
        let is_other_dearer =
            rates[OTHER_INPUT] > dearest_text(rates) || rates[OTHER_OUTPUT] > rates[OUTPUT];
        let parts = std::array::from_fn::<_, 5, _>(|kind| (tokens[kind], rates[kind]));
        (!has_other_kinds || !is_other_dearer).then(|| sum(parts))
    }

    /// The most that so many tokens can cost, of any kind and in any tier that they reach.
    pub(super) fn worst(&self, input: u64, output: u64) -> Amount {
        let reached = self.tiers.iter().filter(|(start, _)| input > *start);
        let rates = reached.fold(*self.at(0), |all, (_, rates)| dearer(all, rates));
        let input_rate = rates[OTHER_INPUT].max(dearest_text(&rates));
        let output_rate = rates[OTHER_OUTPUT].max(rates[OUTPUT]);
        sum([(input, input_rate), (output, output_rate)])
    }
}

fn dearest_text(rates: &Rates) -> UsdPerMillion {
    rates[INPUT]
        .max(rates[READ])
        .max(rates[WRITTEN].max(rates[LONG]))
}

fn dearer(one: Rates, other: &Rates) -> Rates {
    std::array::from_fn(|nth| one[nth].max(other[nth]))
}

/// Sums in pico-dollars, and rounds up once, to nano-dollars.
fn sum<const N: usize>(parts: [(u64, UsdPerMillion); N]) -> Amount {
    let parts = parts.map(|(tokens, rate)| u128::from(tokens) * u128::from(rate.0));
    let nano = parts.iter().sum::<u128>().div_ceil(PICO_OF_NANO);
    Amount::try_from(nano).unwrap_or(Amount::MAX)
}

const FREE: Rates = [UsdPerMillion(0); 7];
const PICO_OF_NANO: u128 = 1_000;
const PICO_OF_MICRO: u64 = 1_000_000;

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use super::*;

    fn usd(text: &str) -> UsdPerMillion {
        text.parse().unwrap()
    }

    #[test]
    fn a_figure_is_exact_or_refused() {
        for (text, pico) in [
            ("0", 0),
            ("2.5", 2_500_000),
            ("0.000001", 1),
            ("15", 15_000_000),
            ("1000000", 1_000_000_000_000),
            ("1000000.0", 1_000_000_000_000),
        ] {
            assert_eq!(usd(text).0, pico, "{text}");
        }
        for text in [
            "",
            ".",
            "1.",
            ".5",
            "-1",
            "+1",
            "1e3",
            "inf",
            "nan",
            "1_0",
            " 1",
            "0.0000001",
            "1000000.1",
            "10000000",
            "1.2.3",
            "١",
        ] {
            assert!(text.parse::<UsdPerMillion>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_day_is_read_in_one_form() {
        let day: Day = "1970-01-02".parse().unwrap();
        assert_eq!(day.0, UNIX_EPOCH + Duration::from_secs(86_400));
        for text in [
            "",
            "2026-1-01",
            "2026-13-01",
            "2026-02-30",
            "26-01-01",
            "2026-01-01 ",
            "+026-01-01",
            "2026/01/01",
            "2026-01-0é",
        ] {
            assert!(text.parse::<Day>().is_err(), "{text}");
        }
    }

    #[test]
    fn money_is_rounded_up_once_and_never_wraps() {
        let price = Price::flat([usd("0.000001"), usd("0.000001")], [None, None], None);
        assert_eq!((price.worst(0, 0), price.worst(1, 0)), (0, 1));
        assert_eq!((price.worst(500, 500), price.worst(501, 500)), (1, 2));
        let price = Price::flat([usd("1000000"), usd("1000000")], [None, None], None);
        assert_eq!(price.worst(u64::MAX, u64::MAX), Amount::MAX);
    }

    #[test]
    fn the_worst_is_the_dearest_tier_that_is_reached_even_if_a_longer_one_is_cheaper() {
        let tier = |input| {
            let input = usd(input);
            [input; 7]
        };
        let tiers = vec![(0, tier("2")), (100, tier("5")), (200, tier("1"))];
        let price = Price::tiered(None, tiers);
        let each = |tokens| price.worst(tokens, 0) / tokens;
        assert_eq!(
            [100, 101, 200, 201, 900].map(each),
            [2_000, 5_000, 5_000, 5_000, 5_000]
        );
        let rate = |tokens| price.at(tokens)[INPUT];
        let rates = [0, 100, 101, 200, 201].map(rate);
        assert_eq!(rates, ["2", "2", "5", "5", "1"].map(usd));
    }

    #[test]
    fn of_two_prices_the_dearer_of_each_figure_counts() {
        let one = Price::tiered(Some(10), vec![(0, [usd("1"); 7]), (100, [usd("4"); 7])]);
        let other = Price::tiered(Some(20), vec![(0, [usd("2"); 7]), (50, [usd("3"); 7])]);
        let both = one.dearest(&other);
        let rates = [50, 51, 100, 101].map(|tokens| both.at(tokens)[OUTPUT]);
        assert_eq!(rates, ["2", "3", "3", "4"].map(usd));
        assert_eq!(both.context(), Some(20));
        let unknown = Price::flat([usd("0"), usd("0")], [None, None], None);
        assert_eq!(both.dearest(&unknown).context(), None);
    }
}
