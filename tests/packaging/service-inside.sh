# In a container whose first process is systemd, over a copy of this system: the package is installed, its service started, reloaded
# and stopped, and the package removed. /stage has the package, the origin, its certificates, and `token`.
set -euo pipefail
cd /stage
fail() { echo "FAILED: $*"; journalctl --no-pager -n 40 -u gateway.service -u gateway.socket; exit 1; }
until_true() { for _ in $(seq 300); do "$@" > /dev/null 2>&1 && return; sleep 0.1; done; fail "never: $*"; }

until_true systemctl is-active sysinit.target
# An image of Debian forbids its packages to start services.
rm -f /usr/sbin/policy-rc.d
dpkg --install gateway_*.deb
gateway --version
man --path gateway-exec > /dev/null || fail "no manual page"
for file in bash-completion/completions/gateway zsh/vendor-completions/_gateway fish/vendor_completions.d/gateway.fish; do
    [[ -s /usr/share/$file ]] || fail "no completions: $file"
done
[[ $(systemctl is-enabled gateway.service) == disabled ]] || fail "installing it should not enable it"

# As examples/systemd/README.md says; the origin is one of ours.
install -m 0600 token /etc/gateway/github.token
cat >> /etc/gateway/gateway.toml <<END

[[origin]]
match = "https://api.github.com"
roots = ["/etc/gateway/origins.pem"]
replace_system_roots = true
connect = "127.0.0.1:$(<port)"
END
cp origins.pem /etc/gateway/
systemctl daemon-reload
systemctl enable --now gateway.socket gateway.service || fail "it does not start"
[[ $(systemctl show -p User --value gateway.service; ps -o user= -C gateway) != *root* ]] || fail "it runs as root"
ask() {
    . /run/gateway/phantoms.env
    curl -sS --max-time 20 --proxy http://127.0.0.1:8080 --cacert /run/gateway/ca.pem https://api.github.com/user \
        -H "Authorization: Bearer $GITHUB_TOKEN"
}
ask > answered || fail "no answer"
grep -qF "[authorization: Bearer $(<token)]" seen.log || fail "the origin should have seen the token"
! grep -qF "$(<token)" answered || fail "the secret came back"
systemctl reload gateway.service
systemctl restart gateway.service
ask > answered || fail "no answer after a restart"
# An upgrade keeps the configuration, and starts the service anew.
before=$(systemctl show -p MainPID --value gateway.service)
dpkg --install --force-confold gateway_*.deb
until_true ask
[[ $(systemctl show -p MainPID --value gateway.service) != "$before" ]] || fail "an upgrade should start it anew"
grep -q 'connect = ' /etc/gateway/gateway.toml || fail "an upgrade should keep the configuration"

dpkg --remove gateway
! systemctl is-active gateway.service gateway.socket || fail "it should be stopped"
[[ ! -e /usr/bin/gateway && -e /etc/gateway/gateway.toml ]] || fail "removing keeps the configuration alone"
dpkg --purge gateway
[[ ! -e /etc/gateway/gateway.toml && -e /var/lib/gateway/audit.jsonl ]] || fail "purging keeps the audit log alone"
grep -q '"stop"' /var/lib/gateway/audit.jsonl || fail "the log should have its end"
echo "the package and its service hold"
