#!/usr/bin/env python3
"""Logins through the shipped program, as an ordinary user: rows.py GATEWAY CLIENTS [ROW…]

Prints a line for each thing shown, and the figures. GATEWAY_LOGINS=full runs as long as the promise says.
"""

import base64, gzip, io, json, os, pwd, random, re, shutil, signal, statistics, subprocess, sys, tarfile, threading, time
from pathlib import Path

import server
import programs
from server import CLAUDE, CODEX, Issuer, handler
from stand_ins import Desk
from ways import free_port

FULL = os.environ.get("GATEWAY_LOGINS") == "full"
HERE = Path(__file__).resolve().parent
ENDPOINT = "platform.claude.com/v1/oauth/token"
FILE = ".claude/.credentials.json"
AGAIN = r"\blogs? in\b|auth login|gateway login "
PROFILE = ["--profile", "claude"]
PAST = 1_500_000_000_000
STRANGER = ["--allow", "auth.stranger.test", "--allow", "api.stranger.test", "--allow", "auth.evil.test"]


class Lab(Desk):
    """A user with two projects, before an issuer and the services that take its tokens."""

    def __init__(self, row, gateway, life=5.0, extra=None, hosts=()):
        self.issuer, self.row, self.failed, self.others = Issuer(life), row, [], {}
        super().__init__(gateway, [*server.HOSTS, *hosts], handler(self.issuer, extra), pwd.getpwnam("games").pw_uid)
        self.port = re.search(r'127\.0\.0\.1:(\d+)', self.config.read_text())[1]
        self.config.unlink()
        # The user's own file: it holds for all that the user runs, and for the gateway's own requests.
        self.write("home/.config/gateway/config.toml", f'[[origin]]\nmatch = "*"\nroots = ["{self.folder}/ca.pem"]\n'
                   f'via = "http://127.0.0.1:{server.proxy(self.port, self.others)}"\n')
        for project in ("project", "two"):
            shutil.copy(HERE / "client.py", self.write(f"home/{project}/client.py", ""))
        self.own()

    def log_in(self, **more):
        """The program has logged in, outside."""
        pair = self.issuer.grant(ENDPOINT, client=CLAUDE, **more)
        file = {"claudeAiOauth": {"accessToken": pair["access_token"], "refreshToken": pair["refresh_token"], "expiresAt": self.ends(),
                                  "scopes": server.SCOPES, "subscriptionType": "max", "rateLimitTier": "default"},
                "mcpOAuth": {"s|1": {"serverUrl": "https://mcp.lab.test", "accessToken": self.issuer.draw("mcp-")}}}
        self.put(FILE, json.dumps(file))
        return pair

    def ends(self):
        return int((time.time() + self.issuer.life) * 1000)

    def put(self, name, text):
        self.write(f"home/{name}", text).chmod(0o600)
        self.own()

    def outside(self):
        return json.loads((self.home / FILE).read_text())["claudeAiOauth"]

    def line(self, client, flags=PROFILE, project="project", variables=None):
        """The command line of a program in the sandbox."""
        words = ["python3", "client.py", *client] if isinstance(client, list) else ["sh", "-c", client]
        command = self.command([self.gateway, "exec", "-v", *flags, "--", *words], variables)
        return [str(self.home / project) if word == str(self.project) else word for word in command]

    def start(self, client, stdin=subprocess.DEVNULL, **more):
        return subprocess.Popen(self.line(client, **more), stdin=stdin, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def does(self, client, limit=120, **more):
        """What a program in the sandbox said in JSON, if it did, and all that was said; nothing real is in it."""
        done = self.start(client, **more)
        said, told = done.communicate(timeout=limit)
        self.nothing_real("what a command says", said + told)
        return answer(said), said + told

    def run_(self, line, limit=120):
        done = subprocess.run(line, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", timeout=limit)
        return done.stdout, done.returncode

    def gateway_(self, *words):
        said, code = self.run([self.gateway, *words])
        self.nothing_real(f"gateway {words[0]}", said)
        return said, code

    def nothing_real(self, where, text):
        if found := self.issuer.real(text):
            self.judge(f"no real token in {where}", f"{found} in {str(text)[:600]}")

    def judge(self, what, wrong=""):
        print(f"ok   {self.row}: {what}" if wrong == "" else f"FAIL {self.row}: {what}\n{str(wrong)[-2500:]}", flush=True)
        self.failed += [what] * (wrong != "")

    def figure(self, text):
        print(f"     {self.row}: {text}", flush=True)

    def served(self, since=0):
        """How often a service took a real token since a moment."""
        return sum(good for when, _, _, good in self.issuer.seen if when >= since)


def answer(said):
    lines = [line for line in said.splitlines() if line.startswith("{")]
    try:
        return json.loads(lines[-1])
    except (IndexError, ValueError):
        return {}


def tree(pid):
    """A process and all below it."""
    try:
        children = [int(one) for task in os.listdir(f"/proc/{pid}/task") for one in Path(f"/proc/{pid}/task/{task}/children").read_text().split()]
    except OSError:
        return []
    return [pid, *(one for child in children for one in tree(child))]


def memory(pid):
    """All readable memory of a process, its environment and its command line."""
    pieces = []
    with open(f"/proc/{pid}/maps") as maps, open(f"/proc/{pid}/mem", "rb", 0) as mem:
        for line in maps:
            low, high = (int(one, 16) for one in line.split()[0].split("-"))
            if "r" in line.split()[1] and "[v" not in line:
                try:
                    mem.seek(low)
                    pieces.append(mem.read(high - low) or b"")
                except (OSError, ValueError, OverflowError):
                    pass
    return b"".join(pieces) + Path(f"/proc/{pid}/environ").read_bytes() + Path(f"/proc/{pid}/cmdline").read_bytes()


def inside(pid):
    """The processes of a sandbox: those that are not the gateway itself."""
    def program(one):
        try:
            return os.path.basename(os.readlink(f"/proc/{one}/exe"))
        except OSError:
            return "gateway"
    return [one for one in tree(pid) if not program(one).startswith("gateway")]


def canaries(lab, processes, told=""):
    """Looks for real tokens in all that a workload could reach, and in all that the gateway leaves."""
    size, looked, phantoms = 0, 0, 0
    held = [json.loads(path.read_text())["claudeAiOauth"]["accessToken"].encode() for path in lab.home.glob(f".local/state/gateway/projects/*/home/{FILE}")]
    for process in processes:
        for one in inside(process.pid):
            try:
                content = memory(one)
            except OSError:
                continue
            size, looked = size + len(content), looked + 1
            phantoms += any(one in content for one in held)
            lab.nothing_real(f"the memory of {one}", content)
    files = 0
    for folder, _, names in os.walk(lab.home):
        for name in names:
            path = Path(folder) / name
            if path != lab.home / FILE and path.is_file() and not path.is_symlink():
                files += 1
                if found := lab.issuer.real(path.read_bytes()):
                    lab.judge(f"no real token in {path}", found)
    lab.nothing_real("logs", told)
    lab.figure(f"canaries: {looked} processes, {size >> 20} MiB of memory, {files} files, {len(lab.issuer.issued)} tokens looked for; "
               f"phantoms found in {phantoms}")
    # The search finds what is there.
    return phantoms


def crowd(gateway, clients):
    """Twenty commands at once, and the program itself outside beside them."""
    seconds = 600 if FULL else 30
    with Lab("crowd", gateway) as lab:
        lab.log_in()
        began = time.time()
        beside = subprocess.Popen(lab.command(["python3", "client.py", "outside", str(seconds + 15), lab.port, str(lab.folder / "ca.pem")]),
                                  stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
        running = [lab.start(["use", str(seconds)], project=("project", "two")[n % 2]) for n in range(20)]
        time.sleep(seconds * 0.6)
        lab.judge("no real token in the sandboxes", "" if canaries(lab, running[:4]) else "no sandbox was found")
        answers = [(answer(said), said + told) for said, told in (one.communicate(timeout=seconds + 120) for one in running)]
        took = time.time() - began
        out = answer(beside.communicate(timeout=60)[0])
        for got, said in answers:
            lab.nothing_real("what a command says", said)
        calls, failures = sum(got.get("calls", 0) for got, _ in answers), sum(got.get("failures", 1) for got, _ in answers)
        failed = [line for got, said in answers for line in got.get("failed", [said[-700:]])]
        lab.figure(f"20 exec, {took:.0f} s, tokens of 5 s: {calls} calls, {sum(got.get('renewals', 0) for got, _ in answers)} renewals of the programs answered, "
                   f"{failures} failures; at the issuer {len(lab.issuer.renewals)} renewals, of which {out.get('renewals')} by the program outside "
                   f"({out.get('calls')} calls, {out.get('failures')} failures, waited {out.get('waited')} times); used tokens: {len(lab.issuer.reused)}")
        lab.judge("no call failed", "\n".join(failed[:5]) or "too few" if failures or calls < 20 * seconds else "")
        lab.judge("the program outside failed in nothing", "" if out.get("failures") == 0 else out or "it said nothing")
        lab.judge("no used refresh token reached the issuer, and the family lives", lab.issuer.reused or lab.issuer.dead or "")
        most = (took + 15) / (lab.issuer.life - 1.3) + 3
        lab.judge("one renewal each time", "" if seconds / 6 < len(lab.issuer.renewals) <= most else f"{len(lab.issuer.renewals)}, at most {most:.0f}")
        lab.judge("the file is the user's, and has what it had", "" if lab.issuer.is_current(lab.outside()["refreshToken"])
                  and lab.outside()["subscriptionType"] == "max" and "mcpOAuth" in (lab.home / FILE).read_text() else (lab.home / FILE).read_text())
    return lab.failed


def by_file(gateway, clients):
    """What stands inside, in two runs and two projects; what ends a login and what is told then."""
    with Lab("file", gateway) as lab:
        pair = lab.log_in()
        seen = []
        for project in ("project", "project", "two"):
            got, said = lab.does(["show"], project=project)
            file = (got.get("file") or {}).get("claudeAiOauth", {})
            wrong = "" if got.get("api") == 200 and got.get("mode") == "0o600" and file.get("subscriptionType") == "max" else said
            lab.judge(f"logged in by the file alone, in {project}", wrong or ("" if "mcpOAuth" not in got["file"] else "tokens of MCP servers"))
            lab.judge("it ends for no program", "" if file.get("expiresAt", 0) > 4e12 else file)
            seen.append((file.get("accessToken"), file.get("refreshToken")))
        lab.judge("the second run has the same phantoms, another project others", "" if seen[0] == seen[1] != seen[2] and None not in seen[0] else seen)
        lab.judge("the summary says so, without advice of setup-token", "" if re.search(r"login\s+claude", said) and "setup-token" not in said else said)
        got, said = lab.does(["refresh"])
        text = json.loads(got.get("text") or "{}")
        wrong = "" if got.get("status") == 200 and text.get("access_token") == seen[0][0] and text.get("refresh_token") == seen[0][1] else said
        lab.judge("a program's own renewal is answered with its phantoms", wrong or ("" if text.get("expires_in", 0) > 600 else text))
        got, said = lab.does(["use", "7"], variables={"RUST_LOG": "trace"})
        lab.judge(f"logs at their most talkative ({len(said) >> 10} KiB) hold no token", "" if got.get("failures") == 0 else said)
        # Those that the gateway of the run has had: from the one in the file on.
        lab.issuer.first_shown = len(lab.issuer.access) - 1
        got, said = lab.does(["present", "https://api.anthropic.com/echo", seen[0][0]])
        lab.judge("a service that shows the token, and former ones, shows none inside", "" if got.get("status") == 200 and "seen" in got["text"] else said)
        # One whose end the file tells too early is replaced before it is lent, and the service takes and shows it still.
        lab.log_in()
        lab.issuer.first_shown = len(lab.issuer.access) - 1
        lab.put(FILE, (lab.home / FILE).read_text().replace(str(lab.outside()["expiresAt"]), str(PAST)))
        got, said = lab.does(["present", "https://api.anthropic.com/echo", seen[0][0]])
        lab.judge("the token that a start replaced is not shown either",
                  "" if got.get("status") == 200 and "seen" in got["text"] and len(lab.issuer.access) > lab.issuer.first_shown + 1 else said)
        lab.issuer.dead.update(family for family, _ in lab.issuer.access.values())
        lab.put(FILE, (lab.home / FILE).read_text().replace(str(lab.outside()["expiresAt"]), str(PAST)))
        got, said = lab.does(["show"])
        lab.judge("a login that the issuer ended is told at the next start, with what logs in again",
                  "" if re.search(AGAIN, said) and got.get("api") != 200 else said)
        wrong_files = {"cut off": '{"claudeAiOauth": {"accessToken": "sk', "of another form": '{"claudeAiOauth": {"accessToken": 5}}'}
        for what, text in wrong_files.items():
            lab.put(FILE, text)
            _, said = lab.does(["show"])
            lab.judge(f"a file {what} is told with its place", "" if FILE in said.replace("\n", "") and '"api": 200' not in said else said)
        lab.log_in()
        (lab.home / FILE).chmod(0o666)
        _, said = lab.does(["show"])
        lab.judge("a file that others may write is told", "" if FILE in said.replace("\n", "") and '"api": 200' not in said else said)
    return lab.failed


def captured(gateway, clients):
    """A login inside: phantoms alone; it is the session's until a person keeps it."""
    authorize, endpoint = "https://claude.ai/oauth/authorize", f"https://{ENDPOINT}"
    with Lab("captured", gateway, life=30) as lab:
        got, said = lab.does(["login", authorize, endpoint, "https://api.anthropic.com/api/oauth/profile", CLAUDE, "", "", "wrong"])
        lab.judge("a wrong verifier is refused by the issuer", "" if got.get("status") == 400 and "invalid_grant" in got.get("text", "") else said)
        logs_in = ["login", authorize, endpoint, "https://api.anthropic.com/api/oauth/profile", CLAUDE, "", "", "", "write"]
        got, said = lab.does(logs_in)
        tokens = got.get("tokens", {})
        lab.judge("code with PKCE inside gives phantoms, which the service takes", "" if got.get("api") == 200 and tokens.get("refresh_token") and lab.served() else said)
        lab.judge("the end names how it is kept", "" if "gateway login keep" in said else said)
        for project in ("project", "two"):
            before = lab.served()
            got, said = lab.does(["present", "https://api.anthropic.com/x", tokens.get("access_token", "-")], project=project)
            lab.judge(f"not logged in in the next run of {project}", said if got.get("status") == 200 or lab.served() > before else "")
        said, code = lab.gateway_("login", "list")
        lab.judge("`gateway login list` lists it with its account", "" if code == 0 and "claude" in said and "ann@lab.test" in said else said)
        said, code = lab.gateway_("login", "keep", "claude")
        lab.judge("`gateway login keep`", "" if code == 0 else said)
        for project in ("project", "two"):
            got, said = lab.does(["show"], project=project)
            lab.judge(f"logged in in the next run of {project}", "" if got.get("api") == 200 else said)
        said, code = lab.gateway_("login", "forget", "claude")
        lab.judge("`gateway login forget` tells the issuer", "" if code == 0 and lab.issuer.revoked else f"{said} {lab.issuer.revoked}")
        got, said = lab.does(["show"])
        lab.judge("and then nothing is logged in", said if got.get("api") == 200 else "")
        canaries(lab, [])
        stranger(lab)
    return lab.failed


def stranger(lab):
    """Endpoints that no preset knows."""
    words = ["login", "https://auth.stranger.test/authorize", "https://auth.stranger.test/token"]
    got, said = lab.does([*words, "https://api.stranger.test/x", "own", "form", "resource=https://api.stranger.test"], flags=STRANGER)
    lab.judge("an unknown issuer: bound to the resource", "" if got.get("api") == 200 else said)
    got, said = lab.does([*words, "https://auth.stranger.test/x", "own", "form"], flags=STRANGER)
    lab.judge("without a resource: for the endpoint's host, if that gets it first", "" if got.get("api") == 200 else said)
    got, said = lab.does([*words, "https://api.stranger.test/x", "own", "form"], flags=STRANGER)
    lab.judge("or for another allowed host", "" if got.get("api") == 200 else said)
    got, said = lab.does([*words, "https://auth.evil.test/x", "own", "form"], flags=STRANGER[:4])
    lab.judge("and for none that policy does not allow", "" if got.get("api") not in (None, 200) else said)
    got, said = lab.does([*words, "https://api.stranger.test/x", "own", "form", "resource=https://api.stranger.test"], flags=STRANGER[:2])
    lab.judge("a resource that policy does not allow is refused", "" if got.get("status") != 200 else said)
    granting = threading.Thread(target=grant_devices, args=(lab,), daemon=True)
    granting.start()
    got, said = lab.does(["device", "https://github.com/login/device/code", "https://github.com/login/oauth/access_token",
                          "https://api.github.com/user", "178c6fc778ccc68e1d6a"], flags=["--preset", "github", "--profile", "none"])
    lab.judge("device flow at a known issuer", "" if got.get("api") == 200 else said)


def grant_devices(lab, seconds=30):
    end = time.time() + seconds
    while time.time() < end:
        time.sleep(0.7)
        for device in list(lab.issuer.devices):
            lab.issuer.devices[device] = "granted"


def killed(gateway, clients):
    """kill -9 of the gateway at random moments of renewals."""
    rounds, lost, windows, untold, torn = (200 if FULL else 12), [], [], [], []
    with Lab("killed", gateway, life=2) as lab:
        arrived, came_at = threading.Event(), [0]

        def arrive():
            came_at[0] = time.time()
            arrived.set()

        lab.issuer.before_answer = arrive
        lab.log_in()
        for n in range(rounds):
            arrived.clear()
            running = lab.start(["use", "30", "0.05", "100"])
            if not arrived.wait(20):
                lab.judge("a renewal comes", running.communicate()[1] if running.poll() is not None else "none within 20 s")
                kill(running)
                break
            time.sleep(random.uniform(0, 0.1) if n % 2 else random.uniform(0, 1.5))
            kill(running)
            after = 1000 * (time.time() - came_at[0])
            try:
                mine = lab.outside()
            except ValueError as error:
                torn.append(error)
                lab.log_in()
                continue
            if came := lab.issuer.answered.get(mine["refreshToken"]):
                windows.append((lab.home / FILE).stat().st_ctime_ns / 1e9 - came)
            if not lab.issuer.is_current(mine["refreshToken"]):
                lost.append(after)
                # The file as it will be found once its access token has ended.
                lab.put(FILE, (lab.home / FILE).read_text().replace(str(mine["expiresAt"]), str(PAST)))
                got, said = lab.does(["show"])
                untold += [said] * (not re.search(AGAIN, said) or got.get("api") == 200)
                lab.log_in()
        windows = [max(0, 1000 * one) for one in windows] or [-1]
        lab.figure(f"{rounds} kills: lost {len(lost)} times, when it came at most {max(lost, default=0):.0f} ms after the issuer was asked; between the issuer's answer and our durable write "
                   f"{statistics.median(windows):.1f} ms (median), {max(windows):.1f} ms (most), of {len(windows)} measured")
        lab.judge("the file is never cut off", torn or "")
        lab.judge("a lost login is told at the next start, with what logs in again", "\n".join(untold[:2]))
        lab.judge("lost only in that window", "" if max(lost, default=0) <= 2 * max(windows) + 100 else lost)
    return lab.failed


def unkept(gateway, clients):
    """A login's file that is a mount, or cannot be written: what the issuer gives is kept, or it is not asked."""
    os.unshare(os.CLONE_NEWNS)
    subprocess.run(["mount", "--make-rprivate", "/"], check=True)
    mount = lambda *words: subprocess.run(["mount", *map(str, words)], check=True)
    with Lab("unkept", gateway, life=2) as lab:
        file = lab.home / FILE

        def round_(what, renews=True, seconds="7"):
            asked = len(lab.issuer.renewals)
            got, said = lab.does(["use", seconds, "0.2", "100"])
            mine, asked = lab.outside()["refreshToken"], len(lab.issuer.renewals) - asked
            lab.judge(f"{what}: no refresh token is lost ({asked} renewals)", "" if lab.issuer.is_current(mine) and not lab.issuer.reused else said)
            lab.judge(f"{what}: {'renewed' if renews else 'the issuer is not asked, and it is told why'}",
                      "" if (asked > 1 and got.get("failures") == 0 if renews else asked == 0 and "could not be kept" in said) else said)

        lab.log_in()
        mount("--bind", file, file)
        round_("a mount of its own")
        text = lab.outside()
        lab.judge("the file has what it had", "" if text["subscriptionType"] == "max" and "mcpOAuth" in file.read_text() else text)
        lab.log_in()
        mount("-o", "remount,bind,ro", file)
        round_("a read-only mount", renews=False)
        subprocess.run(["umount", file], check=True)
        # The folder: full, then read-only after the issuer was asked.
        folder = file.parent
        mount("-t", "tmpfs", "-o", "size=64k,mode=700", "none", folder)
        lab.log_in()
        (folder / "ballast").write_bytes(b"x" * (54 << 10))
        lab.own()
        round_("a full disk", renews=False)
        (folder / "ballast").unlink()
        lab.log_in()
        turns = iter([lambda: mount("-o", "remount,ro", folder)])
        lab.issuer.before_answer = lambda: next(turns, lambda: None)()
        threading.Timer(7, lambda: mount("-o", "remount,rw", folder)).start()
        round_("a folder that turns read-only once the issuer was asked", seconds="12")
        subprocess.run(["umount", folder], check=True)
        # The files of other tools.
        for name, (client, endpoint, at, form) in TOOLS.items():
            file, asked = lab.home / at, len(lab.issuer.renewals)
            lab.put(at, form({**lab.issuer.grant(endpoint, client=client), "expires_in": -5}))
            mount("--bind", file, file)
            mount("-o", "remount,bind,ro", file)
            _, said = lab.does("true", flags=["--login", name])
            lab.judge(f"{name}: a read-only mount: the issuer is not asked, and it is told why",
                      "" if len(lab.issuer.renewals) == asked and "could not be kept" in said else said)
            mount("-o", "remount,bind,rw", file)
            _, said = lab.does("true", flags=["--login", name])
            kept = [token for token in lab.issuer.refresh if token in file.read_text()]
            lab.judge(f"{name}: a mount of its own: the new refresh token is in the file",
                      "" if len(lab.issuer.renewals) > asked and kept and lab.issuer.is_current(kept[-1]) and not lab.issuer.reused else said)
            subprocess.run(["umount", file], check=True)
    return lab.failed


def codex_over(pair):
    """The access token says its end itself."""
    head, who, rest = pair["access_token"].split(".")
    who = json.loads(base64.urlsafe_b64decode(who + "=="))
    over = f"{head}.{server.b64({**who, 'exp': int(time.time()) - 5})}.{rest}"
    return programs.codex_file({**pair, "access_token": over})


# The logins of tools besides Claude Code that have a file and an issuer: client, endpoint, file, and what stands there.
TOOLS = {
    "codex": (CODEX, "auth.openai.com/oauth/token", ".codex/auth.json", codex_over),
    "gemini-cli": (None, "oauth2.googleapis.com/token", ".gemini/oauth_creds.json", programs.gemini_file),
    "opencode-openai": (CODEX, "auth.openai.com/oauth/token", ".local/share/opencode/auth.json", lambda pair: json.dumps(
        {"openai": {"type": "oauth", "access": pair["access_token"], "refresh": pair["refresh_token"], "expires": PAST, "accountId": "account-1"}})),
    "gcloud-adc": (None, "oauth2.googleapis.com/token", ".config/gcloud/application_default_credentials.json", lambda pair: json.dumps(
        {"type": "authorized_user", "client_id": "own", "client_secret": "own", "refresh_token": pair["refresh_token"]})),
}


def kill(running):
    own = inside(running.pid)
    for one in tree(running.pid):
        if one not in own:
            try:
                os.kill(one, signal.SIGKILL)
            except ProcessLookupError:
                pass
    running.wait()
    running.stdout.close()
    running.stderr.close()


def formed(lab, tokens, kind):
    """What the attack's token endpoint answers."""
    plain = json.dumps(tokens)
    doubled = plain[:-1] + f', "access_token": "{tokens["access_token"]}"}}'
    second = f"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {len(plain)}\r\n\r\n{plain}"
    return {
        "chunked": (200, tokens, {"transfer-encoding": "chunked"}),
        "compressed": (200, gzip.compress(plain.encode()), {"content-encoding": "gzip"}),
        "large": (200, {**tokens, "pad": "x" * 65536}),
        "doubled": (200, doubled.encode()),
        "nested": (200, {"data": tokens}),
        "nested beside": (200, {**tokens, "more": [{"refresh_token": tokens["refresh_token"]}]}),
        "escaped": (200, plain.replace("access_token", "access\\u005ftoken").encode()),
        "of no type": (200, plain.encode(), {"content-type": "text/plain"}),
        "twice": (200, tokens, {"x-second": second}),
        "cut": (200, plain[:-9].encode()),
        "a form": (200, server.urllib.parse.urlencode({**tokens}).encode(), {"content-type": "application/x-www-form-urlencoded"}),
        "a marked json": (200, b"\xef\xbb\xbf" + plain.encode()),
    }[kind]


MAPPED = {"chunked": True, "compressed": True, "nested": True, "nested beside": True, "a form": True, "twice": None, "escaped": None, "of no type": None}
KINDS = ["chunked", "compressed", "large", "doubled", "nested", "nested beside", "escaped", "of no type", "twice", "cut", "a form", "a marked json"]


def attacks(gateway, clients):
    """What a workload, or an issuer, might try."""
    def extra(request, place, content):
        kind = place.partition("/variant/")[2].replace("-", " ")
        return formed(lab, request.issuer.grant("auth.stranger.test/token"), kind) if kind else None

    with Lab("attacks", gateway, life=30, extra=extra) as lab:
        for kind in KINDS:
            url = "https://auth.stranger.test/variant/" + kind.replace(" ", "-")
            got, said = lab.does(["post", url, "grant_type=client_credentials&client_id=a"], flags=STRANGER)
            wanted, status = MAPPED.get(kind, False), got.get("status")
            wrong = wanted is True and status != 200 or wanted is False and "unmapped_token" not in said
            lab.judge(f"an answer that is {kind}: {'phantoms' if status == 200 else 'refused'}", said if wrong else "")
        lab.log_in()
        mine = lab.does(["show"])[0].get("file", {}).get("claudeAiOauth", {})
        other = lab.does(["show"], project="two")[0].get("file", {}).get("claudeAiOauth", {})
        tries = {
            "another project's access phantom": ["present", "https://api.anthropic.com/x", other.get("accessToken", "")],
            "an access phantom at another host": ["present", "https://platform.claude.com/x", mine.get("accessToken", "")],
            "a refresh phantom as an access token": ["present", "https://api.anthropic.com/x", mine.get("refreshToken", "")],
            "another project's refresh phantom": ["refresh", f"https://{ENDPOINT}", CLAUDE, other.get("refreshToken", "")],
            "a refresh phantom for another client": ["refresh", f"https://{ENDPOINT}", "another", mine.get("refreshToken", "")],
            "a refresh phantom at another endpoint": ["refresh", "https://auth.evil.test/token", CLAUDE, mine.get("refreshToken", ""), "form"],
            "a refresh phantom at another path": ["refresh", "https://platform.claude.com/v1/oauth/other", CLAUDE, mine.get("refreshToken", "")],
            "an id of a client in content beside": ["post", f"https://{ENDPOINT}", f"grant_type=refresh_token&refresh_token={mine.get('refreshToken')}"
                                                    "&client_id=another", "form"],
        }
        for what, words in tries.items():
            before, renewed = lab.served(), len(lab.issuer.renewals)
            got, said = lab.does(words, flags=PROFILE + STRANGER)
            wrong = got.get("status") in (None, 200) or lab.served() > before or len(lab.issuer.renewals) > renewed
            lab.judge(f"{what}: {got.get('status')}", said if wrong else "")
        evil = [authorization for _, place, authorization, _ in lab.issuer.seen if not place.startswith("api.") and lab.issuer.real(authorization)]
        lab.judge("no other server saw a real token", evil or "")
        files(lab, mine)
    return lab.failed


def files(lab, mine):
    """A forged file inside, a link in its place, and a login to a stranger's account."""
    before = (lab.home / FILE).read_text()
    forged = json.dumps({"claudeAiOauth": {"accessToken": "sk-ant-oat01-forged", "refreshToken": "sk-ant-ort01-forged", "expiresAt": 1}})
    lab.does(f"echo '{forged}' > ~/.claude/.credentials.json")
    got, said = lab.does(["show"])
    lab.judge("a forged file is gone in the next run", "" if got.get("api") == 200 and got["file"]["claudeAiOauth"] == mine else said)
    victim = lab.write("home/victim", "untouched")
    lab.own()
    for what, script in {"a link": f"ln -sfn {victim} ~/.claude/.credentials.json", "a folder": "rm -f ~/.claude/.credentials.json; mkdir -p ~/.claude/.credentials.json",
                         "a link in place of the folder": f"rm -rf ~/.claude/* ~/.claude/.[a-z]*; mv ~/.claude ~/.c2; ln -s {lab.home} ~/.claude"}.items():
        lab.does(script)
        got, said = lab.does(["show"])
        lab.judge(f"{what} in the file's place: the next run has its file", "" if got.get("api") == 200 and victim.read_text() == "untouched" else said)
    now = json.loads((lab.home / FILE).read_text())
    lab.judge("nothing inside changed the user's file", "" if now.keys() == json.loads(before).keys() and lab.issuer.is_current(lab.outside()["refreshToken"]) else now)
    before = lab.outside()
    got, said = lab.does(["login", "https://claude.ai/oauth/authorize", f"https://{ENDPOINT}", "https://api.anthropic.com/x", CLAUDE, "", "", "", "write"])
    lab.judge("a login to another account inside holds there", "" if got.get("api") == 200 else said)
    lab.judge("and leaves the user's own file", "" if lab.outside()["refreshToken"] == before["refreshToken"] else "it was changed")
    family = lab.issuer.access[before["accessToken"]][0]
    for project in ("project", "two"):
        since = time.time()
        got, said = lab.does(["show"], project=project)
        used = {lab.issuer.access[authorization[7:]][0] for when, _, authorization, good in lab.issuer.seen if when >= since and good}
        lab.judge(f"the next run of {project} is the user's own account", "" if used == {family} else f"{used} {family} {said}")


def oidc(gateway, clients):
    """A real authorization server: four grants, rotation by the gateway, and what it does when a used token comes."""
    with Lab("oidc", gateway, hosts=["oidc.test"]) as lab:
        port = lab.others["oidc.test"] = free_port()
        pair, packages = [str(lab.folder / name) for name in ("key.pem", "leaf.pem")], clients / "oidc/node_modules"
        node = subprocess.Popen(["node", HERE / "oidc.mjs", str(port), "https://oidc.test", *pair, packages], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        told = []
        threading.Thread(target=lambda: told.extend(line for line in node.stdout), daemon=True).start()
        wait(lambda: "ready\n" in told)
        events = lambda: [json.loads(line) for line in list(told) if line.startswith("{")]
        tokens = lambda name: [one["token"] for one in events() if one["name"] == name]
        running = lab.start(["oidc", "https://oidc.test", "12"], stdin=subprocess.PIPE, flags=["--allow", "oidc.test"])
        said = running.stdout.readline()
        renewals = [one for one in events() if one["name"] == "grant.success" and one["kind"] == "refresh_token"]
        if said == "ready\n":
            # A used one of the code's family (the first is of the device), from somebody else: the server ends the family.
            client = subprocess.run(["curl", "-sk", "--resolve", f"oidc.test:{port}:127.0.0.1", f"https://oidc.test:{port}/token", "-d",
                                     f"grant_type=refresh_token&client_id=app&refresh_token={tokens('refresh_token.saved')[1]}"], capture_output=True, text=True)
            lab.judge("a used refresh token is refused by the server", "" if "invalid_grant" in client.stdout else client.stdout)
        out, err = running.communicate("\n", timeout=60)
        node.kill()
        got, all = answer(said + out), said + out + err
        every = [token for name in ("access_token.saved", "client_credentials.saved", "refresh_token.saved") for token in tokens(name)]
        lab.judge("the client has no real token", [token for token in every if token in all] or ("" if len(every) > 4 else f"{every} {told[:5]}"))
        calls = got.get("calls", [])
        lab.figure(f"{len(calls)} calls in 12 s with tokens of 5 s, {len(renewals)} renewals by the gateway, {len(every)} tokens issued")
        lab.judge("code with PKCE, and calls over renewals", "" if calls and set(calls) == {200} and len(renewals) >= 2 else f"{calls} {len(renewals)} {all}")
        lab.judge("its own renewal", "" if got.get("refresh") == 200 and got["renewed"]["refresh_token"] == got["tokens"]["refresh_token"] else all)
        lab.judge("client credentials", "" if got.get("machine") == 200 else all)
        lab.judge("device flow", "" if got.get("device") == 200 == got.get("device_api") else all)
        lab.judge("after the family ended, it is told", "" if got.get("after") not in (None, 200) else all)
    return lab.failed


def wait(holds, limit=20):
    end = time.monotonic() + limit
    while not holds() and time.monotonic() < end:
        time.sleep(0.05)


# For each: the login, its file with a token, the command, and what must be seen of it.
REGISTRIES = {
    "npm": ("npmrc", ".npmrc", "//registry.npmjs.org/:_authToken={}\n", "npm whoami", "ann"),
    "npm publish": ("npmrc", ".npmrc", "//registry.npmjs.org/:_authToken={}\n",
                    "mkdir -p lab && cd lab && echo '{\"name\": \"lab\", \"version\": \"1.0.0\"}' > package.json && npm publish", "+ lab@1.0.0"),
    "git": ("git-credentials", ".git-credentials", "https://ann:{}@github.com\n",
            "git -c credential.helper=store ls-remote https://github.com/octo/hello.git", "refs/heads/main"),
    "netrc": ("netrc", ".netrc", "machine api.stranger.test\n  login ann\n  password {}\n", "curl -sS -n https://api.stranger.test/x", "{}"),
    "twine": ("pypirc", ".pypirc", "[distutils]\nindex-servers = pypi\n[pypi]\nusername = __token__\npassword = {}\n",
              "twine upload --disable-progress-bar --non-interactive lab-1.0.tar.gz", "View at"),
    "docker": ("docker", ".docker/config.json", json.dumps({"auths": {"https://index.docker.io/v1/": {"auth": "{}"}}}), "python3 client.py docker", '"status": 200'),
}


# What a registry's token server gives, for which the client gets a phantom.
HUB = "hub-" + os.urandom(24).hex()


def registry(request, place, content):
    """What registries answer those who are logged in: with the token as a bearer or as a password."""
    scheme, _, value = request.headers.get("authorization", "").partition(" ")
    token = base64.b64decode(value).decode(errors="replace").partition(":")[2] if scheme == "Basic" else value
    good = token == HUB or request.issuer.good(token)
    request.issuer.seen.append((time.time(), place, "", good))
    if not good:
        return 401, b"{}", {"www-authenticate": 'Basic realm="lab"'}
    if place == "auth.docker.io/token":
        return 200, {"token": HUB, "expires_in": 300}
    if place.endswith("/info/refs"):
        refs = b"".join(b"%04x%s" % (len(line) + 4, line) for line in (b"# service=git-upload-pack\n",)) + b"0000"
        line = b"%s refs/heads/main\0agent=lab\n" % (b"1" * 40)
        return 200, refs + b"%04x%s0000" % (len(line) + 4, line), {"content-type": "application/x-git-upload-pack-advertisement"}
    return 200, {"username": "ann"} if place.endswith("whoami") else {}


def registries(gateway, clients):
    """Package managers and git, by their own files."""
    with Lab("registries", gateway, life=3600, extra=registry) as lab:
        with tarfile.open(lab.project / "lab-1.0.tar.gz", "w:gz") as archive:
            for file, content in {"PKG-INFO": b"Metadata-Version: 2.1\nName: lab\nVersion: 1.0\n", "lab.py": b""}.items():
                about = tarfile.TarInfo(f"lab-1.0/{file}")
                about.size = len(content)
                archive.addfile(about, io.BytesIO(content))
        lab.own()
        path = f"{clients}/venv/bin:/usr/local/bin:/usr/bin:/bin"
        for name, (login, file, text, script, seen) in REGISTRIES.items():
            token = lab.issuer.grant("auth.stranger.test/token")["access_token"]
            lab.put(file, text.replace("{}", base64.b64encode(f"ann:{token}".encode()).decode() if login == "docker" else token))
            before = lab.served()
            _, said = lab.does(script, flags=["--login", login, "--see", str(clients)], variables={"PATH": path})
            lab.judge(f"{name}: by its file", "" if seen in said and lab.served() > before else said)
            (lab.home / file).unlink()
        canaries(lab, [])
    return lab.failed


def real(gateway, clients):
    """Claude Code, Codex, Gemini CLI and gh themselves."""
    with Lab("programs", gateway, life=5) as lab:
        threading.Thread(target=grant_devices, args=(lab, 600), daemon=True).start()
        programs.play(lab, clients)
    return lab.failed


ROWS = {"oidc": oidc, "registries": registries, "programs": real, "crowd": crowd, "file": by_file, "captured": captured, "killed": killed, "unkept": unkept, "attacks": attacks}


def main():
    names = sys.argv[3:] or list(ROWS)
    failed = []
    for name in names:
        began = time.time()
        failed += [f"{name}: {what}" for what in ROWS[name](os.path.abspath(sys.argv[1]), Path(sys.argv[2]))]
        print(f"     {name}: {time.time() - began:.0f} s", flush=True)
    sys.exit("failed: " + ", ".join(failed) if failed else 0)


main()
