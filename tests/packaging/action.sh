# packaging/action/action.yml: its steps as a runner takes them, by an ordinary user with variables like a runner's.
. "$(dirname "$0")/stage.sh"
mkdir temp work home
: > path
: > env
cp -r "$root/packaging" .
chown -R 12345:12345 temp work home path env
cat > runner.py <<'END'
"""Runs the steps of a composite action: inputs become variables, and what a step writes to $GITHUB_PATH is for the next ones."""
import os, re, subprocess, sys, yaml

stage, given = sys.argv[1], dict(word.split("=", 1) for word in sys.argv[2:])
with open(f"{stage}/packaging/action/action.yml") as file:
    action = yaml.safe_load(file)
inputs = {name: given.pop(name, about.get("default")) for name, about in action["inputs"].items()}
assert not given, given
for name, about in action["inputs"].items():
    assert inputs[name] is not None or not about["required"], f"no {name}"
filled = lambda text: re.sub(r"\$\{\{ inputs\.([a-z0-9-]+) \}\}", lambda found: inputs[found[1]], text)
runner = {"GITHUB_ACTION_PATH": f"{stage}/packaging/action", "GITHUB_PATH": f"{stage}/path", "GITHUB_ENV": f"{stage}/env",
          "RUNNER_TEMP": f"{stage}/temp", "GITHUB_WORKSPACE": f"{stage}/work", "CI": "true"}
for step in action["runs"]["steps"]:
    assert "${{" not in step["run"], "an input would be code"
    if "if" in step:
        name, = re.fullmatch(r"inputs\.([a-z0-9-]+) != ''", step["if"]).groups()
        if not inputs[name]:
            continue
    with open(f"{stage}/path") as file:
        path = [*file.read().split(), os.environ["PATH"]]
    variables = os.environ | runner | {"PATH": ":".join(path)} | {name: filled(value) for name, value in step["env"].items()}
    done = subprocess.run([step["shell"], "-eo", "pipefail", "-c", step["run"]], env=variables, cwd=f"{stage}/work")
    if done.returncode:
        sys.exit(done.returncode)
END
python=$(dirname "$COMPOSE")/python3
action() {
    env -i PATH="$PATH" HOME="$stage/home" GITHUB_TOKEN=$secret setpriv --reuid 12345 --regid 12345 --clear-groups \
        "$python" "$stage/runner.py" "$stage" "$@" > out.log 2> said.log
}
sum=$(sha256sum < "$shared" | cut -d' ' -f1)
other=$(sha256sum < /dev/null | cut -d' ' -f1)
cp "$shared" program
action "program=$stage/program" "sha256=$other" && fail "another sum is another program"
holds said.log "nothing was installed"
[[ ! -s path && ! -e temp/gateway/gateway ]] || fail "nothing should be there"
action "program=http://example.test/gateway" "sha256=$sum" && fail "clear text"
action "program=$stage/program" "sha256=$sum" || fail "install alone"
holds out.log "gateway "
: > path
# The script is not the shell's of the step, whatever stands in it.
script='echo "has $GITHUB_TOKEN"; echo "env ${GITHUB_ENV-none}"; echo kept > file
echo "'"'"'\"$(id -u)'
script+='"'
action "program=$stage/program" "sha256=$sum" "run=$script" $'options=--secret=GITHUB_TOKEN\n--allow=example.test\n' || fail "run"
holds out.log "has ghp_"
holds_not out.log "$secret"
holds out.log "env none"
holds work/file kept
action "program=$stage/program" "sha256=$sum" "run=exit 7" && fail "its exit code counts"
[[ $(tail -1 path) == "$stage/temp/gateway" ]] || fail "the next steps should find it"
echo "the action holds"
