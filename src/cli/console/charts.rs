//! The small charts of a day, drawn as SVG. Each says its numbers in words, too.

use maud::{Markup, html};

use crate::cli::console::day::{Day, Slot};
use crate::spend::{Unit, shown};

/// Draws requests and refusals, latency, and what was spent.
pub(super) fn day(day: &Day) -> Markup {
    let (slots, whole) = (day.slots(), day.whole());
    let (allowed, refused) = (whole.allowed, whole.refused);
    let requests = format!("{} requests, {refused} refused", allowed + refused);
    let (half, most) = (whole.within(50), whole.within(99));
    let latency = format!("half within {half:.1} ms, 99 of 100 within {most:.1} ms");
    let spent = format!(
        "{} since this page is served",
        shown(Unit::Usd, whole.spent)
    );
    let count = |value: u32| f64::from(value);
    let all: Vec<[f64; 2]> = of(&slots, |one| [count(one.refused), count(one.allowed)]);
    let took: Vec<[f64; 2]> = of(&slots, |one| {
        let (half, most) = (one.within(50), one.within(99));
        [half, most - half]
    });
    let money: Vec<[f64; 2]> = of(&slots, |one| [0.0, one.spent as f64]);
    html! {
        (chart("Requests", &requests, &all))
        (chart("Latency of answers", &latency, &took))
        @if whole.spent > 0 { (chart("Spent", &spent, &money)) }
    }
}

fn of(slots: &[Slot], value: impl Fn(&Slot) -> [f64; 2]) -> Vec<[f64; 2]> {
    slots.iter().map(value).collect()
}

/// Draws a bar of two parts for each value; the lower part is hatched, so that it is told apart
/// without colour.
fn chart(title: &str, words: &str, values: &[[f64; 2]]) -> Markup {
    let most = values
        .iter()
        .map(|[low, high]| low + high)
        .fold(0.0, f64::max);
    let scale = if most > 0.0 { HEIGHT / most } else { 0.0 };
    let id = title.split(' ').next().unwrap_or_default();
    html! {
        figure id={ "chart-" (id) } {
            figcaption { b { (title) } " " (words) }
            svg viewBox={ "0 0 " (values.len().max(1) * STEP) " " (HEIGHT) } role="img"
                aria-label={ (title) " of the last day: " (words) } preserveAspectRatio="none" {
                pattern id={ "hatch-" (id) } width="3" height="3" patternUnits="userSpaceOnUse" {
                    path class="hatch" d="M0 3L3 0" {}
                }
                @for (at, [low, high]) in values.iter().enumerate() {
                    (bar(at, low * scale, high * scale, id))
                }
            }
        }
    }
}

fn bar(at: usize, low: f64, high: f64, id: &str) -> Markup {
    let rect = |class: &str, fill: String, from: f64, tall: f64| {
        html! {
            @if tall > 0.0 {
                rect class=(class) fill=(fill) x=(at * STEP) width=(STEP - 1)
                    y=(format!("{:.1}", HEIGHT - from - tall)) height=(format!("{tall:.1}")) {}
            }
        }
    };
    html! {
        (rect("low", format!("url(#hatch-{id})"), 0.0, low))
        (rect("high", "currentColor".to_owned(), low, high))
    }
}

/// Draws what of a whole is spent, reserved and left.
pub(super) fn share(words: &str, spent: u64, reserved: u64, whole: u64) -> Markup {
    let part = |value: u64| value as f64 * 100.0 / whole.max(1) as f64;
    let (spent, reserved) = (part(spent).min(100.0), part(reserved));
    html! {
        svg.share viewBox="0 0 100 4" preserveAspectRatio="none" role="img" aria-label=(words) {
            rect.left x="0" y="0" width="100" height="4" {}
            rect.spent x="0" y="0" width=(format!("{spent:.1}")) height="4" {}
            rect.reserved x=(format!("{spent:.1}")) y="1"
                width=(format!("{:.1}", reserved.min(100.0 - spent))) height="2" {}
        }
    }
}

const HEIGHT: f64 = 32.0;
const STEP: usize = 5;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_drawn_lies_beside_each_other_and_is_said_in_words() {
        let mut all = Day::default();
        for (at, more) in [(1, ""), (2, ""), (3, r#","reason":"policy_default_deny""#)] {
            let time = format!("2026-11-30T08:10:0{at}Z");
            let text = format!(r#"{{"kind":"exchange","time":"{time}"{more}}}"#);
            all.count(&serde_json::from_str(&text).unwrap());
        }
        let drawn = day(&all).into_string();
        assert!(drawn.contains("3 requests, 1 refused"), "{drawn}");
        assert!(
            drawn.contains(r#"height="10.7"></rect><rect class="high""#),
            "{drawn}"
        );
        let drawn = share("words", 30, 80, 100).into_string();
        assert!(drawn.contains(r#"aria-label="words""#), "{drawn}");
        let reserved = r#"class="reserved" x="30.0" y="1" width="70.0" height="2"></rect></svg>"#;
        assert!(drawn.contains(reserved), "{drawn}");
    }
}
