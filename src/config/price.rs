//! `[[price]]`: what a model costs, over the list that is shipped.

use std::time::SystemTime;

use gateway_message::Host;
use gateway_spend::{Day, ModelPattern, OwnPrice, Price};

use super::diagnostic::remedy;
use super::section::{Section, parsed};

pub(super) fn price(section: &Section<'_, '_>) -> Option<OwnPrice> {
    require!(section, "model"; "a price is of one model, or of all whose names begin alike";
        "add `model = \"gpt-5*\"`");
    require!(section, "input"; "a budget in USD counts what is sent to the model";
        "add `input = 1.25`, in USD for a million tokens");
    require!(section, "output"; "a budget in USD counts what the model answers";
        "add `output = 10`, in USD for a million tokens");
    let host = |text: &str| {
        let host = Host::parse(text.as_bytes());
        host.map_err(remedy("write for example `api.openai.com`"))
    };
    let host = section.get("host", host);
    let model = section.get(
        "model",
        parsed::<ModelPattern>("write for example `gpt-5*`"),
    );
    let figures = ["input", "output", "cache_read", "cache_written"];
    let [input, output, read, written] =
        figures.map(|key| section.decimal(key, "write USD for a million tokens, such as `1.25`"));
    let context = section.count("context", 1..=MOST_CONTEXT);
    let until = section.get("until", |text| {
        let day: Day = parsed("write for example `2030-12-31`")(text)?;
        if day.0 > SystemTime::now() {
            return Ok(day);
        }
        refused!("the price holds no more"; "write the price of today and its day, or remove `until`")
    });
    Some(OwnPrice {
        host,
        model: model?,
        price: Price::flat([input?, output?], [read, written], context),
        until,
    })
}

const MOST_CONTEXT: u64 = 1 << 40;
