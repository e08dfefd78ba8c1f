#!/bin/sh
# AWS CLI, as a person types it. Each operation is a function that fails where anything in it does.
aws=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# `presign` signs by version 2 in this region unless it is told.
export AWS_CONFIG_FILE="$work/config"
printf '[default]\ns3 =\n    signature_version = s3v4\n' > "$AWS_CONFIG_FILE"
at=s3://$SIGNING_BUCKET/$SIGNING_CLIENT
bucket="--bucket $SIGNING_BUCKET"
key() { printf '%s/%s' "$SIGNING_CLIENT" "$1"; }

try() {
    case ",$SIGNING_OPERATIONS," in ,, | *",$1,"*) ;; *) return ;; esac
    if (set -e; "$2") > "$work/said" 2>&1; then echo "ok $1"; else echo "FAIL $1: $(tr '\n' ' ' < "$work/said" | cut -c1-500)"; fi
}

put() { printf hello > "$work/put"; $aws s3 cp "$work/put" "$at/put" --only-show-errors; }
get() { $aws s3 cp "$at/put" "$work/got" --only-show-errors && [ "$(cat "$work/got")" = hello ]; }
# shellcheck disable=SC2086
range() { $aws s3api get-object $bucket --key "$(key put)" --range bytes=1-3 "$work/part" && [ "$(cat "$work/part")" = ell ]; }
# shellcheck disable=SC2086
head() { [ "$($aws s3api head-object $bucket --key "$(key put)" --query ContentLength)" = 5 ]; }
list() { $aws s3 ls "$at/" | grep -q ' put$'; }
copy() { $aws s3 cp "$at/put" "$at/copied ü+%" --only-show-errors && $aws s3 cp "$at/copied ü+%" "$work/copied" --only-show-errors && [ "$(cat "$work/copied")" = hello ]; }
delete() { $aws s3 rm "$at/copied ü+%" --only-show-errors && ! $aws s3 ls "$at/copied"; }
multipart() {
    dd if=/dev/urandom of="$work/large" bs=1M count=20 2>/dev/null
    $aws s3 cp "$work/large" "$at/large" --only-show-errors && $aws s3 cp "$at/large" "$work/back" --only-show-errors && cmp "$work/large" "$work/back"
}
sync() {
    mkdir -p "$work/tree/with space/ünïcode" && echo 1 > "$work/tree/with space/plus+sign" && echo 2 > "$work/tree/with space/ünïcode/per%cent"
    $aws s3 sync "$work/tree" "$at/tree" --only-show-errors && $aws s3 sync "$at/tree" "$work/again" --only-show-errors && diff -r "$work/tree" "$work/again"
}
presigned() {
    url=$($aws s3 presign "$at/put" --expires-in 300) && [ "$(curl -sSf --max-time 30 "$url")" = hello ]
}
dynamodb() {
    $aws dynamodb put-item --table-name judges --item '{"id": {"S": "cli"}}' && [ "$($aws dynamodb get-item --table-name judges --key '{"id": {"S": "cli"}}' --query Item.id.S --output text)" = cli ]
}
sts() { [ "$($aws sts get-caller-identity --query Account --output text)" = 123456789012 ]; }
sqs() {
    queue=$AWS_ENDPOINT_URL_SQS/123456789012/judges
    # Its SQS reads no endpoint from the environment.
    aws="$aws --endpoint-url $AWS_ENDPOINT_URL_SQS"
    $aws sqs send-message --queue-url "$queue" --message-body 'from the cli <&>' && [ "$($aws sqs receive-message --queue-url "$queue" --query 'Messages[0].Body' --output text)" = 'from the cli <&>' ]
}
error() { $aws dynamodb delete-table --table-name judges 2>&1 | grep -q ResourceNotFoundException; }
refusal() {
    if [ -n "$SIGNING_DIRECT" ]; then $aws secretsmanager get-secret-value --secret-id judge; else
        $aws secretsmanager get-secret-value --secret-id judge 2>&1 | grep -q 'AccessDeniedException.*gateway why '; fi
}

# `head` and `delete` need `put` and `copy` before them.
try put put; try get get; try range range; try head head; try list list; try copy copy; try delete delete; try multipart multipart; try keys sync
try "presigned get" presigned; try dynamodb dynamodb; try sts sts; try sqs sqs; try "service error" error; try refusal refusal
