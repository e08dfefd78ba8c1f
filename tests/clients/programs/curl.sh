#!/bin/sh
# curl: JSON, a large upload (with Expect) and a download, by HTTP/1.1 or HTTP/2: curl.sh h1|h2
name=curl-$1
case $1 in h1) version=--http1.1 want=1.1 ;; *) version=--http2 want=2 ;; esac
folder=$(mktemp -d) || exit 1
trap 'rm -rf "$folder"' EXIT
fail() { echo "FAIL $name $*" | tr '\n' ' ' | cut -c1-300; echo; exit 1; }
ask() { curl -sS --fail-with-body --max-time 60 "$version" -H "Authorization: Bearer $API_TOKEN" "$@" 2>&1; }

got=$(ask -w ' %{http_version}' "$BASE_API/v1/whoami") || fail "$got"
case $got in *alice*" $want") ;; *) fail "got $got" ;; esac
head -c 8000000 /dev/urandom > "$folder/data"
sum=$(sha256sum < "$folder/data" | cut -d' ' -f1)
got=$(ask -T - -X POST "$BASE_API/v1/upload" < "$folder/data") || fail "upload of unknown length: $got"
case $got in *"$sum"*) ;; *) fail "upload of unknown length: $got" ;; esac
got=$(ask --data-binary "@$folder/data" "$BASE_API/v1/upload") || fail "upload: $got"
case $got in *"$sum"*) ;; *) fail "upload: $got" ;; esac
ask -o "$folder/back" "$BASE_API/v1/download/30000000" || fail "download"
[ "$(wc -c < "$folder/back")" -eq 30000000 ] || fail "download is short"
echo "ok $name"
