"""What a step needs: an authorization server, a server that takes its tokens, and programs that log in there."""

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

from parts.install import packages
from parts.programs import Programs, end, free_port, listening

from .wire import document, rpc

HERE = Path(__file__).resolve().parent
TOOL = "test_simple_text"
OWN_TOKEN = "the-token-that-is-the-servers-own"
GUARDED = f"""
[gateway.oauth]
issuer = "%(issuer)s"
url = "%(url)s"
required_scopes = ["mcp"]

[gateway.oauth.scopes."mcp:text"]
allow_tools = ["tested/{TOOL}"]

[gateway.oauth.scopes."mcp:all"]

[servers.tested]
url = "%(server)s"
era = "2025"
bearer_token = "{OWN_TOKEN}"

[servers.bare]
url = "%(server)s/bare"
era = "2025"
"""


class Scene:
    def __init__(self, chosen, home):
        self.programs = Programs(chosen.bin, chosen.fixture, "http", "auto", home)
        self.home, self.logs, self.stack = home, [], ExitStack()

    def __enter__(self):
        fixture = self.stack.enter_context(self.programs.fixture())
        command, env = authority()
        quiet = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL, "text": True}
        process = subprocess.Popen([*command, fixture], env=env, **quiet)
        self.stack.callback(end, process)
        places = json.loads(process.stdout.readline())
        self.issuer, self.resource, self.recorded = places["issuer"], places["resource"], places["recorded"]
        self.config = self.home / "toolcrib.toml"
        self.config.write_text(f"[servers.tested]\nurl = {json.dumps(self.resource)}\nera = '2025'\n")
        return self

    def __exit__(self, *_):
        self.stack.close()

    @property
    def env(self):
        folders = {f"XDG_{kind}_HOME": str(self.home / kind.lower()) for kind in ("CACHE", "CONFIG", "DATA", "STATE")}
        browser = f"{sys.executable} -S {HERE / 'browser.py'}"
        return {"PATH": os.environ["PATH"], "HOME": str(self.home), "BROWSER": browser, **folders}

    @property
    def file(self):
        return self.home / "data/toolcrib/credentials/logins.json"

    def login(self):
        """What is kept of the login."""
        entries = json.loads(self.file.read_text())["entries"]
        return next((json.loads(text) for key, text in entries.items() if key.startswith("login ")), None)

    def told(self, **ways):
        """Has the authorization server behave so; what it saw until now."""
        query = "&".join(f"{key}={value}" for key, value in ways.items())
        return document(f"{self.issuer}/control?{query}")

    def run(self, *arguments):
        """A command; how it ended, and all it said."""
        command = [str(self.programs.binary), *arguments, "--config", str(self.config)]
        done = subprocess.run(
            command, env=self.env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=60
        )
        self.logs.append(done.stdout)
        return done.returncode, done.stdout

    def log_in(self):
        code, said = self.run("login", "tested")
        assert code == 0, said

    def gateway(self, *options):
        """A gateway; a function that calls the server through it, and gives what it says."""
        url = self.serve(self.config, f"127.0.0.1:{free_port()}", *options)
        return lambda: self.call(f"{url}/mcp/full")

    def guarded(self):
        """A gateway for those alone who bring a token; where it is. What reaches the server behind is written down."""
        address = f"127.0.0.1:{free_port()}"
        config = self.home / "guarded.toml"
        config.write_text(GUARDED % {"issuer": self.issuer, "url": f"http://{address}", "server": self.recorded})
        return self.serve(config, address)

    def serve(self, config, address, *options):
        log = self.home / f"gateway-{address.split(':')[1]}.log"
        command = [str(self.programs.binary), "serve", "--http", address, "--log", "debug", "--config", str(config), *options]
        with open(log, "wb") as file:
            process = subprocess.Popen(command, env=self.env, stdout=file, stderr=file)
        self.stack.callback(end, process)
        listening(process, address, log)
        return f"http://{address}"

    def call(self, url):
        return self.ask(url, "tools/call", {"name": f"tested__{TOOL}", "arguments": {}}).text

    def ask(self, url, method, params=None, token=None):
        """A request; what is answered."""
        answer = rpc(url, method, params, token)
        self.logs.append(f"{answer.headers}{answer.text}")
        return answer

    def nothing_is_shown(self):
        """No token is in any log, output or answer."""
        texts = self.logs + [log.read_text(errors="replace") for log in self.home.glob("*.log")]
        for token in self.told()["tokens"]:
            assert not any(token in text for text in texts), "a token was shown"


def at_once(calls):
    with ThreadPoolExecutor(len(calls)) as pool:
        return list(pool.map(lambda call: call(), calls))


def authority():
    """The command of the authorization server, installed if it is not, and its environment."""
    node, folder = packages("oauth", HERE.parent)
    return [node, str(HERE / "authority.mjs")], {"PATH": os.environ["PATH"], "PACKAGES": str(folder)}
