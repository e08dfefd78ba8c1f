#!/bin/sh
# Installs the static program: $PROGRAM is its https URL or its path, $SHA256 what SHA256SUMS says of it, $INTO the folder for it.
# The devcontainer feature runs it as root with its options, and the GitHub Action with its inputs.
set -eu
fail() {
    echo "gateway: $*" >&2
    exit 1
}
into=${INTO:-/usr/local/bin}
[ "$(printf %s "${SHA256:-}" | tr -d 0-9a-f | wc -c)${#SHA256}" = 064 ] ||
    fail "sha256 must be the program's 64 hexadecimal digits: SHA256SUMS of the release has them"
made=$(mktemp)
trap 'rm -f "$made"' EXIT
case ${PROGRAM:-} in
    https://*)
        if command -v curl > /dev/null; then
            curl -fsSL --proto '=https' --proto-redir '=https' -o "$made" "$PROGRAM"
        else
            wget -qO "$made" "$PROGRAM"
        fi ;;
    /*) cp "$PROGRAM" "$made" ;;
    *) fail "program must be an https URL or an absolute path, not '${PROGRAM:-}'" ;;
esac
[ "$(sha256sum < "$made" | cut -d' ' -f1)" = "$SHA256" ] ||
    fail "$PROGRAM is not the program that sha256 names; nothing was installed"
mkdir -p "$into"
chmod 755 "$made"
# `mktemp` may be on another file system: so that no one ever runs a part of it.
cp -p "$made" "$into/.gateway.new"
mv "$into/.gateway.new" "$into/gateway"
"$into/gateway" --version
