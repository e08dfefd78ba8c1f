//! What budgets count, for how long, and how people write amounts of it.

crate::words! {
    /// What a budget counts.
    pub enum Unit {
        /// Requests that were sent to an origin.
        Requests = "requests",
        /// Bytes of content, of requests and of responses.
        Bytes = "bytes",
        /// Tokens of models, read and written.
        Tokens = "tokens",
        /// Money, by the prices of models.
        Usd = "usd",
    }
}

impl Unit {
    /// Whether it counts what a request asks of a model, which its content says.
    #[must_use]
    pub fn is_of_models(self) -> bool {
        matches!(self, Self::Tokens | Self::Usd)
    }
}

crate::words! {
    /// How long a budget lasts until it begins anew. Windows begin where the clock of UTC does.
    pub enum Period {
        /// A minute.
        Minute = "minute",
        /// An hour.
        Hour = "hour",
        /// A day.
        Day = "day",
        /// A week, which begins on Monday.
        Week = "week",
        /// A month.
        Month = "month",
        /// It never begins anew: with the sharing `session`, the life of each session.
        Session = "session",
    }
}

/// An amount in the budget's unit. Of money, in nano-dollars: 1 USD is 1,000,000,000.
pub type Amount = u64;

/// Reads an amount: a whole number, or money with at most nine decimals. The unit may follow, as in
/// `10usd`.
pub fn read_amount(unit: Unit, text: &str) -> Option<Amount> {
    let number = text.strip_suffix(unit.as_str()).unwrap_or(text).trim_end();
    let (whole, part) = match number.split_once('.') {
        Some((whole, part)) if unit == Unit::Usd => (whole, part),
        Some(_) => return None,
        None => (number, "0"),
    };
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    if !is_number(whole) || !is_number(part) || part.len() > DECIMALS {
        return None;
    }
    let whole: Amount = whole.parse().ok()?;
    if unit != Unit::Usd {
        return Some(whole);
    }
    let part: Amount = format!("{part:0<DECIMALS$}").parse().ok()?;
    whole.checked_mul(DOLLAR)?.checked_add(part)
}

/// Writes an amount as it is read, without its unit.
pub fn written(unit: Unit, amount: Amount) -> String {
    match unit {
        Unit::Usd => money(amount, (amount / DOLLAR).to_string()),
        Unit::Requests | Unit::Bytes | Unit::Tokens => amount.to_string(),
    }
}

/// Writes an amount with its unit, as in `4.20 USD` and `1,000 requests`.
pub fn shown(unit: Unit, amount: Amount) -> String {
    let word = match (unit, amount) {
        (Unit::Usd, _) => {
            let dollars = grouped(amount / DOLLAR);
            return money(amount, dollars) + " USD";
        }
        (Unit::Requests, 1) => "request",
        (Unit::Requests, _) => "requests",
        (Unit::Bytes, 1) => "byte",
        (Unit::Bytes, _) => "bytes",
        (Unit::Tokens, 1) => "token",
        (Unit::Tokens, _) => "tokens",
    };
    format!("{} {word}", grouped(amount))
}

fn money(amount: Amount, dollars: String) -> String {
    let part = format!("{:0>DECIMALS$}", amount % DOLLAR);
    let part = part.trim_end_matches('0');
    format!("{dollars}.{part:0<2}")
}

/// Writes a number with a comma before each group of three digits.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

const DECIMALS: usize = 9;
/// One dollar, in nano-dollars.
const DOLLAR: Amount = 1_000_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_amount_is_shown_as_people_write_it() {
        for (unit, amount, text) in [
            (Unit::Usd, 4_200_000_000, "4.20 USD"),
            (Unit::Usd, 1_234_000_000_001, "1,234.000000001 USD"),
            (Unit::Usd, 0, "0.00 USD"),
            (Unit::Usd, 1_500_000, "0.0015 USD"),
            (Unit::Requests, 1, "1 request"),
            (Unit::Requests, 1_000, "1,000 requests"),
            (Unit::Bytes, 10_485_760, "10,485,760 bytes"),
            (Unit::Tokens, 999, "999 tokens"),
        ] {
            assert_eq!(shown(unit, amount), text);
        }
    }

    #[test]
    fn an_amount_is_read_exactly_or_not_at_all() {
        for (unit, text, amount) in [
            (Unit::Usd, "10usd", Some(10 * DOLLAR)),
            (Unit::Usd, "5.00", Some(5 * DOLLAR)),
            (Unit::Usd, "0.000000001", Some(1)),
            (Unit::Usd, "0.0000000001", None),
            (Unit::Usd, "18446744073.709551615", Some(u64::MAX)),
            (Unit::Usd, "18446744073.709551616", None),
            (Unit::Usd, "5.", None),
            (Unit::Usd, ".5", None),
            (Unit::Usd, "-5", None),
            (Unit::Usd, "+5", None),
            (Unit::Usd, "5e2", None),
            (Unit::Usd, "10 tokens", None),
            (Unit::Requests, "500", Some(500)),
            (Unit::Requests, "500 requests", Some(500)),
            (Unit::Requests, "5.0", None),
            (Unit::Requests, "500usd", None),
            (Unit::Requests, "1,000", None),
            (Unit::Requests, "", None),
        ] {
            assert_eq!(read_amount(unit, text), amount, "{text}");
        }
    }
}
