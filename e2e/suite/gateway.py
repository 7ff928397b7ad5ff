"""Servers as a client's config has them, reached directly or through `toolcrib serve`."""

import asyncio
import json
import os
import signal
import socket
import sys
from contextlib import asynccontextmanager
from pathlib import Path

from .fixtures import working_folder

WIRETAP = Path(__file__).resolve().parent.parent / "wiretap.py"


class Site:
    """A working folder with everything one run of the servers needs: fixtures, an empty home, logs."""

    def __init__(self, installed, web, folder):
        self.installed, self.web = installed, web
        self.folder = working_folder(folder)
        self.home = folder / "home"
        self.home.mkdir()
        self.ports = {}

    def env(self):
        return {
            "PATH": os.environ["PATH"],
            "HOME": str(self.home),
            "XDG_CACHE_HOME": str(self.home / "cache"),
            "XDG_CONFIG_HOME": str(self.home / "config"),
            "XDG_DATA_HOME": str(self.home / "data"),
            "XDG_STATE_HOME": str(self.home / "state"),
        }

    def fill(self, value):
        """The placeholders of servers.py, filled in."""
        if isinstance(value, dict):
            return {key: self.fill(inner) for key, inner in value.items()}
        if isinstance(value, list):
            return [self.fill(inner) for inner in value]
        if isinstance(value, str):
            return value.replace("{dir}", str(self.folder)).replace("{web}", self.web)
        return value

    @asynccontextmanager
    async def remote(self, servers):
        """Runs those of the servers that are reached by address."""
        started = []
        try:
            for server in servers:
                if server.remote:
                    self.ports[server.name] = free_port()
                    env = {**self.env(), "PORT": str(self.ports[server.name])}
                    path = self.folder / f"{server.name}.log"
                    with open(path, "ab") as log:
                        command = self.fill(server.command(self.installed))
                        process = await asyncio.create_subprocess_exec(*command, env=env, stdout=log, stderr=log)
                    started.append(process)
                    await asyncio.wait_for(listening(process, self.ports[server.name], path), 60)
            yield
        finally:
            for process in started:
                if process.returncode is None:
                    process.kill()
                await process.wait()

    def entry(self, server):
        """The server as `mcpServers` has it."""
        if server.remote:
            return {"url": f"http://127.0.0.1:{self.ports[server.name]}/mcp"}
        command, *args = self.fill(server.command(self.installed))
        if server.tapped:
            command, args = sys.executable, ["-S", str(WIRETAP), str(self.tap(server)), command, *args]
        return {"command": command, "args": args, **({"env": self.fill(server.env)} if server.env else {})}

    def tap(self, server):
        """The log of a tapped server's messages."""
        return self.folder / f"{server.name}.wire"

    def tapped(self, server, mark):
        """The tapped messages to (`>`) or from (`<`) a server."""
        messages = []
        log = self.tap(server)
        for line in log.read_bytes().splitlines() if log.exists() else []:
            if line.startswith(mark.encode()):
                try:
                    messages.append(json.loads(line[2:]))
                except ValueError:
                    pass
        return messages

    def direct(self, server):
        """The server as a client starts it."""
        entry = self.entry(server)
        if server.remote:
            return entry
        return {**entry, "env": {**self.env(), **entry.get("env", {})}}

    def config(self, servers, extra=None):
        """An mcp.json with these servers and any further entries."""
        file = self.folder / "mcp.json"
        entries = {server.name: self.entry(server) for server in servers} | (extra or {})
        file.write_text(json.dumps({"mcpServers": entries}, indent=1))
        return file


class Stdio:
    """The gateway as a client starts it."""

    def __init__(self, binary, site, config, endpoint=None):
        self.target = {
            "command": str(binary),
            "args": ["serve", "--stdio", "--config", str(config), *(["--endpoint", endpoint] if endpoint else [])],
            "env": site.env(),
        }


class Http:
    """A gateway process on a port of its own."""

    def __init__(self, binary, site, config):
        self.binary, self.site, self.config = binary, site, config

    async def __aenter__(self):
        self.port = free_port()
        self.log = self.site.folder / "gateway.log"
        with open(self.log, "ab") as log:
            self.process = await asyncio.create_subprocess_exec(
                str(self.binary), "serve", "--http", f"127.0.0.1:{self.port}", "--config", str(self.config),
                stdin=asyncio.subprocess.DEVNULL, stdout=log, stderr=log, env=self.site.env(), cwd=self.site.folder,
            )
        try:
            await asyncio.wait_for(listening(self.process, self.port, self.log), 30)
        except BaseException:
            await self.stop()
            raise
        return self

    def target(self, route="/mcp"):
        return {"url": f"http://127.0.0.1:{self.port}{route}"}

    def children(self):
        return children(self.process.pid)

    async def stop(self, how=signal.SIGTERM, limit=20):
        """Seconds it took to end."""
        started = asyncio.get_running_loop().time()
        if self.process.returncode is None:
            self.process.send_signal(how)
            try:
                await asyncio.wait_for(self.process.wait(), limit)
            except TimeoutError:
                self.process.kill()
                await self.process.wait()
        return asyncio.get_running_loop().time() - started

    async def __aexit__(self, *_):
        await self.stop()


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


async def listening(process, port, log):
    """Returns once the process accepts connections."""
    while True:
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.close()
            return
        except OSError:
            if process.returncode is not None:
                tail = log.read_text(errors="replace")[-1500:]
                raise RuntimeError(f"ended with {process.returncode} before it listened: {tail}") from None
            await asyncio.sleep(0.005)


def command_line(pid):
    return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")


def children(pid):
    """Direct children as {pid: command line}, from /proc."""
    found = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
                if parent == pid:
                    found[int(entry.name)] = command_line(entry.name)
            except (OSError, ValueError):
                pass
    return found


def alive(pid, command):
    """Whether this process still runs: the same command, and not a zombie waiting to be collected."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        return state != "Z" and command_line(pid) == command
    except OSError:
        return False
