//! Which price a model has at a host: the list that is shipped, and the operator's own rows over
//! it.
//!
//! `prices.py` makes the list from the figures of genai-prices. A test reads every line.

use std::collections::HashMap;
use std::str::FromStr;
use std::sync::LazyLock;
use std::time::SystemTime;

use gateway_message::Host;

use super::price::{Day, Price, PriceMalformed, Rates, UsdPerMillion};

/// The prices of models, at the hosts that ask for them.
#[derive(Clone, Debug, Default)]
pub struct Prices {
    own: Vec<OwnPrice>,
}

/// One `[[price]]` of the configuration.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OwnPrice {
    /// The host at which it holds; everywhere if there is none.
    pub host: Option<Host>,
    /// The models that have it.
    pub model: ModelPattern,
    /// What they cost.
    pub price: Price,
    /// The day from which it holds no more.
    pub until: Option<Day>,
}

/// A model's name, or its beginning and `*`, in lower case.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ModelPattern(String);

impl FromStr for ModelPattern {
    type Err = PriceMalformed;

    fn from_str(text: &str) -> Result<Self, PriceMalformed> {
        let name = text.strip_suffix('*').unwrap_or(text);
        let is_plain = |byte: u8| byte.is_ascii_graphic() && !b"*#".contains(&byte);
        if text.is_empty() || text.len() > 256 || !name.bytes().all(is_plain) {
            return Err(PriceMalformed("it is no name of a model"));
        }
        Ok(Self(text.to_ascii_lowercase()))
    }
}

impl Prices {
    /// The prices that are shipped.
    #[must_use]
    pub fn shipped() -> Self {
        Self::default()
    }

    /// Lays the operator's own rows over them.
    #[must_use]
    pub fn with(mut self, own: Vec<OwnPrice>) -> Self {
        self.own.extend(own);
        self
    }

    /// The price of a model at a host, at a time. Where several rows are of it, the dearest figures
    /// count. `None` if no price is known.
    #[must_use]
    pub fn of(&self, host: &str, model: &str, at: SystemTime) -> Option<Price> {
        let model = model.to_ascii_lowercase();
        let own = self.own.iter().filter(|one| one.is_of(host, &model, at));
        let own = own.map(|one| one.price.clone());
        let shipped = || {
            if SEARCHES.iter().any(|word| model.contains(word)) {
                return None;
            }
            let here = SHIPPED.iter().filter(|one| one.hosts.contains(&host));
            let models = here.flat_map(|one| one.models(&model));
            let prices = models.filter_map(|one| one.at(at).cloned());
            prices.reduce(|one, other| one.dearest(&other))
        };
        own.reduce(|one, other| one.dearest(&other))
            .or_else(shipped)
    }
}

impl OwnPrice {
    fn is_of(&self, host: &str, model: &str, at: SystemTime) -> bool {
        let is_here = self.host.as_ref().is_none_or(|one| one.as_str() == host);
        let holds = self.until.is_none_or(|until| at < until.0);
        is_here && holds && matches(self.model.0.as_bytes(), model.as_bytes())
    }
}

/// Words in the names of models that search by themselves: each request costs something beside its
/// tokens, which no list of ours has.
const SEARCHES: [&str; 4] = ["search", "sonar", "online", "deep-research"];

/// The models of one provider.
struct Provider {
    hosts: Vec<&'static str>,
    models: Vec<Model>,
    /// The models by their whole names.
    named: HashMap<&'static str, Vec<usize>>,
    /// The models by patterns of names.
    patterns: Vec<(&'static str, usize)>,
}

struct Model {
    context: Option<u64>,
    /// By the day from which it holds, ascending; the first holds before all days.
    prices: Vec<(Option<Day>, Price)>,
}

impl Provider {
    fn models(&self, name: &str) -> impl Iterator<Item = &Model> {
        let named = self.named.get(name).into_iter().flatten().copied();
        let fits = self.patterns.iter();
        let fits = fits.filter(|(pattern, _)| matches(pattern.as_bytes(), name.as_bytes()));
        let all = named.chain(fits.map(|(_, nth)| *nth));
        all.map(|nth| &self.models[nth])
    }

    fn add(&mut self, context: Option<u64>, patterns: impl Iterator<Item = &'static str>) {
        let nth = self.models.len();
        for pattern in patterns {
            if pattern.contains(['*', '#']) {
                self.patterns.push((pattern, nth));
            } else {
                self.named.entry(pattern).or_default().push(nth);
            }
        }
        let prices = Vec::new();
        self.models.push(Model { context, prices });
    }
}

impl Model {
    fn at(&self, at: SystemTime) -> Option<&Price> {
        let mut prices = self.prices.iter().rev();
        let held = prices.find(|(from, _)| from.is_none_or(|from| from.0 <= at));
        held.map(|(_, price)| price)
    }
}

/// Whether a name fits a pattern: `*` at an end of it is any text, `#` a digit.
fn matches(pattern: &[u8], name: &[u8]) -> bool {
    let (is_end, core) = match pattern.strip_prefix(b"*") {
        Some(core) => (true, core),
        None => (false, pattern),
    };
    let (is_beginning, core) = match core.strip_suffix(b"*") {
        Some(core) => (true, core),
        None => (false, core),
    };
    let is_one = |(wanted, byte): (&u8, &u8)| match wanted {
        b'#' => byte.is_ascii_digit(),
        wanted => wanted == byte,
    };
    let fits = |part: &[u8]| part.len() == core.len() && core.iter().zip(part).all(is_one);
    match (is_end, is_beginning) {
        (false, false) => fits(name),
        (false, true) => name.get(..core.len()).is_some_and(fits),
        (true, false) => {
            let start = name.len().checked_sub(core.len());
            start.is_some_and(|start| fits(&name[start..]))
        }
        (true, true) => name.windows(core.len().max(1)).any(fits),
    }
}

/// A line that is malformed is left out; the model then has no price, and is refused.
static SHIPPED: LazyLock<Vec<Provider>> = LazyLock::new(|| {
    let mut all = Vec::<Provider>::new();
    for line in lines() {
        let _is_read = add(&mut all, line).is_some();
    }
    all
});

fn lines() -> impl Iterator<Item = &'static str> {
    let lines = include_str!("prices.txt").lines();
    lines.filter(|line| !line.starts_with('#'))
}

fn add(all: &mut Vec<Provider>, line: &'static str) -> Option<()> {
    let mut words = line.split(' ');
    match words.next()? {
        "provider" => all.push(Provider {
            hosts: words.collect(),
            models: Vec::new(),
            named: HashMap::new(),
            patterns: Vec::new(),
        }),
        "model" => {
            let (_, context) = (words.next()?, known(words.next()?)?);
            all.last_mut()?.add(context, words);
        }
        "price" => {
            let model = all.last_mut()?.models.last_mut()?;
            let (from, start) = (known::<Day>(words.next()?)?, words.next()?.parse().ok()?);
            let rates = rates(words)?;
            match model.prices.last_mut() {
                Some((last, price)) if *last == from => price.add(start, rates)?,
                last if last.as_ref().is_none_or(|last| last.0 < from) && start == 0 => {
                    let price = Price::tiered(model.context, vec![(start, rates)]);
                    model.prices.push((from, price));
                }
                _ => return None,
            }
        }
        _ => return None,
    }
    Some(())
}

/// A value, or `-` for none.
fn known<T: FromStr>(word: &str) -> Option<Option<T>> {
    match word {
        "-" => Some(None),
        word => word.parse().ok().map(Some),
    }
}

/// Five figures, and two more where other kinds of tokens are dearer.
fn rates(words: impl Iterator<Item = &'static str>) -> Option<Rates> {
    let figures: Result<Vec<UsdPerMillion>, _> = words.map(str::parse).collect();
    match figures.ok()?[..] {
        [input, read, written, long, output] => {
            let dearest = input.max(read).max(written).max(long);
            Some([input, read, written, long, output, dearest, output])
        }
        ref all => all.try_into().ok(),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::{Unit, Usage};
    use super::*;

    fn at(day: &str) -> SystemTime {
        day.parse::<Day>().unwrap().0
    }

    fn cost(prices: &Prices, host: &str, model: &str, input: u64) -> Option<u64> {
        let usage = Usage {
            input,
            ..Usage::default()
        };
        let price = prices.of(host, model, at("2026-11-29"));
        usage.amount(Unit::Usd, price.as_ref())
    }

    fn own(host: Option<&str>, model: &str, input: &str) -> OwnPrice {
        let usd = |text: &str| text.parse().unwrap();
        OwnPrice {
            host: host.map(|host| Host::parse(host.as_bytes()).unwrap()),
            model: model.parse().unwrap(),
            price: Price::flat([usd(input), usd("0")], [None, None], None),
            until: None,
        }
    }

    #[test]
    fn a_model_that_searches_by_itself_has_no_price_but_the_operators() {
        let shipped = Prices::shipped();
        for model in [
            "gpt-4o-mini-search-preview",
            "gpt-5-search-api",
            "o3-deep-research",
        ] {
            assert_eq!(cost(&shipped, "api.openai.com", model, 1), None, "{model}");
        }
        assert_eq!(
            cost(&shipped, "openrouter.ai", "perplexity/sonar-pro", 1),
            None
        );
        let prices = shipped.with(vec![own(None, "gpt-5-search-api", "7")]);
        assert!(cost(&prices, "api.openai.com", "gpt-5-search-api", 1).is_some());
    }

    #[test]
    fn every_line_of_the_list_is_read() {
        let mut all = Vec::new();
        for line in lines() {
            assert!(add(&mut all, line).is_some(), "{line}");
        }
        let models = all.iter().flat_map(|one| &one.models);
        assert!(models.clone().all(|model| model.prices[0].0.is_none()));
        assert!(models.count() > 1_000 && all.len() == 11);
    }

    #[test]
    fn what_is_reckoned_is_what_the_package_reckons() {
        let mut rows = 0;
        for line in include_str!("costs.txt").lines() {
            let words: Vec<&str> = line.split(' ').collect();
            let [host, model, day, input, read, written, long, output, cost] = words[..] else {
                assert!(line.starts_with('#'), "{line}");
                continue;
            };
            let number = |text: &str| text.parse::<u64>().unwrap();
            let usage = Usage {
                input: number(input),
                cache_read: number(read),
                cache_written: number(written),
                cache_written_long: number(long),
                output: number(output),
                ..Usage::default()
            };
            let noon = at(day) + Duration::from_secs(43_200);
            let price = Prices::shipped().of(host, model, noon);
            assert_eq!(
                usage.amount(Unit::Usd, price.as_ref()),
                Some(number(cost)),
                "{line}"
            );
            rows += 1;
        }
        assert!(rows >= 30, "{rows}");
    }

    #[test]
    fn a_pattern_is_an_end_a_beginning_a_part_or_digits() {
        for (pattern, fits, other) in [
            ("m-1", "m-1", "m-12"),
            ("m-1*", "m-12", "xm-1"),
            ("*m-1", "xm-1", "m-12"),
            ("*m-1*", "xm-12", "m-2"),
            ("m-##", "m-12", "m-1x"),
            ("m-#*", "m-1-x", "m-x"),
            ("*", "", "\0"),
        ] {
            assert!(matches(pattern.as_bytes(), fits.as_bytes()), "{pattern}");
            let is_all = pattern == "*";
            assert_eq!(
                matches(pattern.as_bytes(), other.as_bytes()),
                is_all,
                "{pattern}"
            );
        }
    }

    #[test]
    fn an_own_row_lies_over_the_list_and_the_dearest_of_several_counts() {
        let (openai, host) = ("api.openai.com", "llm.example");
        let shipped = Prices::shipped();
        assert!(cost(&shipped, openai, "GPT-4o", 1_000) > Some(0));
        assert_eq!(cost(&shipped, host, "gpt-4o", 1_000), None);
        assert_eq!(cost(&shipped, openai, "gpt-4o-unheard-of", 1_000), None);
        assert_eq!(cost(&shipped, "eu.api.openai.com", "gpt-4o", 1_000), None);
        let rows = vec![own(None, "gpt-4*", "7"), own(Some(host), "GPT-4o", "9")];
        let prices = shipped.with(rows);
        assert_eq!(cost(&prices, openai, "gpt-4o", 1_000), Some(7_000_000));
        assert_eq!(cost(&prices, host, "gpt-4O", 1_000), Some(9_000_000));
        assert_eq!(cost(&prices, host, "gpt-41", 1_000), Some(7_000_000));
        assert_eq!(cost(&prices, host, "gpt-5", 1_000), None);
    }

    #[test]
    fn an_own_row_ends_with_its_day() {
        let row = OwnPrice {
            until: Some("2027-01-01".parse().unwrap()),
            ..own(None, "m", "1")
        };
        let prices = Prices::shipped().with(vec![row]);
        let last = at("2027-01-01") - Duration::from_nanos(1);
        assert!(prices.of("x", "m", last).is_some());
        assert!(prices.of("x", "m", at("2027-01-01")).is_none());
    }

    #[test]
    fn a_pattern_of_an_own_row_has_its_star_at_the_end_alone() {
        for text in ["", "*m", "m*n", "m**", "a b", "m#", "é", "m\n"] {
            assert!(text.parse::<ModelPattern>().is_err(), "{text}");
        }
        for text in ["*", "m*", "meta-llama/Llama-3:free"] {
            assert!(text.parse::<ModelPattern>().is_ok(), "{text}");
        }
    }
}
