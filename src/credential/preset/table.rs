//! The texts of the presets, one per file of `policies/services`; a test keeps the two in step.

macro_rules! services {
    ($($name:literal)*) => {
        &[$(($name, include_str!(concat!("../../../policies/services/", $name, ".toml")))),*]
    };
}

/// Each preset's name and text.
pub(super) const SERVICES: &[(&str, &str)] = services! {
    "airtable" "anthropic" "asana" "atlassian" "azure" "azure-openai" "bedrock" "bitbucket" "blocklist" "cloudflare"
    "cohere" "crates" "cursor" "databricks" "datadog" "deepseek" "digitalocean" "discord" "discord-webhook" "docker"
    "figma" "fireworks" "gemini" "git" "github" "gitlab" "go" "google" "groq" "heroku" "hubspot"
    "huggingface" "linear" "mailgun" "maven" "mistral" "netlify" "notion" "npm" "openai"
    "openrouter" "packagist" "perplexity" "postmark" "pypi" "replicate" "resend" "rubygems"
    "sendgrid" "sentry" "shopify" "slack" "stripe" "telegram" "together" "twilio" "vercel" "xai"
    "zendesk"
};
