"""Reads what the gateway reads, by other people's readers: a line of JSON in, a line of JSON out.

In: {"kind": …, "content": base64, …}. Out: what was found, or {"error": …} where this reader finds none.
"""

import base64, email.parser, email.policy, json, os, re, subprocess, sys, tempfile
from urllib.parse import parse_qsl

import graphql
from websockets.exceptions import ProtocolError
from websockets.frames import Frame
from websockets.streams import StreamReader


def in_json(content, pointers):
    def at(value, pointer):
        for name in pointer.split("/")[1:]:
            if isinstance(value, list) and name.isdigit() and str(int(name)) == name:
                value = value[int(name)]
            elif isinstance(value, dict):
                value = value[name]
            else:
                raise KeyError(name)
        return [value]

    whole, found = json.loads(content), []
    for pointer in pointers:
        try:
            found.append(at(whole, pointer))
        except (KeyError, IndexError):
            found.append([])
    return found


def in_form(content, name):
    pairs = parse_qsl(content.decode("ascii"), keep_blank_values=True, errors="strict")
    return [value for key, value in pairs if key == name]


def in_parts(content, boundary, name):
    head = f"Content-Type: multipart/form-data; boundary={boundary}\r\n\r\n".encode()
    whole = email.parser.BytesParser(policy=email.policy.HTTP).parsebytes(head + content)
    parts = [one for one in whole.iter_parts() if one.get_param("name", header="content-disposition") == name]
    return [base64.b64encode(one.get_payload(decode=True)).decode() for one in parts]


def in_graphql(content):
    document = graphql.parse(content.decode())
    fragments = {one.name.value: one for one in document.definitions if one.kind == "fragment_definition"}
    operations, fields = set(), set()

    def select(kind, items, seen):
        for item in items.selections if items else ():
            if item.kind == "field":
                fields.add(f"{kind}.{item.name.value}")
            elif item.kind == "inline_fragment":
                select(kind, item.selection_set, seen)
            elif item.name.value not in seen:
                seen.add(item.name.value)
                select(kind, fragments[item.name.value].selection_set, seen)

    for one in document.definitions:
        if one.kind == "operation_definition":
            kind = one.operation.value
            operations |= {kind} | ({f"{kind} {one.name.value}"} if one.name else set())
            select(kind, one.selection_set, set())
    return [sorted(operations), sorted(fields)]


def in_frames(content, masked):
    reader, frames = StreamReader(), []
    reader.feed_data(content)
    reader.feed_eof()
    while not next(reader.at_eof(), None):
        reading = Frame.parse(reader.read_exact, mask=masked)
        try:
            next(reading)
        except StopIteration as whole:
            frame = whole.value
            frames.append([frame.opcode, frame.fin, base64.b64encode(frame.data).decode()])
        except (ProtocolError, EOFError):
            break
        if len(reader.buffer) == 0:
            break
    return frames


def repository(refs):
    """A bare one with these refs, whose hook notes what is asked and refuses it."""
    folder = tempfile.mkdtemp()
    git = lambda *args, text=None: subprocess.run(
        ["git", "-C", folder, *args], input=text, capture_output=True, check=True, text=True).stdout.strip()
    git("init", "-q", "--bare")
    git("config", "receive.denyDeleteCurrent", "ignore")
    tree = git("mktree", text="")
    commit = git("-c", "user.name=n", "-c", "user.email=e@x", "commit-tree", tree, "-m", "m")
    for ref in refs:
        git("update-ref", ref, commit)
    hook = f"{folder}/hooks/pre-receive"
    with open(hook, "w") as file:
        file.write(f"#!/bin/sh\ncat > {folder}/asked\nexit 1\n")
    os.chmod(hook, 0o755)
    return folder, commit


def in_push(content, folder):
    asked = f"{folder}/asked"
    if os.path.exists(asked):
        os.remove(asked)
    subprocess.run(["git", "receive-pack", "--stateless-rpc", folder], input=content, capture_output=True, timeout=20)
    if not os.path.exists(asked):
        raise ValueError("git asks for nothing")
    with open(asked, errors="replace", newline="\n") as file:
        return sorted(name.removesuffix("\n") for name in re.split("(?m)^[0-9a-f]{40} [0-9a-f]{40} ", file.read())[1:])


READERS = {"json": in_json, "form": in_form, "multipart": in_parts, "graphql": in_graphql,
           "frames": in_frames, "push": in_push}

for line in sys.stdin:
    asked = json.loads(line)
    kind = asked.pop("kind")
    try:
        if kind == "repository":
            found = repository(**asked)
        else:
            found = READERS[kind](base64.b64decode(asked.pop("content")), **asked)
    except (ValueError, RecursionError, KeyError, AttributeError, graphql.GraphQLError) as why:
        found = {"error": str(why)[:200]}
    sys.stdout.buffer.write(json.dumps(found, ensure_ascii=False).encode("utf-8", "replace") + b"\n")
    sys.stdout.flush()
