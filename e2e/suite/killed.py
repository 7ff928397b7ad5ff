"""Processes killed without warning, and a server that talks on stdout."""

import asyncio
import os
import re
import signal
import time

from . import compare
from .bad_server import BAD, call
from .driver import Driver, Failed
from .endpoints import BY_NAME, text
from .gateway import Http, alive


class Killed:
    """Processes that end without warning, upstream and gateway."""

    name = "resilience/killed"
    servers = [BY_NAME[name] for name in ("everything", "memory", "time", "sqlite")]

    def __init__(self, world):
        self.world = world

    def steps(self):
        return [
            self.upstream_under_load,
            self.upstream_in_a_call,
            self.upstream_with_a_call_unanswered,
            self.gateway_leaves_no_child,
            self.gateway_starts_again,
            self.gateway_stops_when_asked,
        ]

    def names(self):
        return [f"{self.name}/{step.__name__.replace('_', ' ')}" for step in self.steps()]

    async def run(self, report):
        self.site = self.world.site()
        self.config = self.site.config(self.servers, {"hangs": BAD["hangs"]})
        async with Driver(self.world.installed, "python", self.site.folder / "client.log") as self.driver:
            for name, step in zip(self.names(), self.steps()):
                if not report.wants(name):
                    continue
                try:
                    async with Http(self.world.binary, self.site, self.config) as self.gateway:
                        report.check(name, await step())
                except Failed as error:
                    report.check(name, f"Failed: {error}")

    def upstream(self, server):
        """The process of a server, by a word of its command line."""
        found = [pid for pid, line in self.gateway.children().items() if f"server-{server}" in line]
        if len(found) != 1:
            raise Failed(f"wanted one child process for {server}, got {self.gateway.children()}")
        return found[0]

    async def sum(self, connection, number=40):
        raw = await connection.call("get-sum", {"a": 2, "b": number})
        return f"The sum of 2 and {number} is {number + 2}." in text(raw), raw

    async def upstream_under_load(self):
        """Four clients call without pause; the server is killed; the next call of each succeeds."""
        target = self.gateway.target("/mcp/s/everything")
        connections = [await self.driver.connect(target, "2025") for _ in range(4)]
        for connection in connections:
            await self.sum(connection)
        stop, lost = asyncio.Event(), []

        async def load(connection):
            while not stop.is_set():
                fine, raw = await self.sum(connection)
                if not fine:
                    lost.append(raw)

        loads = [asyncio.create_task(load(connection)) for connection in connections]
        await asyncio.sleep(0.3)
        os.kill(self.upstream("everything"), signal.SIGKILL)
        await asyncio.sleep(1)
        stop.set()
        await asyncio.gather(*loads)
        after = [await self.sum(connection, 7) for connection in connections]
        for connection in connections:
            await connection.__aexit__()
        if len(lost) > len(connections):
            return f"{len(lost)} calls failed, at most the {len(connections)} in flight may: {lost[:5]}"
        return next((f"the next call failed: {raw}" for fine, raw in after if not fine), None)

    async def upstream_in_a_call(self):
        """Other servers go on. The caller is told who died, or gets the result: this tool may be called twice."""
        async with (
            await self.driver.connect(self.gateway.target("/mcp/s/memory"), "2025") as memory,
            await self.driver.connect(self.gateway.target("/mcp/s/everything"), "2025") as everything,
        ):
            await self.sum(everything)
            slow = asyncio.create_task(everything.call("trigger-long-running-operation", {"duration": 3, "steps": 3}))
            await asyncio.sleep(0.5)
            os.kill(self.upstream("everything"), signal.SIGKILL)
            began = time.monotonic()
            raw = await memory.call("read_graph", {})
            spent = time.monotonic() - began
            if "result" not in raw or spent > 5:
                return f"memory answered after {spent:.1f} s: {raw}"
            ended = await slow
            said = str(ended.get("error") or text(ended))
            if "completed" not in said and not re.search(r"everything", said):
                return f"the caller is not told which server died: {ended}"
            fine, raw = await self.sum(everything)
            return None if fine else f"the next call failed: {raw}"

    async def upstream_with_a_call_unanswered(self):
        """A call that changes something and may have run is not made again; its caller is told."""
        async with await self.driver.connect(self.gateway.target("/mcp/s/memory"), "2025") as memory:
            await memory.call("read_graph", {})
            process = self.upstream("memory")
            # Stopped first, so that the request is with the server and provably without effect.
            os.kill(process, signal.SIGSTOP)
            entities = [{"name": "Once", "entityType": "crab", "observations": []}]
            call = asyncio.create_task(memory.call("create_entities", {"entities": entities}))
            await asyncio.sleep(0.5)
            os.kill(process, signal.SIGKILL)
            ended = await call
            if "error" not in ended and ended.get("result", {}).get("isError") is not True:
                return f"wanted an error, got {ended}"
            if "memory" not in str(ended):
                return f"the caller is not told which server died: {ended}"
            after = text(await memory.call("read_graph", {}))
        return "the call was made again" if "Once" in after else None

    async def gateway_leaves_no_child(self):
        """Not even one that does not look at its standard input."""
        await self.started()
        left = self.gateway.children()
        if not any("time.sleep" in line for line in left.values()):
            return f"the hanging server was never started: {left}"
        await self.gateway.stop(signal.SIGKILL)
        return await self.gone(left, 10)

    async def gateway_starts_again(self):
        """In the home of one that was killed: the same tools, and calls work."""
        async with await self.driver.connect(self.gateway.target("/mcp/s/memory"), "2025") as memory:
            tools = compare.tools(await memory.tools(), self.site.folder)
            direct = (await self.world.direct.answers("python", "2025", BY_NAME["memory"])).tools()
            raw = await memory.call("read_graph", {})
        return compare.difference(direct, tools) or (None if "result" in raw else f"the call failed: {raw}")

    async def gateway_stops_when_asked(self):
        await self.started()
        left = self.gateway.children()
        spent = await self.gateway.stop(signal.SIGTERM, limit=15)
        if self.gateway.process.returncode != 0:
            return f"ended with {self.gateway.process.returncode} after {spent:.1f} s"
        return await self.gone(left, 2)

    async def started(self):
        """A call to each good server, so that its process runs."""
        async with await self.driver.connect(self.gateway.target("/mcp/full"), "2025") as full:
            for server in self.servers:
                tool, arguments = call(server.name)
                await full.call(tool, self.site.fill(arguments))
            await full.call("memory__delete_entities", {"entityNames": ["Ferris"]})
        async with await self.driver.connect(self.gateway.target(), "2025") as mcp:
            await mcp.call("tool_search", {"query": "hangs"})

    @staticmethod
    async def gone(processes, limit):
        ends = time.monotonic() + limit
        while left := {pid: line for pid, line in processes.items() if alive(pid, line)}:
            if time.monotonic() > ends:
                for pid in left:
                    os.kill(pid, signal.SIGKILL)
                return f"left behind {limit} s later: {left}"
            await asyncio.sleep(0.05)
        return None


class Noise:
    """A server that prints text on stdout before and between its messages is served all the same."""

    name = "resilience/noise"

    def __init__(self, world):
        self.world = world

    def names(self):
        return [f"{self.name}/text on stdout"]

    async def run(self, report):
        site = self.world.site()
        memory = site.entry(BY_NAME["memory"])
        noisy = "echo Starting up; echo; echo '{not json'; echo '[1, 2]'; (sleep 0.3; echo between) & exec \"$0\" \"$@\""
        entry = {**memory, "command": "sh", "args": ["-c", noisy, memory["command"], *memory["args"]]}
        config = site.config([], {"noisy": entry})
        async with Driver(self.world.installed, "python", site.folder / "client.log") as driver:
            async with Http(self.world.binary, site, config) as gateway:
                async with await driver.connect(gateway.target("/mcp/s/noisy"), "2025") as connection:
                    tools = compare.tools(await connection.tools(), site.folder)
                    await asyncio.sleep(0.5)
                    raw = await connection.call("read_graph", {})
        direct = (await self.world.direct.answers("python", "2025", BY_NAME["memory"])).tools()
        problem = compare.difference(direct, tools)
        report.check(self.names()[0], problem or (None if "result" in raw else f"the call failed: {raw}"))


def killed_checks(world):
    return [Killed(world), Noise(world)]
