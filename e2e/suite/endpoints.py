"""What the endpoints do by themselves: the meta-tools on /mcp, loading on /mcp/inject, answers to mistakes."""

import asyncio
import json
import time

from . import compare
from .driver import Driver, Failed
from .gateway import Http, Stdio
from .servers import SERVERS

BY_NAME = {server.name: server for server in SERVERS}
META_TOOLS = ["call_tool", "load_tools", "tool_search"]


def text(raw):
    """All text of an answer, for checks that read it as a model would."""
    result = raw.get("result", {})
    blocks = [block.get("text", "") for block in result.get("content", []) if block.get("type") == "text"]
    return "\n".join(blocks + [json.dumps(result.get("structuredContent", ""))])


def lacking(wanted, where):
    missing = [one for one in wanted if one not in where]
    return f"missing {missing} in:\n{where[:3000]}" if missing else None


async def known(connection, tool, limit=120):
    """Searches for a tool by its name until it is found: its server may still be starting."""
    ends = time.monotonic() + limit
    while True:
        said = text(await connection.call("tool_search", {"query": f"select:{tool}"}))
        # A name that is not found is repeated, but without a description.
        if tool in said and "description" in said:
            return
        if time.monotonic() > ends:
            raise Failed(f"a search did not find {tool} within {limit} s: {said}")
        await asyncio.sleep(0.1)


class Endpoints:
    """One client in one era; a gateway over a few quick servers."""

    servers = [BY_NAME[name] for name in ("everything", "memory", "time")]

    def __init__(self, world, kind, era, transport):
        self.world, self.kind, self.era, self.transport = world, kind, era, transport
        self.name = f"{kind}/{era}/{transport}/endpoints"

    def steps(self):
        steps = [self.version, self.meta_tools, self.search, self.load, self.misfit, self.unknown_tool]
        if self.era == "2025":
            steps.append(self.inject)
            if self.transport == "http":
                steps.append(self.two_conversations)
        if self.transport == "http":
            steps += [self.unknown_tool_of_a_server, self.many_at_once]
        return steps

    def names(self):
        return [f"{self.name}/{step.__name__.replace('_', ' ')}" for step in self.steps()]

    async def run(self, report):
        self.site = self.world.site()
        self.config = self.site.config(self.servers)
        async with Driver(self.world.installed, self.kind, self.site.folder / "client.log") as self.driver:
            if self.transport == "stdio":
                await self.make(report)
            else:
                async with Http(self.world.binary, self.site, self.config) as self.gateway:
                    await self.make(report)

    async def make(self, report):
        async with await self.connect("mcp") as self.mcp:
            for server in self.servers:
                await known(self.mcp, f"{server.name}__{server.cases[0].tool}")
            for name, step in zip(self.names(), self.steps()):
                if report.wants(name):
                    try:
                        report.check(name, await step())
                    except Failed as error:
                        report.check(name, f"Failed: {error}")

    async def connect(self, endpoint):
        if self.transport == "http":
            target = self.gateway.target("/mcp" if endpoint == "mcp" else f"/mcp/{endpoint}")
        else:
            target = Stdio(self.world.binary, self.site, self.config, None if endpoint == "mcp" else endpoint).target
        return await self.driver.connect(target, self.era)

    async def version(self):
        # The first TypeScript SDK does not say what it agreed on over stdio.
        wanted = {"2025": ("2025-11-25", None), "2026": ("2026-07-28",)}[self.era]
        return None if self.mcp.version in wanted else f"agreed on {self.mcp.version}, wanted one of {wanted}"

    async def meta_tools(self):
        listed = sorted(tool["name"] for tool in await self.mcp.tools())
        return compare.difference(META_TOOLS, listed)

    async def search(self):
        found = await self.mcp.call("tool_search", {"query": "sum of two numbers"})
        return lacking(["everything__get-sum"], text(found))

    async def load(self):
        loaded = await self.mcp.call("load_tools", {"group_id": "memory"})
        return lacking(["memory__search_nodes", "query"], text(loaded))

    async def misfit(self):
        raw = await self.mcp.call("call_tool", {"tool_name": "everything__get-sum", "arguments": {"a": []}})
        if raw.get("result", {}).get("isError") is not True:
            return f"wanted a tool error, got {raw}"
        return lacking(["First number", "Second number"], text(raw))

    async def unknown_tool(self):
        raw = await self.mcp.call("call_tool", {"tool_name": "everything__get-summ", "arguments": {}})
        if raw.get("result", {}).get("isError") is not True:
            return f"wanted a tool error, got {raw}"
        # The near miss is named beside what was asked for.
        return lacking(["everything__get-sum"], text(raw).replace("everything__get-summ", ""))

    async def unknown_tool_of_a_server(self):
        async with await self.connect("s/time") as connection:
            raw = await connection.call("no_such_tool", {})
        failed = "error" in raw or raw.get("result", {}).get("isError") is True
        return lacking(["no_such_tool"], json.dumps(raw)) if failed else f"wanted an error, got {raw}"

    async def inject(self):
        """A tool found joins the list, the client is told, and the tool is called by its name."""
        async with await self.connect("inject") as connection:
            before = {tool["name"] for tool in await connection.tools()}
            if "everything__get-sum" in before:
                return "the tool is listed before anybody asked for it"
            await known(connection, "everything__get-sum")
            ends = time.monotonic() + 10
            while "notifications/tools/list_changed" not in await connection.notifications():
                if time.monotonic() > ends:
                    return "no notifications/tools/list_changed within 10 s of the search"
                await asyncio.sleep(0.02)
            listed = {tool["name"]: tool for tool in await connection.tools()}
            if "everything__get-sum" not in listed:
                return f"not listed after the search: {sorted(listed)}"
            raw = await connection.call("everything__get-sum", {"a": 2, "b": 40})
        return lacking(["The sum of 2 and 40 is 42."], text(raw))

    async def two_conversations(self):
        """What one client loads, another does not see."""
        async with await self.connect("inject") as one, await self.connect("inject") as other:
            await known(one, "everything__get-sum")
            seen = [tool["name"] for tool in await other.tools()]
            told = await other.notifications()
        if "everything__get-sum" in seen or "notifications/tools/list_changed" in told:
            return f"the other client saw {seen} and was told {told}"
        return None

    async def many_at_once(self):
        """Forty calls from eight clients at once, each with an answer of its own."""
        connections = [await self.connect("s/everything") for _ in range(8)]

        async def ask(number):
            raw = await connections[number % 8].call("echo", {"message": f"number {number}"})
            return lacking([f"number {number}\n"], text(raw))

        problems = await asyncio.gather(*(ask(number) for number in range(40)))
        for connection in connections:
            await connection.__aexit__()
        return next((problem for problem in problems if problem), None)


def endpoint_checks(world):
    return [
        Endpoints(world, kind, era, transport)
        for kind, era, transport in (
            ("python", "2025", "http"),
            ("python", "2026", "http"),
            ("typescript", "2025", "http"),
            ("typescript", "2026", "http"),
            ("python", "2025", "stdio"),
            ("typescript", "2026", "stdio"),
            ("typescript-1", "2025", "stdio"),
        )
    ]
