"""One bad server among nine good ones: nobody else is slower for it, and a search says what is wrong."""

import asyncio
import re
import statistics
import sys
import time
from contextlib import AsyncExitStack

from .driver import Driver, Failed
from .endpoints import BY_NAME, text
from .gateway import Http

GOOD = ["everything", "filesystem", "memory", "thinking", "git", "time", "fetch", "sqlite", "calculator"]
BAD = {
    "hangs": {"command": sys.executable, "args": ["-S", "-c", "import time; time.sleep(1000)"]},
    "exits": {"command": "false", "args": []},
}
REASON = {"hangs": r"start|time|answer|respond|connect", "exits": r"exit|ended|closed|stopped|died"}
VARIANTS = ("alone", *BAD)
ROUNDS, MORE_ROUNDS = 3, 2
"""Cold starts of each, and as many more if the medians of the first say slower: then all count."""
WARM = {"list": 40, "full list": 40, "calls": 15}
"""Warm measurements of each, made twice if the first say slower."""
SHARE = 1.2
FLOOR = {"first": 0.3, "start": 0.3, "list": 0.003, "call": 0.009}
"""Seconds that two equal runs may differ by, whatever the share: one process that starts while nine servers start on
the same few cores, all of them, one round trip, nine of them."""


def call(server):
    """One call of a server that works."""
    case = BY_NAME[server].cases[0]
    return f"{server}__{case.tool}", case.arguments


MEASURES = {
    "first list": "first",  # from spawn to the first tools/list on /mcp
    "start": "start",  # from spawn until all nine are listed on /mcp/full and each has answered a call
    "list": "list",  # tools/list on /mcp, warm
    "full list": "list",  # tools/list on /mcp/full, warm
    "calls": "call",  # one call to each server in turn, warm
}
"""What is timed, each with the floor it is judged by."""


class Stand:
    """A gateway over the nine good servers, and perhaps a bad one, with the connections that are timed."""

    def __init__(self, world, driver, variant):
        self.site = world.site()
        config = self.site.config([BY_NAME[name] for name in GOOD], {variant: BAD[variant]} if variant in BAD else None)
        self.driver, self.variant, self.stack = driver, variant, AsyncExitStack()
        self.gateway = Http(world.binary, self.site, config)

    async def connect(self, route):
        return await self.stack.enter_async_context(await self.driver.connect(self.gateway.target(route), "2025"))

    async def start(self):
        """A cold start in an empty home. Seconds to the first list, and until each of the nine has answered."""
        began = time.monotonic()
        await self.stack.enter_async_context(self.gateway)
        self.mcp = await self.connect("/mcp")
        await self.mcp.tools()
        first = time.monotonic() - began
        self.full = await self.connect("/mcp/full")
        await self.all_listed(began + 90)
        connections = [await self.connect("/mcp") for _ in GOOD]
        await asyncio.gather(*(self.call(server, connection) for server, connection in zip(GOOD, connections)))
        return first, time.monotonic() - began

    async def all_listed(self, ends):
        while True:
            listed = {tool["name"].partition("__")[0] for tool in await self.full.tools()}
            if listed >= set(GOOD):
                return
            if time.monotonic() > ends:
                raise Failed(f"never listed: {sorted(set(GOOD) - listed)}")
            await asyncio.sleep(0.02)

    async def call(self, server, connection=None):
        tool, arguments = call(server)
        request = {"tool_name": tool, "arguments": self.site.fill(arguments)}
        raw = await (connection or self.mcp).call("call_tool", request)
        if "result" not in raw or raw["result"].get("isError"):
            raise Failed(f"{tool} failed: {str(raw)[:500]}")

    async def each_call(self):
        for server in GOOD:
            await self.call(server)

    async def stop(self):
        await self.stack.aclose()


class OneBadServer:
    """Nine good servers, alone and with a bad one. Measurements take turns, so that a slow moment hits all alike."""

    name = "resilience/one bad server"

    def __init__(self, world):
        self.world = world

    def names(self):
        return [f"{self.name}/{bad}/{what}" for bad in BAD for what in [*MEASURES, "named with its reason"]]

    async def run(self, report):
        self.times = {variant: {what: [] for what in MEASURES} for variant in VARIANTS}
        async with (
            Driver(self.world.installed, "python", self.world.folder / "resilience.log") as driver,
            AsyncExitStack() as kept,
        ):
            # The first round's gateways stay for the warm measurements; idle, they disturb nobody.
            stands = await self.cold(driver, kept)
            for _ in range(ROUNDS - 1):
                await self.cold(driver)
            if self.slower("first list", "start"):
                for _ in range(MORE_ROUNDS):
                    await self.cold(driver)
            await self.warm(stands)
            if self.slower("list", "full list", "calls"):
                await self.warm(stands)
            for bad in BAD:
                said = text(await stands[bad].mcp.call("tool_search", {"query": bad}))
                report.check(f"{self.name}/{bad}/named with its reason", self.reason(bad, said))
        for bad in BAD:
            for what in MEASURES:
                with_it, without, limit = self.medians(bad, what)
                note = f"{with_it * 1e3:.1f} ms with it, {without * 1e3:.1f} ms without, limit {limit * 1e3:.1f} ms"
                report.check(f"{self.name}/{bad}/{what}", note if with_it > limit else None, note)

    async def cold(self, driver, kept=None):
        stands = {variant: Stand(self.world, driver, variant) for variant in VARIANTS}
        for variant, stand in stands.items():
            if kept is not None:
                kept.push_async_callback(stand.stop)
            try:
                first, all_nine = await stand.start()
                self.times[variant]["first list"].append(first)
                self.times[variant]["start"].append(all_nine)
            finally:
                if kept is None:
                    await stand.stop()
        return stands

    async def warm(self, stands):
        actions = {"list": lambda s: s.mcp.tools(), "full list": lambda s: s.full.tools(), "calls": Stand.each_call}
        for what, action in actions.items():
            for _ in range(WARM[what]):
                for variant, stand in stands.items():
                    began = time.monotonic()
                    await action(stand)
                    self.times[variant][what].append(time.monotonic() - began)

    def medians(self, bad, what):
        with_it, without = (statistics.median(self.times[variant][what]) for variant in (bad, "alone"))
        return with_it, without, max(without * SHARE, without + FLOOR[MEASURES[what]])

    def slower(self, *measures):
        judged = (self.medians(bad, what) for bad in BAD for what in measures)
        return any(with_it > limit for with_it, _, limit in judged)

    @staticmethod
    def reason(bad, said):
        line = next((line for line in said.splitlines() if bad in line and re.search(REASON[bad], line, re.I)), None)
        return None if line else f"no line names `{bad}` with a reason like /{REASON[bad]}/ in:\n{said[:2000]}"


def bad_server_checks(world):
    return [OneBadServer(world)]
