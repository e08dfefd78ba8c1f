# examples/container/pod.yaml and workload.yaml by `podman kube play`, as their README says.
. "$(dirname "$0")/stage.sh"
images
origin 0.0.0.0 api.github.com
inner=gwpod-inside outer=gwpod-outside
undo+=("podman network rm -f $inner $outer")
podman network create --internal --disable-dns --subnet 172.30.1.0/24 $inner > /dev/null
podman network create --subnet 10.89.78.0/24 $outer > /dev/null
undo+=("podman secret rm gateway-secrets" "podman volume rm -f gateway-kept gateway-handed-over")
# Podman before 4.4 takes the data of a Secret alone.
printf '{"GITHUB_TOKEN": "%s", "PROXY_PASSWORD": "%s"}' "$(printf %s "$secret" | base64 -w0)" \
    "$(printf correct-horse-battery | base64 -w0)" | podman secret create gateway-secrets - > /dev/null
# What a test adds: where the origin is, with its certificate beside the settings; and the workload's image.
export settings="$(at api.github.com 10.89.78.1 /etc/gateway/origins.pem)"
python3 - "$root/examples/container" > play.log <<'END'
import os, pathlib, sys
folder = pathlib.Path(sys.argv[1])
indented = lambda text: "".join(f"    {line}\n" for line in text.splitlines())
pod = (folder / "pod.yaml").read_text()
added = indented(os.environ["settings"]) + "  origins.pem: |\n" + indented(pathlib.Path("origins.pem").read_text())
before = "  policy.cedar: |\n"
assert pod.count(before) == 1
pathlib.Path("pod.yaml").write_text(pod.replace(before, added + before))
workload = (folder / "workload.yaml").read_text()
pathlib.Path("workload.yaml").write_text(workload.replace("docker.io/curlimages/curl", "localhost/workload"))
END
play() { podman kube play "$@" >> play.log 2>&1 || fail "kube play $*"; }
undo+=("podman kube down workload.yaml" "podman kube down pod.yaml")
play --network $inner:ip=172.30.1.2 --network $outer pod.yaml
play --network $inner workload.yaml
[[ $(podman wait workload-workload) == 0 ]] ||
    fail "the workload: $(podman logs workload-workload 2>&1) $(podman logs gateway-gateway 2>&1)"
podman logs workload-workload > answered.log 2>&1
holds seen.log "[authorization: Bearer $secret]"
holds_not answered.log "$secret"
holds answered.log "Bearer ghp_"
[[ $(podman top gateway-gateway huser | tail -1) == 65532 ]] || fail "the gateway should not be root"
podman run --rm --pull never --network $inner localhost/workload curl -skS --max-time 3 "https://10.89.78.1:$(<port)/" > inside.log 2>&1 &&
    fail "there should be no other way"
echo "the pod holds"
