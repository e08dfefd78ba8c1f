//! What a request to a model can use at most, and what it used.

use gateway_body::read::ModelCall;
use gateway_names::{Amount, Unit};

use super::price::Price;

/// Why there is no most that a request can use.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Unbounded {
    /// The provider runs tools, or summarises.
    #[error("the provider may ask the model again for it, as often as it likes")]
    HostedTools,
    /// No price is known.
    #[error("no price is known for {0:?}; the operator can add one as [[price]]")]
    Price(String),
    /// It asks for a service tier or a region.
    #[error("it asks for a service tier or a region that may cost more")]
    Dearer,
    /// The input is not bounded.
    #[error(
        "it has pictures, files or an earlier answer, and the model's context window is not known; \
         the operator can say it as `context` of [[price]]"
    )]
    Input,
    /// The output is not bounded.
    #[error(
        "it does not bound the answer, and the model's context window is not known; \
         bound the answer, or the operator can say it as `context` of [[price]]"
    )]
    Output,
    /// The unit is not of models.
    #[error("only tokens and USD are reckoned from a request to a model")]
    Unit,
}

/// The most tokens that a provider adds to the input by itself: its own instructions, and marks of
/// where messages begin.
const ADDED_INPUT: u64 = 1_024;

/// The most that a request can use, in tokens or in money. A token is at least one byte of content.
///
/// # Errors
/// [`Unbounded`]
pub fn worst_case(
    unit: Unit,
    request: &ModelCall,
    price: Option<&Price>,
) -> Result<Amount, Unbounded> {
    if request.hosted_tools {
        return Err(Unbounded::HostedTools);
    }
    let price = match (unit, price) {
        (Unit::Requests | Unit::Bytes, _) => return Err(Unbounded::Unit),
        (Unit::Usd, None) => return Err(Unbounded::Price(request.model.clone())),
        (Unit::Usd, _) if request.is_dearer => return Err(Unbounded::Dearer),
        (_, price) => price,
    };
    let context = price.and_then(Price::context);
    let said = request.content_bytes.saturating_add(ADDED_INPUT);
    let input = match context {
        _ if !request.has_references => said,
        // The window is a figure of a list: content that says more is believed.
        Some(context) => said.max(context),
        None => return Err(Unbounded::Input),
    };
    let output = request.most_output.or(context).ok_or(Unbounded::Output)?;
    let output = output.saturating_mul(request.answers);
    Ok(match price {
        Some(price) if unit == Unit::Usd => price.worst(input, output),
        _ => input.saturating_add(output),
    })
}

/// The tokens that a request used. No token counts twice.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Usage {
    /// Input that was in no cache.
    pub input: u64,
    /// Input that was read from a cache.
    pub cache_read: u64,
    /// Input that was written to a cache.
    pub cache_written: u64,
    /// Input that was written to a cache for longer than usual.
    pub cache_written_long: u64,
    /// Output, also what the model thought.
    pub output: u64,
    /// Whether some of it is no text, but sound or pictures.
    pub has_other_kinds: bool,
    /// Whether the answer names a service tier or a region that may cost more.
    pub is_dearer: bool,
}

impl Usage {
    /// What was used, in tokens or in money. `None` if the price is not known, or which of its
    /// figures counts; the reservation counts then.
    #[must_use]
    pub fn amount(&self, unit: Unit, price: Option<&Price>) -> Option<Amount> {
        let counts = [
            self.input,
            self.cache_read,
            self.cache_written,
            self.cache_written_long,
            self.output,
        ];
        match unit {
            Unit::Tokens => Some(counts.into_iter().fold(0, u64::saturating_add)),
            Unit::Usd if !self.is_dearer => price?.cost(counts, self.has_other_kinds),
            Unit::Usd | Unit::Requests | Unit::Bytes => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request() -> ModelCall {
        ModelCall {
            model: "m\u{202e}\n".into(),
            content_bytes: 3_000,
            most_output: Some(100),
            answers: 1,
            hosted_tools: false,
            has_references: false,
            is_dearer: false,
        }
    }

    fn price(context: Option<u64>) -> Price {
        let usd = |text: &str| text.parse().unwrap();
        Price::flat(
            [usd("1"), usd("10")],
            [Some(usd("0.1")), Some(usd("2"))],
            context,
        )
    }

    #[test]
    fn the_worst_is_all_bytes_as_tokens_of_the_dearest_kind_and_all_answers_whole() {
        let price = price(Some(1_000_000));
        let three = ModelCall {
            answers: 3,
            ..request()
        };
        let worst = |unit, request: &ModelCall| worst_case(unit, request, Some(&price));
        assert_eq!(
            worst(Unit::Tokens, &request()),
            Ok(3_000 + ADDED_INPUT + 100)
        );
        assert_eq!(worst(Unit::Tokens, &three), Ok(3_000 + ADDED_INPUT + 300));
        let input = (3_000 + ADDED_INPUT) * 2_000;
        assert_eq!(worst(Unit::Usd, &request()), Ok(input + 100 * 10_000));
        assert_eq!(worst(Unit::Usd, &three), Ok(input + 300 * 10_000));
    }

    #[test]
    fn the_context_window_bounds_what_the_request_does_not_say() {
        let price = price(Some(2_000));
        let worst = |request: &ModelCall| worst_case(Unit::Tokens, request, Some(&price));
        // Content that is longer than the list says is believed.
        assert_eq!(worst(&request()), Ok(3_000 + ADDED_INPUT + 100));
        let unbounded = ModelCall {
            most_output: None,
            answers: 2,
            ..request()
        };
        assert_eq!(worst(&unbounded), Ok(3_000 + ADDED_INPUT + 4_000));
        let short = ModelCall {
            content_bytes: 1,
            has_references: true,
            ..request()
        };
        assert_eq!(worst(&short), Ok(2_000 + 100));
    }

    #[test]
    fn what_is_not_bounded_is_refused_with_its_reason() {
        let (known, unknown) = (price(Some(9)), price(None));
        let hosted = ModelCall {
            hosted_tools: true,
            ..request()
        };
        for unit in [Unit::Tokens, Unit::Usd] {
            let found = worst_case(unit, &hosted, Some(&known));
            assert_eq!(found, Err(Unbounded::HostedTools));
            let open = ModelCall {
                most_output: None,
                ..request()
            };
            assert_eq!(
                worst_case(unit, &open, Some(&unknown)),
                Err(Unbounded::Output)
            );
            let refers = ModelCall {
                has_references: true,
                ..request()
            };
            assert_eq!(
                worst_case(unit, &refers, Some(&unknown)),
                Err(Unbounded::Input)
            );
        }
        let dearer = ModelCall {
            is_dearer: true,
            ..request()
        };
        assert_eq!(
            worst_case(Unit::Usd, &dearer, Some(&known)),
            Err(Unbounded::Dearer)
        );
        assert!(worst_case(Unit::Tokens, &dearer, Some(&known)).is_ok());
        assert!(worst_case(Unit::Tokens, &request(), None).is_ok());
        let none = worst_case(Unit::Usd, &request(), None)
            .unwrap_err()
            .to_string();
        assert!(
            none.contains(r#""m\u{202e}\n""#) && none.contains("[[price]]"),
            "{none}"
        );
        for unit in [Unit::Requests, Unit::Bytes] {
            assert_eq!(
                worst_case(unit, &request(), Some(&known)),
                Err(Unbounded::Unit)
            );
        }
    }

    #[test]
    fn what_cannot_be_counted_is_the_most_that_there_is() {
        let request = ModelCall {
            content_bytes: u64::MAX,
            most_output: Some(u64::MAX),
            answers: u64::MAX,
            ..request()
        };
        for unit in [Unit::Tokens, Unit::Usd] {
            assert_eq!(worst_case(unit, &request, Some(&price(None))), Ok(u64::MAX));
        }
    }

    #[test]
    fn each_kind_of_token_costs_its_own_and_what_is_not_known_costs_the_reservation() {
        let price = price(None);
        let usage = Usage {
            input: 1,
            cache_read: 10,
            cache_written: 100,
            cache_written_long: 1_000,
            output: 10_000,
            ..Usage::default()
        };
        assert_eq!(usage.amount(Unit::Tokens, None), Some(11_111));
        let cost = 1_000 + 10 * 100 + 1_100 * 2_000 + 10_000 * 10_000;
        assert_eq!(usage.amount(Unit::Usd, Some(&price)), Some(cost));
        assert_eq!(usage.amount(Unit::Usd, None), None);
        let dearer = Usage {
            is_dearer: true,
            ..usage
        };
        assert_eq!(dearer.amount(Unit::Usd, Some(&price)), None);
        let sound = Usage {
            has_other_kinds: true,
            ..usage
        };
        // Nothing but text has a price of its own there.
        assert_eq!(sound.amount(Unit::Usd, Some(&price)), Some(cost));
    }
}
