//! The names of variables that pass to the command by default.
//!
//! By convention, each is a setting that contains no secret and no address of an agent. It may name
//! a file, which is readable only if it is visible. Excluded are free text for other programs
//! (`MAVEN_OPTS`, `GIT_CONFIG_VALUE_0`), and what a CI runner reads after the command
//! (`GITHUB_ENV`).

use std::collections::BTreeSet;
use std::sync::LazyLock;

use super::list;

/// Whether a variable of this name passes.
pub fn passes(name: &str) -> bool {
    static KNOWN: LazyLock<BTreeSet<&str>> = LazyLock::new(|| list::lines(PASSED).collect());
    let patterns = || KNOWN.iter().filter(|known| known.ends_with('*'));
    KNOWN.contains(name) && !name.ends_with('*') || patterns().any(|pattern| matches(name, pattern))
}

/// Whether sessions and terminals set the variable automatically, so that no user misses it.
pub fn is_routine(name: &str) -> bool {
    let proxy = name.to_ascii_lowercase().ends_with("_proxy");
    proxy || list::lines(include_str!("data/routine.txt")).any(|known| matches(name, known))
}

/// Whether a name matches a pattern: it is the same, or has the same prefix if the pattern ends in
/// `*`.
pub fn matches(name: &str, pattern: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(prefix) => name.starts_with(prefix),
        None => name == pattern,
    }
}

const PASSED: &str = include_str!("data/passed.txt");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_variable_that_customarily_holds_a_secret_passes() {
        let names: Vec<_> = SECRET.split_whitespace().collect();
        assert!(names.len() >= 120, "{}", names.len());
        for name in names.into_iter().chain([""]) {
            assert!(!passes(name), "{name}");
        }
    }

    #[test]
    fn no_shape_of_a_secrets_name_passes() {
        let ends = [
            "TOKEN",
            "SECRET",
            "PASSWORD",
            "PASS",
            "PW",
            "PWD",
            "PIN",
            "KEY",
            "API_KEY",
            "AUTH",
            "AUTHKEY",
            "DSN",
            "CREDENTIALS",
            "CONNECTION_STRING",
            "WEBHOOK_URL",
            "JWT",
            "COOKIE",
            "PRIVATE_KEY",
            "IDENTITY",
            "ASKPASS",
            "PASSCOMMAND",
            "USERPASS",
        ];
        let begins = [
            "",
            "MY",
            "APP",
            "DB",
            "AWS",
            "AZURE",
            "CI",
            "CI_JOB",
            "GITHUB",
            "GITLAB",
            "CARGO",
            "CARGO_REGISTRY",
            "GO",
            "JAVA",
            "NODE",
            "NPM",
            "NPM_CONFIG",
            "npm_config",
            "PIP",
            "UV",
            "POETRY",
            "HF",
            "PYTHON",
            "CLAUDE_CODE",
            "CODEX",
            "ANTHROPIC",
            "OPENAI",
            "GOOSE",
            "AIDER",
            "VAULT",
            "TF_VAR",
            "HOMEBREW",
            "XDG",
            "GIT",
            "LC",
            "PG",
            "RUST",
            "TERM",
        ];
        for begin in begins {
            for end in ends {
                let name = if begin.is_empty() {
                    end.to_owned()
                } else {
                    format!("{begin}_{end}")
                };
                assert!(name == "PWD" || !passes(&name), "{name}");
            }
        }
    }

    #[test]
    fn what_ordinary_tools_need_passes() {
        for name in NEEDED.split_whitespace() {
            assert!(passes(name), "{name}");
        }
    }

    #[test]
    fn a_variable_is_known_once() {
        let mut names: Vec<_> = list::lines(PASSED).collect();
        names.sort_unstable();
        let count = names.len();
        names.dedup();
        assert_eq!(names.len(), count);
    }

    /// Variables in which services, tools and platforms tell people to put a secret, in their
    /// documentation.
    const SECRET: &str = "
        AZURE_STORAGE_CONNECTION_STRING SENTRY_DSN AGE_IDENTITY BORG_PASSCOMMAND APP_KEYS ADMIN_PIN
        AUTH_HEADER CURL_USER BIND_PW BASIC_AUTH_USERPASS APPLICATIONINSIGHTS_CONNECTION_STRING TS_AUTHKEY
        SLACK_WEBHOOK_URL DB_PW JDBC_DATABASE_URL PRIVATEKEY DATABASE_URL REDIS_URL MONGODB_URI MONGO_URL
        AMQP_URL CLOUDAMQP_URL CELERY_BROKER_URL ELASTICSEARCH_URL SMTP_URL MAILER_DSN LDAP_BIND_PW
        DISCORD_WEBHOOK TEAMS_WEBHOOK_URI GITHUB_TOKEN GH_TOKEN GITHUB_PAT GH_ENTERPRISE_TOKEN
        ACTIONS_ID_TOKEN_REQUEST_TOKEN ACTIONS_RUNTIME_TOKEN GITLAB_TOKEN GITLAB_PRIVATE_TOKEN CI_JOB_TOKEN
        CI_JOB_JWT CI_REGISTRY_PASSWORD CI_REPOSITORY_URL CI_DEPLOY_PASSWORD BITBUCKET_APP_PASSWORD
        CIRCLE_TOKEN BUILDKITE_AGENT_ACCESS_TOKEN TRAVIS_API_TOKEN SYSTEM_ACCESSTOKEN
        VSS_NUGET_EXTERNAL_FEED_ENDPOINTS NUGET_CREDENTIALS NPM_TOKEN NODE_AUTH_TOKEN npm_config__authToken
        NPM_CONFIG__AUTH YARN_NPM_AUTH_TOKEN TWINE_PASSWORD PYPI_API_TOKEN POETRY_PYPI_TOKEN_PYPI
        POETRY_HTTP_BASIC_PRIVATE_PASSWORD UV_PUBLISH_TOKEN UV_INDEX_PRIVATE_PASSWORD CARGO_REGISTRY_TOKEN
        CARGO_REGISTRIES_PRIVATE_TOKEN BUNDLE_GEMS__EXAMPLE__COM GEM_HOST_API_KEY COMPOSER_AUTH HEX_API_KEY
        GOAUTH MAVEN_PASSWORD ORG_GRADLE_PROJECT_signingKey MAVEN_OPTS GRADLE_OPTS JAVA_OPTS JAVA_TOOL_OPTIONS
        HOMEBREW_GITHUB_API_TOKEN DOCKER_AUTH_CONFIG DOCKER_PASSWORD REGISTRY_AUTH AWS_ACCESS_KEY_ID
        AWS_SECRET_ACCESS_KEY AWS_SESSION_TOKEN AWS_SECURITY_TOKEN AWS_CONTAINER_AUTHORIZATION_TOKEN
        AWS_CONTAINER_CREDENTIALS_FULL_URI AWS_BEARER_TOKEN_BEDROCK AWS_PROFILE AZURE_CLIENT_SECRET
        AZURE_CLIENT_CERTIFICATE_PATH AZURE_STORAGE_KEY AZURE_STORAGE_SAS_TOKEN ARM_CLIENT_SECRET
        ARM_ACCESS_KEY GOOGLE_APPLICATION_CREDENTIALS GOOGLE_CREDENTIALS GCP_SA_KEY CLOUDSDK_AUTH_ACCESS_TOKEN
        GOOGLE_API_KEY DIGITALOCEAN_TOKEN DO_PAT HCLOUD_TOKEN LINODE_CLI_TOKEN CLOUDFLARE_API_KEY CF_API_TOKEN
        FASTLY_API_KEY HEROKU_API_KEY NETLIFY_AUTH_TOKEN VERCEL_TOKEN FLY_API_TOKEN RAILWAY_TOKEN
        SUPABASE_ACCESS_TOKEN SUPABASE_SERVICE_ROLE_KEY NEON_API_KEY PLANETSCALE_SERVICE_TOKEN SCW_SECRET_KEY
        OVH_APPLICATION_SECRET ALICLOUD_SECRET_KEY OCI_CLI_KEY_CONTENT VAULT_TOKEN OP_SESSION_my
        OP_SERVICE_ACCOUNT_TOKEN BW_SESSION BWS_ACCESS_TOKEN DOPPLER_TOKEN INFISICAL_TOKEN CONSUL_HTTP_TOKEN
        NOMAD_TOKEN TF_TOKEN_app_terraform_io TF_VAR_db_pin PULUMI_ACCESS_TOKEN PULUMI_CONFIG_PASSPHRASE
        SPACELIFT_API_KEY_SECRET KUBECONFIG KUBE_TOKEN ARGOCD_AUTH_TOKEN SOPS_AGE_KEY SOPS_AGE_KEY_CMD
        GPG_PASSPHRASE GNUPGHOME SSH_PRIVATE_KEY SSH_AUTH_SOCK SSHPASS ANSIBLE_VAULT_PASSWORD_FILE
        ANSIBLE_BECOME_PASS RESTIC_PASSWORD_COMMAND RESTIC_REPOSITORY BORG_PASSPHRASE RCLONE_CONFIG_PASS
        RCLONE_CONFIG_S3_SECRET_ACCESS_KEY PGPASSWORD PGPASSFILE MYSQL_PWD REDISCLI_AUTH
        MONGO_INITDB_ROOT_PASSWORD POSTGRES_PASSWORD SA_PASSWORD INFLUX_TOKEN SNOWSQL_PWD DATABRICKS_TOKEN
        OPENAI_API_KEY ANTHROPIC_API_KEY ANTHROPIC_AUTH_TOKEN ANTHROPIC_CUSTOM_HEADERS CLAUDE_CODE_OAUTH_TOKEN
        GEMINI_API_KEY GROQ_API_KEY MISTRAL_API_KEY COHERE_API_KEY HF_TOKEN HUGGING_FACE_HUB_TOKEN
        REPLICATE_API_TOKEN WANDB_API_KEY LANGSMITH_API_KEY PINECONE_API_KEY TAVILY_API_KEY CURSOR_API_KEY
        AIDER_OPENAI_API_KEY STRIPE_SECRET_KEY STRIPE_WEBHOOK_SECRET TWILIO_AUTH_TOKEN SENDGRID_API_KEY
        MAILGUN_API_KEY SLACK_BOT_TOKEN SLACK_SIGNING_SECRET TELEGRAM_BOT_TOKEN NOTION_TOKEN LINEAR_API_KEY
        JIRA_API_TOKEN CONFLUENCE_PAT DD_API_KEY DD_APP_KEY NEW_RELIC_LICENSE_KEY HONEYCOMB_WRITEKEY
        GRAFANA_API_KEY OTEL_EXPORTER_OTLP_HEADERS ROLLBAR_ACCESS_TOKEN SENTRY_AUTH_TOKEN SONAR_TOKEN
        SNYK_TOKEN CODECOV_TOKEN ALGOLIA_ADMIN_KEY AUTH0_CLIENT_SECRET OKTA_CLIENT_TOKEN JWT_SIGNING_SECRET
        SECRET_KEY_BASE RAILS_MASTER_KEY DJANGO_SECRET_KEY NEXTAUTH_SECRET SESSION_SECRET ENCRYPTION_KEY
        APP_KEY LARAVEL_ENV_ENCRYPTION_KEY GIT_CONFIG_VALUE_0 GIT_HTTP_EXTRAHEADER GIT_SSH_COMMAND
        GIT_CONFIG_PARAMETERS HTTPS_PROXY https_proxy ALL_PROXY no_proxy DIRENV_DIFF SSLKEYLOGFILE LD_PRELOAD
        GITHUB_ENV GITHUB_PATH GITHUB_OUTPUT GITHUB_STEP_SUMMARY KEY TOKEN PASSWORD FOO
    ";

    const NEEDED: &str = "
        PATH HOME USER SHELL PWD LANG LC_ALL LC_CTYPE TZ TERM COLORTERM NO_COLOR EDITOR PAGER LESS CI
        GITHUB_ACTIONS GITHUB_SHA CI_COMMIT_SHA CC CFLAGS PKG_CONFIG_PATH MAKEFLAGS CARGO_HOME
        CARGO_TARGET_DIR CARGO_NET_GIT_FETCH_WITH_CLI CARGO_TERM_COLOR RUSTUP_HOME RUSTUP_TOOLCHAIN RUSTFLAGS
        RUST_BACKTRACE GOPATH GOROOT GOPROXY GOFLAGS CGO_ENABLED JAVA_HOME GRADLE_USER_HOME ANDROID_HOME
        NVM_DIR NODE_ENV NODE_OPTIONS NODE_PATH PNPM_HOME npm_config_cache NPM_CONFIG_REGISTRY VIRTUAL_ENV
        PYTHONPATH PYENV_ROOT PIP_INDEX_URL UV_CACHE_DIR CONDA_PREFIX HF_HOME GEM_HOME RBENV_ROOT
        BUNDLE_GEMFILE DOTNET_ROOT HOMEBREW_PREFIX NIX_PATH AWS_REGION AWS_ENDPOINT_URL_SECRETS_MANAGER
        CLAUDE_CODE_MAX_OUTPUT_TOKENS MAX_THINKING_TOKENS ANTHROPIC_MODEL ANTHROPIC_BASE_URL
        TOKENIZERS_PARALLELISM GIT_AUTHOR_NAME GIT_DIR XDG_CONFIG_HOME RUST_LOG
    ";
}
