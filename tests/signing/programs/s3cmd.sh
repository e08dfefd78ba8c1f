#!/bin/sh
# s3cmd, which has a signer of its own.
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
host=${AWS_ENDPOINT_URL_S3#https://}
cat > "$work/s3cfg" <<CONFIG
[default]
host_base = $host
host_bucket = $host
use_https = True
signature_v2 = False
bucket_location = $AWS_REGION
ca_certs_file = $SSL_CERT_FILE
proxy_host = $(printf '%s' "$HTTPS_PROXY" | sed 's,^.*://,,; s,:[0-9/]*$,,')
proxy_port = $(printf '%s' "$HTTPS_PROXY" | sed -n 's,^.*:\([0-9]*\)/*$,\1,p')
CONFIG
[ -n "$HTTPS_PROXY" ] || sed -i /^proxy/d "$work/s3cfg"
s3cmd="s3cmd -c $work/s3cfg --access_key=$AWS_ACCESS_KEY_ID --secret_key=$AWS_SECRET_ACCESS_KEY --access_token=$AWS_SESSION_TOKEN --no-progress"
at=s3://$SIGNING_BUCKET/$SIGNING_CLIENT

try() {
    case ",$SIGNING_OPERATIONS," in ,, | *",$1,"*) ;; *) return ;; esac
    if (set -e; "$2") > "$work/said" 2>&1; then echo "ok $1"; else echo "FAIL $1: $(tr '\n' ' ' < "$work/said" | cut -c1-500)"; fi
}

put() { printf hello > "$work/put"; $s3cmd put "$work/put" "$at/put"; }
get() { $s3cmd get --force "$at/put" "$work/got" && [ "$(cat "$work/got")" = hello ]; }
list() { $s3cmd ls "$at/" | grep -q '/put$'; }
copy() { $s3cmd cp "$at/put" "$at/copied"; }
delete() { $s3cmd del "$at/copied" && ! $s3cmd info "$at/copied"; }
multipart() {
    dd if=/dev/urandom of="$work/large" bs=1M count=20 2>/dev/null
    $s3cmd put --multipart-chunk-size-mb=6 "$work/large" "$at/large" && $s3cmd get --force "$at/large" "$work/back" && cmp "$work/large" "$work/back"
}
keys() {
    for name in 'with space' 'plus+sign' 'per%cent' 'ünïcode' 'a@b=c&d'; do
        $s3cmd put "$work/put" "$at/$name" && $s3cmd get --force "$at/$name" "$work/odd" && [ "$(cat "$work/odd")" = hello ]
    done
}

printf hello > "$work/put"
try put put; try get get; try list list; try copy copy; try delete delete; try multipart multipart; try keys keys
