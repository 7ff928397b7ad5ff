"""A chat in a terminal, as a person has it: waiting for the prompt, saying something, being asked."""

import json
import os
import subprocess
import tempfile
from pathlib import Path

from terminal import PATIENCE, Terminal, eventually, expect

PROMPT = "›"
ASKS = "or why not:"
ENTER, UP, CTRL_C, CTRL_D = "\r", "\x1b[A", "\x03", "\x04"
RUN = "exec__run_command"
WRITE = "files__write_file"

CHECKS = []


def check(function):
    """A check has a home of its own, and a name that says what holds."""
    CHECKS.append(function)
    return function


def call(tool, **arguments):
    """What the scripted model is told so that it calls a tool."""
    return f"call {tool} {json.dumps(arguments)}"


def write(name, content="x"):
    return call(WRITE, path=name, content=content)


class Home:
    """A home of its own, where a chat is begun and its tools write."""

    def __init__(self, binary):
        self.binary = binary
        self.kept = tempfile.TemporaryDirectory(prefix="toolcrib-terminal-")
        self.folder = Path(self.kept.name).resolve()
        self.chats = []
        passed = {name: os.environ[name] for name in ("PATH", "TMPDIR") if name in os.environ}
        self.env = passed | {"HOME": str(self.folder), "TERM": "xterm-256color", "LANG": "C.UTF-8"}
        for kind in ("CONFIG", "DATA", "STATE", "CACHE"):
            self.env[f"XDG_{kind}_HOME"] = str(self.folder / kind.lower())

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for chat in self.chats:
            chat.close()
        self.kept.cleanup()

    def chat(self, *options, waits=True, env=None, **terminal):
        """Begins a chat, and waits for its first prompt."""
        chat = Chat(self.command(*options), self.env | (env or {}), self.folder, **terminal)
        self.chats.append(chat)
        if waits:
            chat.prompted()
        return chat

    def command(self, *options):
        return [str(self.binary), "chat", "--model", "scripted", *options]

    def piped(self, data, *options, env=None):
        """A chat without a terminal."""
        return subprocess.run(
            self.command(*options), input=data, capture_output=True, env=self.env | (env or {}),
            cwd=self.folder, start_new_session=True, timeout=PATIENCE,
        )

    def run(self, *words, **options):
        """Another command, without a terminal."""
        return subprocess.run(
            [str(self.binary), *words], capture_output=True, text=True, env=self.env, cwd=self.folder,
            start_new_session=True, timeout=PATIENCE, **options,
        )

    def said_by(self, *words, **options):
        """What a command prints that must succeed."""
        done = self.run(*words, **options)
        expect(done.returncode == 0, f"{words}: status {done.returncode}\n{done.stdout}\n{done.stderr}")
        return done.stdout

    def sessions(self):
        return json.loads(self.said_by("sessions", "--json"))["sessions"]

    def exists(self, name):
        return (self.folder / name).exists()

    def read(self, name):
        return (self.folder / name).read_text()

    def history(self):
        return self.folder / "state" / "toolcrib" / "chat_history"

    def pid(self, name):
        """The process whose number a command has written."""
        def written():
            return self.exists(name) and self.read(name).strip()
        return int(eventually(f"{name} is written", written))


class Chat(Terminal):
    def is_prompting(self, before=""):
        """Whether the cursor stands behind an empty prompt."""
        return self.line() == before + PROMPT and self.screen.cursor.x == len(before + PROMPT) + 1

    def prompted(self, before="", seconds=PATIENCE):
        return self.until("the prompt is there", lambda: self.is_prompting(before), seconds)

    def type(self, keys, before=""):
        """Types at the prompt, and sees it stand there."""
        self.send(keys)
        self.until("what is typed is shown", lambda: not self.is_prompting(before))

    def paste_here(self, text):
        """Pastes at the prompt, and sees the end of it stand there."""
        self.paste(text)
        self.until("what is pasted is shown", lambda: self.line().endswith(text.splitlines()[-1]))

    def said_since(self, begun):
        return self.text()[begun:].removesuffix(PROMPT).strip()

    def say(self, message, before="", after=None):
        """Says something at the prompt; gives what is shown until the next one."""
        begun = len(self.text())
        self.type(message, before)
        self.send(ENTER)
        self.prompted(before if after is None else after)
        return self.said_since(begun)

    def is_asking(self):
        return self.line().endswith(ASKS)

    def ask(self, message):
        """Says something that leads to a question; gives the question."""
        begun = len(self.text())
        self.type(message)
        self.send(ENTER)
        self.until("it asks", self.is_asking)
        return self.said_since(begun)

    def answer(self, words):
        """Answers the question; gives what is shown until the prompt."""
        begun = len(self.text())
        self.send(words + ENTER)
        self.prompted()
        return self.said_since(begun)

    def start(self, home, command):
        """Has a command run that goes on for long, with its shell's number in the file `shell`."""
        self.ask(call(RUN, command=f"echo $$ > shell; {command}"))
        self.send("y" + ENTER)
        return home.pid("shell")


def stdio_server(home, name, *command):
    """Configures a server that is a process of its own."""
    words = [json.dumps(str(word)) for word in command]
    config = f"[servers.{name}]\ncommand = {words[0]}\nargs = [{', '.join(words[1:])}]\n"
    (home.folder / "toolcrib.toml").write_text(config)
