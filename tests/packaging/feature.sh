# packaging/feature: install.sh as the tools for dev containers run it, as root in a container, with its options as variables.
. "$(dirname "$0")/stage.sh"
python3 - "$root/packaging/feature/devcontainer-feature.json" "$static" <<'END'
import json, sys
about = json.load(open(sys.argv[1]))
assert about["id"] == "gateway" and set(about["options"]) == {"program", "sha256"}, about
assert f"gateway-{about['version']}-" in sys.argv[2], "the versions differ"
END
containers
cp -r "$root/packaging/feature" .
cp "$static" program
sum=$(sha256sum < program | cut -d' ' -f1)
# A copy of this system, whose changes are dropped, in the place of a dev container's.
in_container() {
    podman run --rm --network none -v "$stage:/given:ro" --tmpfs /tmp:rw,notmpcopyup -e PROGRAM=/given/program -e "SHA256=$1" \
        --security-opt unmask=ALL --rootfs /:O sh -ec "$2" > out.log 2> said.log
}
in_container "${sum/?/x}" 'cd /given/feature && sh ./install.sh' && fail "a sum that is none"
holds said.log "64 hexadecimal digits"
in_container "$sum" 'cd /given/feature && sh ./install.sh && mkdir -p /srv/here && cd /srv/here && chown 12345 . && exec setpriv --reuid 12345 \
    --regid 12345 --clear-groups env HOME=/srv/here GITHUB_TOKEN='"$secret"' gateway exec --secret GITHUB_TOKEN -- sh -c "echo has \$GITHUB_TOKEN"' ||
    fail "install, and a sandbox in the container"
holds out.log "has ghp_"
holds_not out.log "$secret"
echo "the feature holds"
