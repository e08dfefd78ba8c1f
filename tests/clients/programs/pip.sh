#!/bin/sh
# pip: installs a wheel from a simple index with Basic.
folder=$(mktemp -d) || exit 1
trap 'rm -rf "$folder"' EXIT
fail() { echo "FAIL pip $*" | tr '\n' ' ' | cut -c1-300; echo; exit 1; }
index=$(echo "$BASE_PACKAGES" | sed "s|https://|https://__token__:$PIP_TOKEN@|")/simple/
said=$("${CLIENTS_PYTHON:-python3}" -m pip install --disable-pip-version-check --no-cache-dir --no-input --retries 0 -q \
    --target "$folder/site" --index-url "$index" labhello 2>&1) || fail "$(echo "$said" | sed "s|$PIP_TOKEN|…|g")"
got=$(PYTHONPATH="$folder/site" "${CLIENTS_PYTHON:-python3}" -c 'import labhello; print(labhello.WORD)') || fail "not installed"
[ "$got" = "hello from the index" ] || fail "got $got"
echo "ok pip"
