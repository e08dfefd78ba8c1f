# The static program in a root that holds nothing else: `exec`, `demo`, `serve`, and what it says of what is not there.
. "$(dirname "$0")/stage.sh"
file "$static" | grep -q 'static-pie linked' || fail "it should be static: $(file "$static")"
readelf -l "$static" | grep -q INTERP && fail "it should need no loader"
# in_root COMMAND… : in namespaces, with $new as the whole root; $parts are the kernel's parts of it.
new=$stage/root
mkdir "$new"
cat > inside.sh <<'END'
/busybox umount -l /old
/busybox rmdir /old
/busybox rm /busybox /inside.sh
cd "${AT:-/}"
exec "$@"
END
in_root() {
    env -i "${variables[@]}" /usr/bin/unshare --mount --pid --fork --propagation private /bin/sh -ec '
        new=$1 static=$2 parts=$3 more=$4; shift 4
        mount -t tmpfs -o mode=755 none "$new"
        mkdir -p "$new/usr/bin" "$new/old"
        cp "$static" "$new/usr/bin/gateway"
        cp /usr/bin/busybox inside.sh "$new/"
        [ -z "$more" ] || cp -r "$more/." "$new/"
        for part in $parts; do
            mkdir "$new/$part"
            case $part in
                proc) mount -t proc proc "$new/proc" ;;
                dev) for node in null zero full random urandom tty; do : > "$new/dev/$node"; mount --bind "/dev/$node" "$new/dev/$node"; done ;;
            esac
        done
        cd "$new"
        pivot_root . old
        exec /busybox sh -e /inside.sh "$@"
    ' sh "$new" "$static" "$parts" "$more" "$@" > out.log 2> said.log
}
more='' variables=()

# What is not to be had without: told by name, with what makes it.
parts=''
in_root /usr/bin/gateway --version || fail "the program alone should run"
in_root /usr/bin/gateway demo && fail "no /proc, no sandbox"
holds said.log 'this root has no /proc/self/exe'
holds said.log 'mount -t proc proc /proc'
parts='proc'
in_root /usr/bin/gateway demo && fail "no /dev, no sandbox"
holds said.log 'this root has no /dev/null'
parts='proc dev'
in_root /usr/bin/gateway demo && fail "no /sys, no sandbox"
holds said.log 'this root has no /sys'

# With these and a place for its log, it needs no user, no /etc and no /tmp.
parts='proc dev sys'
in_root /usr/bin/gateway exec -- /usr/bin/gateway --version && fail "a log needs a place"
holds said.log 'neither HOME nor XDG_STATE_HOME names a folder'
mkdir more more/work more/kept
chmod 700 more/kept
more=$stage/more variables=(HOME=/kept AT=/work)
in_root /usr/bin/gateway demo || fail "the demo"
in_root /usr/bin/gateway exec -- /usr/bin/gateway --version || fail "exec"
holds out.log 'gateway '

# Names and roots are told where they are missed: the sandbox starts all the same.
in_root /usr/bin/gateway exec --allow example.test -- /usr/bin/gateway --version || fail "a name that nobody asks for"

# Its sandbox holds as that of the other program does, by the same probes.
install -d -m 755 -o 12345 user
cp "$static" static
(cd user && env -i PATH="$PATH" HOME="$PWD" setpriv --reuid 12345 --regid 12345 --clear-groups ../static doctor --escape) > out.log 2>&1 ||
    fail "an escape"

# `serve` behind this machine's loopback.
origin 127.0.0.1 api.github.com
cp origins.pem more/kept/
cat > more/kept/gateway.toml <<END
[ca]
certificate = "ca.pem"
[audit]
path = "log/audit.jsonl"
[policy]
files = ["policy.cedar"]
[phantoms]
env_file = "phantoms.env"
[[listener]]
kind = "proxy"
address = "127.0.0.1:0"
session = "one"
[[credential]]
name = "GITHUB_TOKEN"
from = "env:GITHUB_TOKEN"
preset = "github"
origins = ["https://api.github.com"]
END
at api.github.com 127.0.0.1 /kept/origins.pem >> more/kept/gateway.toml
echo 'permit(principal, action, resource);' > more/kept/policy.cedar
free=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
sed -i "s#127.0.0.1:0#127.0.0.1:$free#" more/kept/gateway.toml
# Its root is in memory, so what it hands over is read from its process.
variables=(HOME=/kept AT=/kept "GITHUB_TOKEN=$secret")
in_root /usr/bin/gateway serve --config gateway.toml &
children+=($!)
until_true grep -q "session .one. on" said.log
serving=$(pgrep -f "^/usr/bin/gateway serve --config gateway.toml$" | while read -r pid; do grep -qs ":$free" "/proc/$pid/root/kept/gateway.toml" && echo "$pid"; done | head -1)
undo+=("kill -9 $serving")
cp "/proc/$serving/root/kept/phantoms.env" "/proc/$serving/root/kept/ca.pem" .
ask() { (. ./phantoms.env; curl -sS --max-time 20 --proxy "http://127.0.0.1:$free" --cacert ca.pem "$@" -H "Authorization: Bearer $GITHUB_TOKEN"); }
ask https://api.github.com/user > answered.log || fail "no answer"
holds seen.log "[authorization: Bearer $secret]"
holds_not answered.log "$secret"
# Without a resolv.conf: refused, and why.
curl -sS --max-time 20 --proxy "http://127.0.0.1:$free" --cacert ca.pem https://other.test/ > refused.log
holds refused.log '"reason":"unresolved"'
# SIGTERM ends it in order.
kill "$serving"
until_true grep -q draining said.log
wait "${children[-1]}" || fail "SIGTERM should end it in order"
echo "the empty root holds"
