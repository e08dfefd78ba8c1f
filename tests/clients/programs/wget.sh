#!/bin/sh
# wget (GnuTLS): JSON and a download.
folder=$(mktemp -d) || exit 1
trap 'rm -rf "$folder"' EXIT
fail() { echo "FAIL wget $*" | tr '\n' ' ' | cut -c1-300; echo; exit 1; }
ask() { wget -nv -T 60 -t 1 --header "Authorization: Bearer $API_TOKEN" -O "$folder/out" "$1" 2>&1; }

said=$(ask "$BASE_API/v1/whoami") || fail "$said"
grep -q alice "$folder/out" || fail "not alice"
said=$(ask "$BASE_API/v1/download/10000000") || fail "$said"
[ "$(wc -c < "$folder/out")" -eq 10000000 ] || fail "download is short"
echo "ok wget"
