# The Debian package in a copy of this system with systemd as its first process: service-inside.sh is what happens there.
. "$(dirname "$0")/stage.sh"
containers
if [[ $(podman info --format '{{.Host.CgroupsVersion}}') == v1 ]]; then
    groups=(-v /sys/fs/cgroup/systemd:/sys/fs/cgroup/systemd)
else
    groups=(--cgroupns private --security-opt unmask=/sys/fs/cgroup)
fi
cp "$PACKAGES"/gateway_*.deb "$root/examples/origin.py" "$root/tests/packaging/service-inside.sh" .
printf %s "$secret" > token
certificates api.github.com
name=gateway-package-$$
undo+=("podman rm -ft 0 $name")
# Mounts must spread for `LoadCredential`; and the kernel's settings are the host's.
podman run -d --name "$name" --systemd=false --cap-add all --security-opt seccomp=unconfined --network none -e container=podman \
    --tmpfs /run:rw,notmpcopyup --tmpfs /tmp:rw,notmpcopyup "${groups[@]}" -v "$stage:/stage" \
    -v /dev/null:/etc/systemd/system/systemd-sysctl.service -v /dev/null:/etc/systemd/system/systemd-modules-load.service \
    --rootfs /:O sh -c 'mount --make-rshared / && exec /lib/systemd/systemd --unit=sysinit.target' > podman.log 2>&1
podman exec -d "$name" sh -c 'exec python3 /stage/origin.py /stage > /stage/port 2> /stage/origin.log'
until_true test -s port
podman exec "$name" bash /stage/service-inside.sh > inside.log 2>&1 || fail "$(tail -50 inside.log)"
tail -1 inside.log
