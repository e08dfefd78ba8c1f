"""A person at a terminal: types when the screen shows something, and reads what it shows."""

import fcntl, os, pty, re, select, signal, struct, sys, termios, time

import pyte

ROWS, COLUMNS = 45, 100


class Screen(pyte.Screen):
    def select_graphic_rendition(self, *arguments, private=False, **more):
        if not private:
            super().select_graphic_rendition(*arguments)


class Typist:
    """Runs a command in a terminal of its own. What programs ask a terminal is answered as xterm does."""

    def __init__(self, command):
        self.child, self.terminal = pty.fork()
        if self.child == 0:
            try:
                fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
                os.execvp(command[0], command)
            finally:
                os._exit(127)
        self.screen = Screen(COLUMNS, ROWS)
        self.stream = pyte.ByteStream(self.screen)
        self.raw, self.ended, self.code = b"", False, None

    def read(self, seconds):
        """Shows what comes within this time."""
        end = time.monotonic() + seconds
        while not self.ended and (left := end - time.monotonic()) > 0:
            if not select.select([self.terminal], [], [], left)[0]:
                break
            try:
                data = os.read(self.terminal, 65536)
            except OSError:
                data = b""
            if not data:
                self.ended = True
                break
            self.raw += data
            self.stream.feed(data)
            self.answer(data)

    def answer(self, data):
        cursor = self.screen.cursor
        for asked, answer in ((b"\x1b[6n", f"\x1b[{cursor.y + 1};{cursor.x + 1}R"), (b"\x1b[c", "\x1b[?62;22c"),
                              (b"\x1b]10;?", "\x1b]10;rgb:ffff/ffff/ffff\x1b\\"), (b"\x1b]11;?", "\x1b]11;rgb:0000/0000/0000\x1b\\")):
            if asked in data:
                os.write(self.terminal, answer.encode())

    def shown(self):
        """The screen as a person sees it."""
        lines = [line.rstrip() for line in self.screen.display]
        return "\n".join(lines).strip("\n")

    def see(self, text, limit=60):
        """Waits until the screen shows a text, whatever the white space, and the program has had a moment to read keys."""
        end = time.monotonic() + limit
        while time.monotonic() < end and not self.ended:
            self.read(0.2)
            if self.shows(text):
                self.read(0.5)
                return self.shown()
        if self.shows(text):
            return self.shown()
        raise AssertionError(f"the screen never showed {text!r}:\n{self.shown()}")

    def shows(self, text):
        return re.sub(r"\s+", "", text) in re.sub(r"[\s│]+", "", self.shown())

    def type(self, keys):
        """Types keys one after the other, as programs read them from a person."""
        for key in re.findall(r"\x1b\[.|[^\r\x1b]+|\r", keys):
            os.write(self.terminal, key.encode())
            self.read(0.3)

    def reaches(self, text, later):
        """Whether the screen shows a text. It does not if it has shown what comes later for ten seconds: where keys were typed again, since a
        program had not read them yet, it may have read both."""
        end, since = time.monotonic() + 60, None
        while not self.shows(text):
            now = time.monotonic()
            since = (since or now) if any(map(self.shows, later)) else None
            if since and now > since + 10:
                return False
            if now > end or self.ended:
                raise AssertionError(f"the screen never showed {text!r}:\n{self.shown()}")
            self.read(0.2)
        return True

    def answer_screen(self, text, keys, following):
        """Types when a text is shown, and again if the program was not reading yet, until it shows what follows."""
        self.see(text)
        for _ in range(6):
            self.type(keys)
            end = time.monotonic() + 4
            while time.monotonic() < end and not self.ended:
                self.read(0.2)
                if self.shows(following) or not self.shows(text):
                    return

    def end(self, limit=30):
        """Waits until the command has ended. Returns its exit code."""
        end = time.monotonic() + limit
        while not self.ended and time.monotonic() < end:
            self.read(0.4)
        if not self.ended:
            os.kill(self.child, signal.SIGKILL)
        self.code = os.waitstatus_to_exitcode(os.waitpid(self.child, 0)[1])
        os.close(self.terminal)
        return self.code
