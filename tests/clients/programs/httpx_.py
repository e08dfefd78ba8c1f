"""httpx: HTTP/1.1 and HTTP/2, with a stream of events on each."""

import os, sys

import httpx

from verdict import API, Stream, verdict


def check(http2):
    headers = {"Authorization": "Bearer " + os.environ["API_TOKEN"]}
    with httpx.Client(http1=not http2, http2=http2, headers=headers, timeout=20) as client:
        answer = client.get(API + "/v1/whoami")
        answer.raise_for_status()
        assert answer.json()["user"] == "alice"
        assert answer.http_version == ("HTTP/2" if http2 else "HTTP/1.1"), answer.http_version
        stream = Stream()
        with client.stream("GET", API + "/v1/events") as events:
            events.raise_for_status()
            for line in events.iter_lines():
                if line:
                    stream.part()
        stream.check()


http2 = sys.argv[1:] == ["h2"]
verdict("httpx-h2" if http2 else "httpx-h1", lambda: check(http2))
