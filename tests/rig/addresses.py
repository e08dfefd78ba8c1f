"""Ports for servers that tests start."""

import secrets, socket


def free_port():
    """A port on loopback that nobody has, and the one after it. They are below those that the system gives to whoever asks for any: none is
    taken before the server that is to have it starts."""
    while True:
        port = 20000 + 2 * secrets.randbelow(6000)
        with socket.socket() as first, socket.socket() as second:
            try:
                first.bind(("127.0.0.1", port))
                second.bind(("127.0.0.1", port + 1))
                return port
            except OSError:
                continue
