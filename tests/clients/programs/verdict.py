"""One line a client: `ok NAME`, or `FAIL NAME why`, and the exit code that goes with it."""

import os, sys, time

API, GIT, PACKAGES, GRPC = (os.environ.get("BASE_" + name, "") for name in ("API", "GIT", "PACKAGES", "GRPC"))
WORDS = "one two three four five six seven eight nine ten"


def verdict(name, check):
    try:
        check()
    except BaseException as error:
        text = " ".join(f"{type(error).__name__}: {error}".split())[:300]
        print(f"FAIL {name} {text}", flush=True)
        sys.exit(1)
    print(f"ok {name}", flush=True)


class Stream:
    """Notes when the parts of a stream come: one that was held back comes all at once."""

    def __init__(self):
        self.times = []

    def part(self):
        self.times.append(time.monotonic())

    def check(self):
        assert len(self.times) >= 5, f"{len(self.times)} parts"
        took = self.times[-1] - self.times[0]
        assert took > 0.15, f"the whole stream came within {took:.3f} s: it was held back"
