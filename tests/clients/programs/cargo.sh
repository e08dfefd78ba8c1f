#!/bin/sh
# cargo: fetches a crate from a sparse registry that asks for its token, which travels without a scheme.
folder=$(mktemp -d) || exit 1
trap 'rm -rf "$folder"' EXIT
fail() { echo "FAIL cargo $*" | tr '\n' ' ' | cut -c1-300; echo; exit 1; }
cd "$folder" || exit 1
mkdir -p src home
export CARGO_HOME="$folder/home" CARGO_REGISTRIES_LAB_INDEX="sparse+$BASE_PACKAGES/index/" CARGO_REGISTRIES_LAB_TOKEN="$CARGO_TOKEN" CARGO_NET_RETRY=0
printf '[registry]\nglobal-credential-providers = ["cargo:token"]\n' > home/config.toml
printf '[package]\nname = "fetcher"\nversion = "0.0.0"\nedition = "2021"\n[dependencies]\nlabhello = { version = "1", registry = "lab" }\n' > Cargo.toml
echo > src/lib.rs
said=$(cargo fetch 2>&1) || fail "$said"
ls home/registry/src/*/labhello-1.0.0/src/lib.rs >/dev/null 2>&1 || fail "not fetched"
echo "ok cargo"
