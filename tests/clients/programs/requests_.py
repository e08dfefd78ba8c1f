"""requests: JSON over a kept connection, and an upload of unknown length (chunked)."""

import hashlib, os

import requests

from verdict import API, verdict


def check():
    session = requests.Session()
    session.headers["Authorization"] = "Bearer " + os.environ["API_TOKEN"]
    for _ in range(3):
        answer = session.get(API + "/v1/whoami", timeout=20)
        answer.raise_for_status()
        assert answer.json()["user"] == "alice"
    parts = [os.urandom(70_000) for _ in range(30)]
    answer = session.post(API + "/v1/upload", data=iter(parts), timeout=60)
    answer.raise_for_status()
    assert answer.json()["sha256"] == hashlib.sha256(b"".join(parts)).hexdigest()


verdict("requests", check)
