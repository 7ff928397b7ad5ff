"""The clients, each an SDK in a process of its own, spoken to in JSON lines."""

import asyncio
import itertools
import json
import os
from pathlib import Path

CLIENTS = Path(__file__).resolve().parent.parent / "clients"
KINDS = {
    "python": ("2025", "2026"),
    "typescript": ("2025", "2026"),
    "typescript-1": ("2025",),
}
"""Each client with the eras it speaks."""


class Failed(Exception):
    """The client could not do what it was asked: no connection, or no answer."""


class Driver:
    """One client process, which may hold many connections."""

    def __init__(self, installed, kind, log):
        self.installed, self.kind, self.log = installed, kind, log
        self.waiting, self.ids = {}, itertools.count(1)

    def command(self):
        if self.kind == "python":
            return [self.installed.python("mcp2"), str(CLIENTS / "python.py")]
        return [self.installed.node, str(CLIENTS / "typescript.mjs"), "1" if self.kind == "typescript-1" else "2"]

    async def __aenter__(self):
        env = {**os.environ, "TOOLCRIB_E2E_NODE_MODULES": str(self.installed.node_modules)}
        with open(self.log, "ab") as log:
            self.process = await asyncio.create_subprocess_exec(
                *self.command(),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
                env=env,
                limit=64 << 20,
            )
        self.reader = asyncio.create_task(self.read())
        return self

    async def __aexit__(self, *_):
        self.process.stdin.close()
        try:
            await asyncio.wait_for(self.process.wait(), 15)
        except TimeoutError:
            self.process.kill()
            await self.process.wait()
        await self.reader

    async def read(self):
        while line := await self.process.stdout.readline():
            answer = json.loads(line)
            future = self.waiting.pop(answer["id"], None)
            if future and not future.done():
                if "ok" in answer:
                    future.set_result(answer["ok"])
                else:
                    future.set_exception(Failed(answer["failed"]))
        for future in self.waiting.values():
            if not future.done():
                future.set_exception(Failed(f"the {self.kind} client ended; see {self.log}"))

    async def ask(self, op, connection, limit=120, **request):
        number = next(self.ids)
        answer = self.waiting[number] = asyncio.get_running_loop().create_future()
        self.process.stdin.write(json.dumps({"id": number, "op": op, "conn": connection, **request}).encode() + b"\n")
        await self.process.stdin.drain()
        try:
            return await asyncio.wait_for(answer, limit)
        except TimeoutError:
            raise Failed(f"no answer to {op} within {limit} s") from None

    async def connect(self, target, era):
        connection = Connection(self, f"{self.kind}-{next(self.ids)}")
        connection.version = (await self.ask("connect", connection.name, era=era, target=target))["version"]
        return connection


class Connection:
    """One client connected to one endpoint or server."""

    def __init__(self, driver, name):
        self.driver, self.name = driver, name

    async def tools(self):
        return (await self.driver.ask("list", self.name))["tools"]

    async def call(self, tool, arguments, progress=False, limit=60):
        return await self.driver.ask(
            "call", self.name, name=tool, arguments=arguments, progress=progress, timeout=limit, limit=limit + 20
        )

    async def cancel(self, tool, arguments):
        """Starts a call, cancels it at its first progress notification, and says how it ended."""
        return await self.driver.ask("cancel", self.name, name=tool, arguments=arguments)

    async def notifications(self):
        return (await self.driver.ask("notifications", self.name))["methods"]

    async def __aenter__(self):
        return self

    async def __aexit__(self, *_):
        try:
            await self.driver.ask("close", self.name, limit=20)
        except Failed:
            pass
