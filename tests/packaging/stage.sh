# Sourced by the rows of main.rs. $PACKAGES is what packaging/build made, $KEPT a folder that they share, $COMPOSE podman-compose.
# shellcheck shell=bash
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
row=$(basename "$0" .sh)
stage=$(mktemp -d "/var/tmp/gateway-$row.XXXXXX")
chmod 755 "$stage"
secret=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
static=$(echo "$PACKAGES"/gateway-*-x86_64-linux-musl)
shared=$(echo "$PACKAGES"/gateway-*-x86_64-linux-gnu)
children=()
# What a row has to undo, one command an element, the last first.
undo=()
leave() {
    status=$?
    set +e
    if ((status)); then
        echo "-- what was said:"
        tail -n 40 "$stage"/*.log
    fi
    for ((at = ${#undo[@]} - 1; at >= 0; at--)); do eval "${undo[at]}" > /dev/null 2>&1; done
    for child in "${children[@]}"; do kill "$child" 2>/dev/null; done
    rm -rf "$stage"
    exit "$status"
}
trap leave EXIT
unset HTTP_PROXY HTTPS_PROXY ALL_PROXY NO_PROXY http_proxy https_proxy all_proxy no_proxy
cd "$stage"

fail() { echo "FAILED: $*"; exit 1; }
holds() { grep -qF -- "$2" "$1" || fail "$1 should hold: $2"; }
holds_not() { ! grep -qF -- "$2" "$1" || fail "$1 should not hold: $2"; }
# until_true COMMAND… : tries for half a minute.
until_true() {
    for _ in $(seq 300); do "$@" > /dev/null 2>&1 && return; sleep 0.1; done
    fail "never: $*"
}

# certificates HOST : of the origin.
certificates() {
    openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj "/CN=origins" \
        -keyout ca.key -out origins.pem 2>/dev/null
    openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj "/CN=$1" -keyout leaf.key -out leaf.csr 2>/dev/null
    openssl x509 -req -in leaf.csr -CA origins.pem -CAkey ca.key -days 1 -extfile <(echo "subjectAltName=DNS:$1") -out leaf.pem 2>/dev/null
}
# origin ADDRESS HOST : serves it, and records what comes in `seen.log`.
origin() {
    certificates "$2"
    python3 "$root/examples/origin.py" "$stage" "$1" > port 2> origin.log &
    children+=($!)
    until_true test -s port
}
# at HOST ADDRESS ROOTS : the lines of gateway.toml for the origin.
at() {
    printf '\n[[origin]]\nmatch = "https://%s"\nroots = ["%s"]\nreplace_system_roots = true\nconnect = "%s:%s"\n' "$1" "$3" "$2" "$(<"$stage/port")"
}

# The settings of Podman that it needs where the first process is not systemd, and storage of its own.
containers() {
    cat > containers.conf <<END
[containers]
default_ulimits = ["nofile=20000:20000", "nproc=32768:32768"]
log_driver = "k8s-file"
[engine]
runtime = "runc"
cgroup_manager = "cgroupfs"
events_logger = "file"
[network]
network_backend = "netavark"
network_config_dir = "$KEPT/networks"
END
    printf '[storage]\ndriver = "overlay"\ngraphroot = "%s"\nrunroot = "%s"\n' "$KEPT/storage" "$KEPT/run" > storage.conf
    export CONTAINERS_CONF=$stage/containers.conf CONTAINERS_STORAGE_CONF=$stage/storage.conf BUILDAH_ISOLATION=chroot
    mkdir -p "$KEPT"
}
# The image that is shipped, and one for workloads: this system's curl and the shell of busybox.
images() {
    containers
    exec 8> "$KEPT/lock"
    flock 8
    if ! [[ $KEPT/built -nt $PACKAGES/SHA256SUMS ]]; then
        buildah bud -f "$root/packaging/Containerfile" -t localhost/gateway "$PACKAGES/image" > build.log 2>&1
        mkdir -p workload/root/bin workload/root/tmp
        cp /usr/bin/busybox workload/root/bin/busybox
        for name in sh sleep cat nslookup sha256sum; do ln -s busybox "workload/root/bin/$name"; done
        for file in /usr/bin/curl $(ldd /usr/bin/curl | grep -o '/[^ ]*'); do install -D "$file" "workload/root$file"; done
        printf 'FROM scratch\nCOPY root/ /\n' > workload/Containerfile
        buildah bud -t localhost/workload workload > build.log 2>&1
        touch "$KEPT/built"
    fi
    flock -u 8
}
