#!/usr/bin/env python3
"""Everyday commands in `gateway exec`: everyday.py GATEWAY [--only=NAME]

Each runs as an ordinary user, with the flags that a reader of the README would write, before stand-ins of the registries that take
only the real token; and once more without the flags, where it must be told what would help: inside, or by the summary. That may take
the client a second longer than saying its version does, the best of three.
"""

import os, pwd, shutil, subprocess, sys, time
from pathlib import Path

import packages
from packages import TOKEN, WORD, Registries
from stand_ins import Desk

HOSTS = ["registry.npmjs.org", "pypi.org", "files.pythonhosted.org", "index.crates.io", "static.crates.io", "proxy.golang.org", "deb.debian.org",
         "registry-1.docker.io", "github.com", "api.github.com", "npm.corp.test", "pypi.corp.test", "crates.corp.test", "go.corp.test"]
CLIENTS = Path(os.environ["GATEWAY_CLIENTS"])
GO = os.path.dirname(os.path.realpath(shutil.which("go") or "/usr/local/go/bin/go"))
APT = "-o Dir::Etc::sourcelist=$PWD/sources -o Dir::Etc::sourceparts=- -o Dir::State=$PWD/state -o Dir::Cache=$PWD/cache"
UNSHARED = "unshare -r podman --root /tmp/store --runroot /tmp/run --storage-driver vfs"

# For each: the flags, the command in a shell, and what must be seen of it; what is run without flags, and what is told then; and how
# the client says its version. `None` where there is nothing to allow.
COMMANDS = {
    "npm": (["--preset", "npm"], "npm install --no-audit --no-fund @lab/hello && node -p 'require(\"@lab/hello\")'", WORD,
            "npm install --no-audit left-pad", "`gateway allow registry.npmjs.org`", "npm --version"),
    "pip": (["--preset", "pypi"],
            f"{CLIENTS}/venv/bin/pip install -q --target site labhello && PYTHONPATH=site python3 -c 'import labhello; print(labhello.WORD)'", WORD,
            f"{CLIENTS}/venv/bin/pip install labhello", "`gateway allow pypi.org` permits it", f"{CLIENTS}/venv/bin/pip --version"),
    "cargo": (["--preset", "crates"], f"{CLIENTS}/bin/cargo fetch && ls ~/.cargo/registry/src/*", "labhello-1.0.0",
              f"CARGO_NET_RETRY=0 {CLIENTS}/bin/cargo fetch", "`gateway allow index.crates.io`", f"{CLIENTS}/bin/cargo --version"),
    "go": (["--preset", "go"], "go mod download lab.test/hello@v1.0.0 && ls ~/go/pkg/mod/lab.test", "hello@v1.0.0",
           "go mod download lab.test/hello@v1.0.0", "`gateway allow proxy.golang.org`", "go version"),
    "apt": (["--allow", "deb.debian.org"], f"apt-get {APT} -qq update && apt-get {APT} -qq download labhello && ls *.deb", "labhello_1.0_all.deb",
            f"apt-get {APT} update", "`gateway allow deb.debian.org`", "apt-get --version"),
    "git-https": (["--secret", "GITHUB_TOKEN"], "git push -q https://github.com/octo/hello.git HEAD:refs/heads/https && echo pushed", "pushed",
                  "git ls-remote https://github.com/octo/hello.git", "`gateway allow github.com`", "git --version"),
    "git-read": (["--preset", "github:read"], "git clone -q https://github.com/octo/hello.git /tmp/copy && ls /tmp/copy && "
                 "! git push -q https://github.com/octo/hello.git HEAD:refs/heads/more && echo reads alone", "reads alone",
                 "git ls-remote https://github.com/octo/hello.git", "`gateway allow github.com`", "git --version"),
    "git-ssh": (["--secret", "GITHUB_TOKEN"], "git push -q git@github.com:octo/hello.git HEAD:refs/heads/ssh && echo pushed", "pushed",
                "git ls-remote git@github.com:octo/hello.git", "`gateway allow github.com`", "git --version"),
    "gh": (["--secret", "GITHUB_TOKEN"], "gh api user --jq .login", WORD, "GH_TOKEN=none gh api user", "`gateway allow api.github.com`", "gh --version"),
    "podman": (["--allow-userns", "--allow", "registry-1.docker.io"], f"{UNSHARED} pull -q docker.io/library/lab && {UNSHARED} images", "library/lab",
               "podman pull docker.io/library/lab", "--allow-userns", "podman --version"),
    "docker": (None, None, None, "docker pull alpine", "so its socket is not shown", "docker --version"),
}

# The same commands with what only reads, from nothing.
READING = {"npm": "npm:read", "pip": "pypi:read", "cargo": "crates:read"}
ANEW = "rm -rf node_modules package-lock.json site ~/.npm ~/.cache/pip ~/.cargo/registry; "

# Without a preset, and without what a run with it kept.
UNLISTED = ["--no-lend", "--profile", "none", "--fresh-home"]

# For each: a file of the user's that names a registry of their own, the preset, the command, and what must be seen of it. No public
# registry may be asked for anything.
MAPPED = {
    "npm-scope": (".npmrc", "@corp:registry=https://npm.corp.test/\n//npm.corp.test/:_authToken=npm_secret\n", "npm",
                  "npm view @corp/internal-lib name", "@corp/internal-lib"),
    "npm-scope-in-sh": (".npmrc", "@corp:registry=https://u:secret@npm.corp.test/\n", "npm",
                        "npm view @corp/internal-lib name; cat ~/.npmrc", "@corp/internal-lib"),
    "pip-index": (".config/pip/pip.conf", "[global]\nindex-url = https://u:secret@pypi.corp.test/simple\n", "pypi",
                  f"{CLIENTS}/venv/bin/pip download -q labhello && ls && printenv PIP_INDEX_URL", "labhello-1.0"),
    "cargo-source": (".cargo/config.toml", '[source.crates-io]\nreplace-with = "corp"\n[source.corp]\nregistry = "sparse+https://crates.corp.test/"\n', "crates",
                     f"{CLIENTS}/bin/cargo fetch && ls ~/.cargo/registry/src/*", "labhello-1.0.0"),
    "go-proxy": (".config/go/env", "GOPROXY=https://u:secret@go.corp.test\n", "go",
                 "go mod download lab.test/hello@v1.0.0 && ls ~/go/pkg/mod/lab.test", "hello@v1.0.0"),
}
CORP = {"pypi.org": "pypi.corp.test", "files.pythonhosted.org": "pypi.corp.test", "index.crates.io": "crates.corp.test",
        "static.crates.io": "crates.corp.test", "proxy.golang.org": "go.corp.test"}


def prepare(desk):
    public = {**packages.pip(), **packages.cargo(), **packages.go()}
    Registries.pages = {**packages.npm(), **packages.npm("npm.corp.test", "@corp/internal-lib"), **public, **packages.elsewhere(public, CORP),
                        **packages.apt(desk.folder), **packages.image()}
    Registries.repositories = str(desk.folder / "repositories")
    subprocess.run(["git", "init", "-q", "--bare", f"{Registries.repositories}/octo/hello.git"], check=True)
    desk.config.write_text(f'[sandbox]\nsee = ["{CLIENTS}"]\n\n' + desk.config.read_text())
    desk.write("home/project/Cargo.toml", '[package]\nname = "x"\nversion = "0.0.0"\nedition = "2021"\n[dependencies]\nlabhello = "1"\n')
    desk.write("home/project/src/lib.rs", "")
    desk.write("home/project/package.json", '{"private": true}\n')
    desk.write("home/project/sources", "deb [trusted=yes] https://deb.debian.org/lab ./\n")
    for folder in ("state/lists/partial", "cache/archives/partial"):
        (desk.project / folder).mkdir(parents=True)
    desk.own()
    made = "git init -q && git add . && git -c user.name=ann -c user.email=ann@lab.test commit -qm first"
    said, code = desk.run(["sh", "-c", made])
    assert code == 0, said


def run(desk, flags, script, variables=None):
    """One command by itself as a person types it, or in a shell if it needs one; what was said, and how long it took."""
    command = ["sh", "-c", script] if any(letter in script for letter in "&|$'=;") else script.split()
    began = time.monotonic()
    said, code = desk.run([desk.gateway, "exec", *flags, "--config", desk.config, "--", *command],
                          {"PATH": f"/usr/local/bin:/usr/bin:/bin:{CLIENTS}/bin:{GO}", "GONOSUMDB": "lab.test", "GOFLAGS": "-mod=mod", "PIP_DISABLE_PIP_VERSION_CHECK": "1", "npm_config_update_notifier": "false", **(variables or {})})
    if TOKEN in said:
        raise AssertionError("the real token was shown")
    return said, code, time.monotonic() - began


def works(desk, flags, script, seen):
    said, code, _ = run(desk, flags, script, {"GITHUB_TOKEN": TOKEN})
    return "" if code == 0 and seen in said else said


def is_mapped(desk, name, text, preset, script, seen):
    """Asks the user's own registry, no other, and without what their file has of a credential."""
    path = desk.write(f"home/{name}", text)
    desk.own()
    Registries.seen.clear()
    said, code, _ = run(desk, ["--preset", preset], script)
    path.unlink()
    public = [one for one in Registries.seen if not one.split("/")[0].endswith(".corp.test")]
    return "" if code == 0 and seen in said and not public and "secret" not in said else f"{said}\npublic: {public}"


def is_told(desk, script, told, version):
    least = lambda script: min(run(desk, UNLISTED, script)[2] for _ in range(3))
    said, code, _ = run(desk, UNLISTED, script)
    if code == 0 or told not in " ".join(said.split()):
        return said
    own = least(version)
    took = least(script) - own
    print(f"     {took:5.2f} s longer than its version: {script[:60]}", flush=True)
    # A second; on a machine that is held up, where its version takes long too, three times that. A single retry takes longer.
    return "" if took < max(1, 3 * own) else f"{said}\nit took {took:.2f} s more than its version does"


def main():
    only = [name.removeprefix("--only=") for name in sys.argv if name.startswith("--only=")]
    missing = [name for name in ("gh", "podman", "npm", "go", "apt-get", "dpkg-deb") if not shutil.which(name)]
    if missing:
        sys.exit(f"not installed: {', '.join(missing)}")
    failed = []
    with Desk(sys.argv[1], HOSTS, Registries, pwd.getpwnam("games").pw_uid) as desk:
        prepare(desk)
        for name, (flags, script, seen, refused, told, version) in COMMANDS.items():
            if only and name not in only:
                continue
            wrong = works(desk, flags, script, seen) if script else ""
            if not wrong and name in READING:
                wrong = works(desk, ["--preset", READING[name]], ANEW + script, seen)
            wrong = wrong or is_told(desk, refused, told, version)
            print(f"{'FAIL' if wrong else 'ok  '} {name}{chr(10) if wrong else ''}{wrong[-3000:]}", flush=True)
            failed += [name] * bool(wrong)
        for name, mapped in MAPPED.items():
            if only and name not in only:
                continue
            wrong = is_mapped(desk, *mapped)
            print(f"{'FAIL' if wrong else 'ok  '} {name}{chr(10) if wrong else ''}{wrong[-3000:]}", flush=True)
            failed += [name] * bool(wrong)
    sys.exit(1 if failed else 0)


main()
