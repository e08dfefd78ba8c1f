"""urllib of the standard library: whatever the system's trust store and Python's own strictness say."""

import json, os, urllib.request

from verdict import API, verdict


def check():
    request = urllib.request.Request(API + "/v1/whoami", headers={"Authorization": "Bearer " + os.environ["API_TOKEN"]})
    with urllib.request.urlopen(request, timeout=20) as answer:
        assert json.load(answer)["user"] == "alice"


verdict("urllib", check)
