"""Every list and every call through the gateway, by each client, transport, era and endpoint."""

import asyncio
import time

from . import compare
from .driver import KINDS, Driver, Failed
from .endpoints import known
from .gateway import Http, Stdio
from .servers import SERVERS

CANCELLED = "trigger-long-running-operation"


class Route:
    """An endpoint, and how a server's tool is called on it."""

    def __init__(self, name, server=None):
        self.name, self.server = name, server

    def call(self, server, tool, arguments):
        if self.name == "mcp":
            return "call_tool", {"tool_name": f"{server.name}__{tool}", "arguments": arguments}
        if self.name == "named":
            # On /mcp too a tool may be called by its own name, though it is not listed.
            return f"{server.name}__{tool}", arguments
        return (f"{server.name}__{tool}" if self.name == "full" else tool), arguments

    def path(self, server):
        return {"mcp": "/mcp", "named": "/mcp", "full": "/mcp/full", "s": f"/mcp/s/{server.name}"}[self.name]

    def listed(self, server, tools):
        """The server's tools in this endpoint's list, by their own names."""
        if self.name == "s":
            return {tool["name"]: tool for tool in tools}
        mark = f"{server.name}__"
        return {tool["name"].removeprefix(mark): tool for tool in tools if tool["name"].startswith(mark)}


class Passthrough:
    """One client in one era over one transport, on some endpoints."""

    def __init__(self, world, kind, era, transport, routes, servers=SERVERS):
        self.world, self.kind, self.era, self.transport = world, kind, era, transport
        self.routes, self.servers = [Route(name) for name in routes], servers
        self.prefix = f"{kind}/{era}/{transport}"
        self.name = f"{self.prefix}/{'+'.join(routes)}"

    def label(self, route, server, what):
        return f"{self.prefix}/{route.name}/{server.name}/{what}"

    def cases(self, route, server):
        """What can be compared there. One-time cases go to the first route that is opened."""
        return [c for c in server.cases if not c.misfit and (not c.once or route is self.routes[0])]

    def names(self):
        names = []
        for route in self.routes:
            for server in self.servers:
                if route.name in ("full", "s"):
                    names.append(self.label(route, server, "tools"))
                names += [self.label(route, server, case.name) for case in self.cases(route, server)]
                if server.tapped:
                    names.append(self.label(route, server, "cancellation"))
        return names

    async def run(self, report):
        site = self.world.site()
        log = site.folder / "client.log"
        async with site.remote(self.servers), Driver(self.world.installed, self.kind, log) as driver:
            config = site.config(self.servers)
            if self.transport == "stdio":
                await self.over_stdio(report, site, config, driver)
            else:
                async with Http(self.world.binary, site, config) as gateway:
                    await asyncio.gather(*(self.over_http(report, site, gateway, driver, s) for s in self.servers))

    async def over_stdio(self, report, site, config, driver):
        (route,) = self.routes
        endpoint = {"mcp": None, "full": "full", "s": f"s/{self.servers[0].name}"}[route.name]
        target = Stdio(self.world.binary, site, config, endpoint).target
        async with await driver.connect(target, self.era) as connection:
            for server in self.servers:
                await self.server(report, site, route, server, connection)

    async def over_http(self, report, site, gateway, driver, server):
        for route in self.routes:
            async with await driver.connect(gateway.target(route.path(server)), self.era) as connection:
                await self.server(report, site, route, server, connection)

    async def server(self, report, site, route, server, connection):
        names = [n for n in self.names() if n.startswith(self.label(route, server, ""))]
        if not any(report.wants(name) for name in names):
            return
        try:
            await self.ready(route, server, connection)
            if route.name in ("full", "s"):
                report.check(self.label(route, server, "tools"), *await self.tools(site, route, server, connection))
            for case in self.cases(route, server):
                problem = await self.case(site, route, server, case, connection)
                report.check(self.label(route, server, case.name), problem)
            if server.tapped:
                problem = await self.cancellation(site, route, server, connection)
                report.check(self.label(route, server, "cancellation"), problem)
        except Failed as error:
            report.unmade(names, error)

    async def ready(self, route, server, connection):
        """Waits until the gateway knows the server's tools, as a client finds out: it may still be starting."""
        if route.name in ("mcp", "named"):
            await known(connection, f"{server.name}__{server.cases[0].tool}")
            return
        ends = time.monotonic() + 120
        while not route.listed(server, await connection.tools()):
            if time.monotonic() > ends:
                raise Failed(f"{server.name} was not listed within 120 s")
            await asyncio.sleep(0.1)

    async def tools(self, site, route, server, connection):
        """Equal tool by tool. A server may change its list after it starts, so what counts is what it comes to."""
        direct = await self.world.direct.answers(self.kind, self.era, server)
        ends = time.monotonic() + 20
        while True:
            listed = route.listed(server, await connection.tools())
            actual = {n: compare.plain({k: v for k, v in t.items() if k != "name"}, site.folder) for n, t in listed.items()}
            problem = compare.difference(direct.tools(), actual)
            if problem is None or time.monotonic() > ends:
                return problem, f"{len(listed)} tools"
            await asyncio.sleep(0.5)

    async def case(self, site, route, server, case, connection):
        problem = await self.compared(site, route, server, case, connection)
        if problem and case.dated:
            self.world.direct.forget(self.kind, self.era, server)
            problem = await self.compared(site, route, server, case, connection)
        return problem

    async def compared(self, site, route, server, case, connection):
        expected = await self.world.direct.expected(self.kind, self.era, server, case)
        tool, arguments = route.call(server, case.tool, site.fill(case.arguments))
        raw = await connection.call(tool, arguments, case.progress)
        actual = compare.answer(raw, site.folder)
        if "refused" in actual:
            # The SDK judges by the tool it listed: it must judge as it does directly.
            own = (await self.world.direct.answers(self.kind, self.era, server)).case(case.name)
            return compare.difference(own, actual)
        return compare.difference(expected, actual) or compare.disorder(raw)

    async def cancellation(self, site, route, server, connection):
        """The client cancels: the server hears of it, and the connection goes on."""
        # A duration of its own tells this call from the others in the server's log.
        duration = 300 + next(self.world.numbers)
        tool, arguments = route.call(server, CANCELLED, {"duration": duration, "steps": duration * 10})
        ended = await connection.cancel(tool, arguments)
        if ended["outcome"] != "cancelled" or not ended.get("progressed"):
            return f"the call was to progress and be cancelled; it ended as {ended}"
        problem = await self.heard(site, server, duration)
        if problem is None:
            sum_case = next(case for case in server.cases if case.name == "sum")
            after = await self.case(site, route, server, sum_case, connection)
            problem = after and f"the next call differs\n{after}"
        return problem

    async def heard(self, site, server, duration):
        ends = time.monotonic() + 10
        while True:
            sent = site.tapped(server, ">")
            ids = [m["id"] for m in sent if m.get("params", {}).get("arguments", {}).get("duration") == duration]
            if not ids:
                return "the server never received the call"
            told = [m["params"] for m in sent if m.get("method") == "notifications/cancelled"]
            if any(one.get("requestId") == ids[-1] for one in told):
                return None
            if time.monotonic() > ends:
                return f"the server received call {ids[-1]} and was never told of its end; cancelled: {told}"
            await asyncio.sleep(0.02)


def passthrough_checks(world):
    everything = [server for server in SERVERS if server.name == "everything"]
    groups = []
    for kind, eras in KINDS.items():
        for era in eras:
            groups.append(Passthrough(world, kind, era, "http", ["mcp", "full", "s"]))
            groups.append(Passthrough(world, kind, era, "stdio", ["mcp"]))
    for kind, era in (("python", "2025"), ("typescript", "2026")):
        groups.append(Passthrough(world, kind, era, "stdio", ["full"]))
        groups.append(Passthrough(world, kind, era, "stdio", ["s"], everything))
        groups.append(Passthrough(world, kind, era, "http", ["named"], everything))
    return groups
