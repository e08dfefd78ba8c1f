#!/bin/sh
# git: clone of 100 MB and push of 100 MB over HTTPS with Basic; the push is chunked by git itself.
folder=$(mktemp -d) || exit 1
trap 'rm -rf "$folder"' EXIT
# The content is random: looking for deltas and compressing would only measure zlib.
git() { command git -c core.compression=0 -c pack.window=0 -c pack.compression=0 -c core.bigFileThreshold=1m "$@"; }
fail() { echo "FAIL git $*" | tr '\n' ' ' | cut -c1-300; echo; exit 1; }
export GIT_TERMINAL_PROMPT=0 GIT_CONFIG_NOSYSTEM=1 HOME="$folder"
url=$(echo "$BASE_GIT" | sed "s|https://|https://x-access-token:$GIT_TOKEN@|")/lab.git

said=$(git clone -q "$url" "$folder/work" 2>&1) || fail "clone: $said"
cd "$folder/work" || fail "no clone"
[ "$(cat file-* | wc -c)" -ge 100000000 ] || fail "the clone is short"
for n in 1 2 3 4 5 6 7 8 9 10; do head -c 10000000 /dev/urandom > "more-$n"; done
git add . && git -c user.name=lab -c user.email=lab@example.test commit -qm more || fail "commit"
branch=lab-$$-$(date +%s)
said=$(git push -q origin "HEAD:refs/heads/$branch" 2>&1) || fail "push: $said"
there=$(git ls-remote "$url" "refs/heads/$branch" 2>&1 | cut -f1)
[ "$there" = "$(git rev-parse HEAD)" ] || fail "the origin has $there"
# Leaves the origin as it was.
git push -q origin --delete "$branch" 2>/dev/null || fail "delete"
echo "ok git"
