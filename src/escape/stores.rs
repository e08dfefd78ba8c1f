//! Where credentials customarily lie in home directories. The home directory's probe looks for
//! these.

use super::probe::words;

/// Paths relative to the home directory. More than the list of names to hide, because the sandbox
/// does not rely on that list.
pub fn stores() -> impl Iterator<Item = &'static str> {
    words(STORES)
}

const STORES: &str = "
    .ssh/id_rsa .ssh/id_ed25519 .ssh/config .gnupg/private-keys-v1.d/a.key .password-store/a.gpg
    .local/share/keyrings/login.keyring .local/share/kwalletd/kdewallet.kwl .pki/nssdb/key4.db
    .config/op/config .config/1Password/settings.json .config/Bitwarden/data.json
    .config/sops/age/keys.txt .config/age/key.txt .age/key.txt .vault-token
    .step/secrets/root_ca_key .aws/credentials .aws/config .aws/sso/cache/a.json
    .azure/msal_token_cache.json .azure/accessTokens.json .config/gcloud/credentials.db
    .config/gcloud/application_default_credentials.json .boto .s3cfg .config/rclone/rclone.conf
    .mc/config.json .oci/config .ibmcloud/config.json .bluemix/config.json .aliyun/config.json
    .tccli/default.credential .config/doctl/config.yaml .config/hcloud/cli.toml .config/linode-cli
    .config/scw/config.yaml .config/heroku/auth.json .fly/config.yml .railway/config.json
    .config/netlify/config.json .netlify/config.json .vercel/auth.json
    .local/share/com.vercel.cli/auth.json .wrangler/config/default.toml .cloudflared/cert.pem
    .config/configstore/firebase-tools.json .config/neonctl/credentials.json .supabase/access-token
    .databrickscfg .snowflake/config.toml .snowsql/config .terraform.d/credentials.tfrc.json
    .terraformrc .pulumi/credentials.json .kube/config .docker/config.json
    .config/containers/auth.json .config/helm/registry/config.json .config/argocd/config
    .rancher/cli2.json .minikube/profiles/a/client.key .talos/config .chef/knife.rb
    .puppetlabs/token .ansible/vault_password .vagrant.d/data/vagrant_login_token .netrc _netrc
    .authinfo .authinfo.gpg .git-credentials .gitconfig .config/git/credentials .config/gh/hosts.yml
    .config/hub .config/glab-cli/config.yml .config/tea/config.yml .config/jj/config.toml
    .gitlab-runner/config.toml .circleci/cli.yml .travis/config.yml .jenkins-cli .npmrc .yarnrc.yml
    .config/pnpm/rc .config/pnpm/auth.ini .local/share/pnpm/auth.ini .bunfig.toml .pypirc
    .config/pip/pip.conf .pip/pip.conf .config/pypoetry/auth.toml
    .local/share/uv/credentials/credentials.toml .condarc .cargo/credentials.toml .cargo/credentials
    .cargo/config.toml .gem/credentials .bundle/config .m2/settings.xml .gradle/gradle.properties
    .nuget/NuGet/NuGet.Config .composer/auth.json .config/composer/auth.json .hex/hex.config
    .sbt/.credentials .ivy2/.credentials .cpanrc .pgpass .my.cnf .mylogin.cnf .mongorc.js
    .config/psql/psqlrc .redisclirc .influxdbv2/configs .huggingface/token .cache/huggingface/token
    .config/openai/key .config/anthropic/key .claude.json .claude/.credentials.json
    .claude/settings.json .claude/history.jsonl .codex/auth.json .codex/config.toml
    .gemini/oauth_creds.json .gemini/.env .config/goose/secrets.yaml .config/amp/settings.json
    .local/share/amp/secrets.json .local/share/opencode/auth.json .config/cursor/auth.json
    .cursor/mcp.json .qwen/oauth_creds.json .config/github-copilot/apps.json
    .config/aichat/config.yaml .aider.conf.yml .continue/config.json .modal.toml .kaggle/kaggle.json
    .config/wandb/settings .config/sentry-cli .sentryclirc .slack/credentials.json
    .config/stripe/config.toml .config/ngrok/ngrok.yml .ngrok2/ngrok.yml .config/tailscale/key
    .acme.sh/account.conf .config/letsencrypt/key.pem .lego/accounts/a.key .android/adbkey
    .android/debug.keystore .config/twilio-cli/config.json .config/hcloud/token
    .mozilla/firefox/a/logins.json .thunderbird/a/logins.json .config/chromium/Default/Cookies
    .config/BraveSoftware/a .config/Slack/Cookies .config/discord/a .config/Signal/config.json
    .config/Code/User/settings.json .bitcoin/wallet.dat .ethereum/keystore/a .electrum/wallets/a
    .config/solana/id.json Passwords.kdbx Documents/passwords.txt .bash_history .zsh_history
    .python_history .node_repl_history .psql_history .lesshst .viminfo .bashrc .profile .zshenv .env
    .envrc .config/fish/config.fish .config/environment.d/secrets.conf
    .config/google-chrome/Default/Cookies
";
