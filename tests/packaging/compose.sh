# examples/container/compose.yaml, unchanged, by podman-compose.
. "$(dirname "$0")/stage.sh"
images
origin 0.0.0.0 api.github.com
mkdir examples
cp -r "$root/examples/container" examples/
cp -r "$root/policies" .
cp origins.pem examples/container/
cd examples/container
at api.github.com 10.89.77.1 /etc/gateway/origins.pem > origin.toml
cat origin.toml >> gateway.toml
# What a test adds: where the origin is, and its certificate.
cat > test.yaml <<'END'
services:
  gateway: { volumes: ["./origins.pem:/etc/gateway/origins.pem:ro"] }
networks:
  outside: { ipam: { config: [{ subnet: 10.89.77.0/24 }] } }
END
export GITHUB_TOKEN=$secret PROXY_PASSWORD=correct-horse-battery WORKLOAD_IMAGE=localhost/workload
compose() { "$COMPOSE" -p gwcompose -f compose.yaml -f test.yaml "$@" >> "$stage/compose.log" 2>&1; }
undo+=("cd $stage/examples/container; compose down -v -t 1")
compose up -d || fail "compose up"
ended() { [[ $(podman wait gwcompose_workload_1) == 0 ]] || fail "the workload: $(podman logs gwcompose_workload_1 2>&1) $(podman logs gwcompose_gateway_1 2>&1)"; }
ended
podman logs gwcompose_workload_1 > "$stage/answered.log" 2>&1
holds "$stage/seen.log" "[authorization: Bearer $secret]"
holds_not "$stage/answered.log" "$secret"
holds "$stage/answered.log" "Bearer ghp_"
podman healthcheck run gwcompose_gateway_1 || fail "the health check"
[[ $(podman top gwcompose_gateway_1 huser | tail -1) == 65532 ]] || fail "the gateway should not be root"
! podman logs gwcompose_gateway_1 2>&1 | grep -F "$secret" || fail "the secret is in the log"

# From the inner network there is no other way: not to the host, not to a name server, not without the password.
inside() { podman run --rm --pull never --network gwcompose_inside --entrypoint '' localhost/workload "$@" > "$stage/inside.log" 2>&1; }
port=$(<"$stage/port")
for address in 172.30.0.1 10.89.77.1; do
    inside curl -skS --max-time 3 "https://$address:$port/" && fail "the host's $address should not be reached"
done
for server in 172.30.0.1 10.89.77.1 "$(sed -n 's/^nameserver \([0-9.]*\)$/\1/p' /etc/resolv.conf | head -1)"; do
    timeout 8 podman run --rm --pull never --network gwcompose_inside localhost/workload nslookup api.github.com "$server" > "$stage/inside.log" 2>&1 &&
        fail "$server should answer no names"
done
inside curl -sS --max-time 10 --proxy http://172.30.0.2:8080 https://api.github.com/user && fail "no password, no answer"
holds "$stage/inside.log" 407

# What was handed over holds after a restart.
podman restart gwcompose_gateway_1 > /dev/null
podman start gwcompose_workload_1 > /dev/null
ended
podman stop -t 20 gwcompose_gateway_1 > /dev/null
[[ $(podman inspect gwcompose_gateway_1 --format '{{.State.ExitCode}}') == 0 ]] || fail "SIGTERM should end it in order"
echo "compose holds"
