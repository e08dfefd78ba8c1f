//! The presets: one file of `policies/signers` each, read once.

use std::sync::{Arc, LazyLock};

use super::Recipe;

macro_rules! signers {
    ($($name:literal),* $(,)?) => {
        &[$(($name, include_str!(concat!("../../../policies/signers/", $name, ".toml")))),*]
    };
}

/// The preset of a name.
#[must_use]
pub fn preset(name: &str) -> Option<Arc<Recipe>> {
    PRESETS.iter().find(|recipe| recipe.name() == name).cloned()
}

/// All presets, by name in order.
pub fn presets() -> impl Iterator<Item = &'static Recipe> {
    PRESETS.iter().map(|recipe| &**recipe)
}

/// Each preset's name and text; a test holds the files and the table together.
pub(super) const SIGNERS: &[(&str, &str)] = signers![
    "alibaba-acs3",
    "binance-hmac",
    "github-webhook",
    "kraken",
    "tencent-tc3",
];

static PRESETS: LazyLock<Vec<Arc<Recipe>>> = LazyLock::new(|| {
    SIGNERS
        .iter()
        // The texts are part of the program and a test reads every one of them.
        .map(|(_, text)| {
            Arc::new(Recipe::load(text).expect("the presets are part of the program and each is tested"))
        })
        .collect()
});
