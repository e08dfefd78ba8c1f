"""Ports for servers that tests start."""

import secrets, socket


def free_port():
    """A port on loopback that nobody has, below those that the system gives to whoever asks for any: it stays free until it is bound."""
    while True:
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", secrets.randbelow(12000) + 20000))
                return probe.getsockname()[1]
            except OSError:
                continue
