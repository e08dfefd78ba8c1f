# The image: the program and the roots alone, by no root, nothing written.
. "$(dirname "$0")/stage.sh"
images
kept=$row-$$
undo+=("podman volume rm -f $kept")
run() { podman run --rm --pull never --read-only -v "$kept:/var/lib/gateway" --cap-drop all --security-opt no-new-privileges "$@" 2> said.log; }
files=$(podman image mount localhost/gateway)
undo+=("podman image unmount localhost/gateway")
[[ $(cd "$files" && find . -type f -o -type l | sort) == $'./etc/ssl/certs/ca-certificates.crt\n./usr/bin/gateway' ]] ||
    fail "the image should hold the program and the roots alone: $(find "$files" -type f)"
cmp "$files/usr/bin/gateway" "$static"
[[ $(podman image inspect localhost/gateway --format '{{.Config.User}}') == 65532:65532 ]] || fail "its user should not be root"
run localhost/gateway --version | grep -q '^gateway ' || fail "it should run"
run localhost/gateway serve --config /nowhere && fail "no configuration, no service"
holds said.log /nowhere
# Where the container's /proc is not masked, and only there, it has sandboxes of its own.
run localhost/gateway demo > out.log && fail "a masked /proc should be refused"
holds said.log "cannot make the sandbox"
run --security-opt unmask=ALL localhost/gateway demo > out.log || fail "the demo should hold in a container with its own /proc"
echo "the image holds"
