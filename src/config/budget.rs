//! `[[budget]]`: what requests may use up.

use std::sync::Arc;

use gateway_spend::{Budget, Period, Sharing, Unit, read_amount};

use super::diagnostic::Hint;
use super::section::{Section, characters};

pub(super) fn budget(section: &Section<'_, '_>) -> Option<Arc<Budget>> {
    require!(section, "name"; "policies name it"; "add `name = \"models\"`");
    require!(section, "unit"; "it says what is counted"; "add `unit = \"usd\"`");
    require!(section, "most"; "it says how much may be used up"; "add `most = \"5.00\"`");
    require!(section, "per"; "it says when it begins anew"; "add `per = \"day\"`");
    let name = section.get("name", name);
    let unit = section.choice("unit", &Unit::ALL.map(|one| (one.as_str(), one)));
    // Without its unit, an amount says nothing.
    let most = section.amount("most", |text| unit.map_or(Ok(0), |unit| most(unit, text)));
    let per = section.choice("per", &Period::ALL.map(|one| (one.as_str(), one)));
    let by = section.choice("by", &Sharing::ALL.map(|one| (one.as_str(), one)));
    let of_session = per == Some(Period::Session);
    if of_session && by.is_some_and(|by| by != Sharing::Session) {
        mistake!(section, "by", "a budget per session is each session's own";
            "it lasts as long as one session"; "remove `by`, or choose another `per`");
    }
    let by = match by {
        None if of_session => Sharing::Session,
        by => by.unwrap_or(Sharing::All),
    };
    Some(Arc::new(Budget {
        name: name?.into(),
        unit: unit?,
        most: most?,
        per: per?,
        by,
    }))
}

fn name(text: &str) -> Result<String, Hint> {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    characters(text, 64, fits).ok_or_else(
        || hint!("a name is up to 64 letters, digits, `-`, `_` and `.`"; "write for example `models`"),
    )
}

fn most(unit: Unit, text: &str) -> Result<u64, Hint> {
    match read_amount(unit, text) {
        Some(0) => {
            refused!("nothing could be used up"; "write a larger amount, or a policy that forbids")
        }
        // The state counts in signed numbers; money in billionths of a dollar.
        Some(most) if i64::try_from(most).is_ok() => Ok(most),
        None if unit == Unit::Usd => refused!("it is no amount of money that can be counted";
            "write dollars with at most nine decimals, such as `\"5.00\"`, up to 9 billion"),
        _ => refused!("it is no amount of {unit} that can be counted";
            "write a whole number, up to 9223372036854775807"),
    }
}
