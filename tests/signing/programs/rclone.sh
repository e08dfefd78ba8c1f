#!/bin/sh
# rclone: the Debian one is built on the AWS SDK for Go v1, the newest on v2.
rclone=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export RCLONE_CONFIG_J_TYPE=s3 RCLONE_CONFIG_J_PROVIDER=Other RCLONE_CONFIG_J_ENV_AUTH=true RCLONE_CONFIG_J_ENDPOINT="$AWS_ENDPOINT_URL_S3" \
    RCLONE_CONFIG_J_REGION="$AWS_REGION" RCLONE_CONFIG_J_FORCE_PATH_STYLE=true RCLONE_CONFIG="$work/none" RCLONE_RETRIES=1 RCLONE_LOW_LEVEL_RETRIES=1 RCLONE_S3_NO_CHECK_BUCKET=true
# With it the SDK for Go v1 refuses rclone's own transport; both trust what SSL_CERT_FILE names.
unset AWS_CA_BUNDLE
at=j:$SIGNING_BUCKET/$SIGNING_CLIENT

try() {
    case ",$SIGNING_OPERATIONS," in ,, | *",$1,"*) ;; *) return ;; esac
    if (set -e; "$2") > "$work/said" 2>&1; then echo "ok $1"; else echo "FAIL $1: $(tr '\n' ' ' < "$work/said" | cut -c1-500)"; fi
}

put() { printf hello | "$rclone" rcat "$at/put"; }
get() { [ "$("$rclone" cat "$at/put")" = hello ]; }
range() { [ "$("$rclone" cat --offset 1 --count 3 "$at/put")" = ell ]; }
list() { "$rclone" lsf "$at/" | grep -q '^put$'; }
copy() { "$rclone" copyto "$at/put" "$at/copied ü+%" && [ "$("$rclone" cat "$at/copied ü+%")" = hello ]; }
delete() { "$rclone" deletefile "$at/copied ü+%" && ! "$rclone" lsf "$at/" | grep -q copied; }
multipart() {
    dd if=/dev/urandom of="$work/large" bs=1M count=20 2>/dev/null
    "$rclone" copyto --s3-upload-cutoff 5M --s3-chunk-size 6M "$work/large" "$at/large" && "$rclone" copyto "$at/large" "$work/back" && cmp "$work/large" "$work/back"
}
keys() {
    mkdir -p "$work/tree/with space/ünïcode" && echo 1 > "$work/tree/with space/plus+sign" && echo 2 > "$work/tree/with space/ünïcode/per%cent" && echo 3 > "$work/tree/semi;colon@=&"
    "$rclone" sync "$work/tree" "$at/tree" && "$rclone" check --download "$work/tree" "$at/tree"
}

try put put; try get get; try range range; try list list; try copy copy; try delete delete; try multipart multipart; try keys keys
