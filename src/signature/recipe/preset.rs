//! The presets: one file each in `policies/signers`, parsed once.

use std::sync::{Arc, LazyLock};

use super::model::Recipe;

macro_rules! signers {
    ($($name:literal)*) => {
        &[$(($name, include_str!(concat!("../../../policies/signers/", $name, ".toml")))),*]
    };
}

/// The preset with a name.
pub fn preset(name: &str) -> Option<Arc<Recipe>> {
    PRESETS.iter().find(|recipe| recipe.name() == name).cloned()
}

/// All presets, by name in order.
pub fn presets() -> impl Iterator<Item = &'static Recipe> {
    PRESETS.iter().map(|recipe| &**recipe)
}

/// Each preset's name and text; a test keeps the files and the table in step.
pub(super) const SIGNERS: &[(&str, &str)] = signers! {
    "akamai-edgegrid" "alibaba-acs3" "alibaba-oss4" "alibaba-rpc" "azure-account-sas"
    "azure-blob-sas" "azure-service-bus-sas" "azure-shared-key" "azure-table-shared-key"
    "binance-ed25519" "binance-hmac" "binance-rsa" "bitfinex" "bybit" "coinbase-cdp-ecdsa"
    "coinbase-cdp-ed25519" "coinbase-exchange" "dpop-es256" "github-webhook"
    "http-signature-ecdsa-p256" "http-signature-ecdsa-p384" "http-signature-ed25519"
    "http-signature-hmac" "http-signature-rsa-pss" "http-signature-rsa-v15" "huawei-sdk" "kraken"
    "oauth1" "okx" "shopify-webhook" "slack-webhook" "stripe-webhook" "tencent-cos" "tencent-tc3"
    "twilio-webhook" "volcengine"
};

static PRESETS: LazyLock<Vec<Arc<Recipe>>> = LazyLock::new(|| {
    SIGNERS
        .iter()
        // The texts are part of the program, and a test parses every one of them.
        .map(|(_, text)| {
            Arc::new(
                Recipe::load(text).expect("the presets are part of the program and each is tested"),
            )
        })
        .collect()
});
