"""A program in a pseudo terminal, and the screen that a person would see of it."""

import fcntl
import os
import pty
import select
import struct
import subprocess
import termios
import time

import pyte

# How long anything may take that takes a moment. Only a machine that is very busy needs more of it than that.
PATIENCE = 20.0


class Failed(Exception):
    """What was expected did not come true."""


def expect(truth, otherwise):
    if not truth:
        raise Failed(otherwise)


def eventually(what, check, seconds=PATIENCE):
    """Waits for something that no screen shows; gives what it was."""
    until = time.monotonic() + seconds
    while not (found := check()):
        expect(time.monotonic() < until, f"{what}: not within {seconds:g} s")
        time.sleep(0.02)
    return found


def runs(pid):
    """Whether a process runs: one that has ended but wasn't waited for doesn't."""
    if os.path.exists("/proc/self/stat"):
        try:
            with open(f"/proc/{pid}/stat") as stat:
                state = stat.read().rpartition(")")[2].strip()
        except OSError:
            state = ""
    else:
        state = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True).stdout.strip()
    return bool(state) and not state.startswith("Z")


class Terminal:
    """Starts a command in a terminal of its own. What it writes is taken in while somebody waits for something."""

    def __init__(self, command, env, cwd, lines=40, columns=120, stdout=None):
        self.screen = pyte.HistoryScreen(columns, lines, history=10_000)
        self.stream = pyte.ByteStream(self.screen)
        self.raw = b""
        # All that was shown, after each piece of output.
        self.states = []
        self.master, self.slave = pty.openpty()
        self.resize(columns, lines)
        self.modes = termios.tcgetattr(self.slave)
        self.process = subprocess.Popen(
            command, stdin=self.slave, stdout=stdout or self.slave, stderr=self.slave, env=env, cwd=cwd,
            start_new_session=True, preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )

    def resize(self, columns, lines=40):
        """As a window does when it is pulled at: the kernel tells the program (SIGWINCH)."""
        self.screen.resize(lines, columns)
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def send(self, keys):
        data = keys.encode() if isinstance(keys, str) else keys
        while data:
            data = data[os.write(self.master, data):]

    def paste(self, text):
        """As a terminal does: with marks around it if it was asked for them, else as if it were typed."""
        data = (text.encode() if isinstance(text, str) else text).replace(b"\n", b"\r")
        self.send(b"\x1b[200~" + data + b"\x1b[201~" if self.marks_pastes() else data)

    def marks_pastes(self):
        return self.raw.rfind(b"\x1b[?2004h") > self.raw.rfind(b"\x1b[?2004l")

    def text(self):
        """All that was shown, also what has left the screen at the top."""
        columns = range(self.screen.columns)
        gone = ["".join(line[column].data for column in columns) for line in self.screen.history.top]
        return "\n".join(line.rstrip() for line in gone + self.screen.display).rstrip()

    def line(self):
        """The line with the cursor."""
        return self.screen.display[self.screen.cursor.y].rstrip()

    def cells(self, text):
        """The cells of the last place on the screen where this stands, with their attributes."""
        for row in reversed(range(self.screen.lines)):
            at = self.screen.display[row].find(text)
            if at >= 0:
                return [self.screen.buffer[row][at + i] for i in range(len(text))]
        raise Failed(f"`{text}` is not on the screen:\n{self.text()}")

    def read(self, seconds):
        """Takes in what is written within this time, if anything."""
        if not select.select([self.master], [], [], max(seconds, 0))[0]:
            return False
        piece = os.read(self.master, 4096)
        self.raw += piece
        self.stream.feed(piece)
        self.states.append(self.text())
        return True

    def until(self, what, check, seconds=PATIENCE):
        """Waits for something to come true on the screen; gives how long that took."""
        began = time.monotonic()
        while not check():
            left = began + seconds - time.monotonic()
            expect(left > 0, f"{what}: not within {seconds:g} s. What is shown:\n{self.text()}")
            self.read(min(left, 0.05))
        return time.monotonic() - began

    def shows(self, text):
        self.until(f"`{text}` is shown", lambda: text in self.text())

    def ends(self, status):
        """Waits for the program to end, and takes in its last words."""
        self.until("it ends", lambda: self.process.poll() is not None)
        while self.read(0):
            pass
        code = self.process.returncode
        expect(code == status, f"it ended with status {code}, not {status}. What is shown:\n{self.text()}")

    def is_as_before(self):
        """Whether a shell would find the terminal as it left it."""
        return termios.tcgetattr(self.slave) == self.modes and not self.marks_pastes()

    def hang_up(self):
        """As a window does when it is closed."""
        for end in (self.slave, self.master):
            os.close(end)
        self.master = None

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        if self.master is not None:
            self.hang_up()
