#!/bin/sh
# npm: installs a scoped package (its name travels with %2f) with a token.
folder=$(mktemp -d) || exit 1
trap 'rm -rf "$folder"' EXIT
fail() { echo "FAIL npm $*" | tr '\n' ' ' | cut -c1-300; echo; exit 1; }
cd "$folder" || exit 1
export npm_config_cache="$folder/cache" npm_config_userconfig="$folder/none" npm_config_update_notifier=false
cat > .npmrc <<RC
@lab:registry=$BASE_PACKAGES/npm/
//${BASE_PACKAGES#https://}/npm/:_authToken=\${NPM_TOKEN}
fetch-retries=0
RC
echo '{"private": true}' > package.json
said=$(npm install --no-audit --no-fund @lab/hello 2>&1) || fail "$said"
got=$(node -p 'require("@lab/hello")') || fail "not installed"
[ "$got" = "hello from npm" ] || fail "got $got"
echo "ok npm"
