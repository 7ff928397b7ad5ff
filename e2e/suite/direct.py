"""Direct calls: what the gateway is compared with, and a comparison of its own between the SDKs."""

import asyncio

from . import compare
from .driver import KINDS, Driver
from .servers import SERVERS


class Answers:
    """What one server answered one client directly: its tools, and each case by name."""

    def __init__(self, folder, tools, cases):
        self.folder, self.listed, self.cases = folder, tools, cases

    def tools(self):
        return compare.tools(self.listed, self.folder)

    def case(self, name):
        return compare.answer(self.cases[name], self.folder)


class Direct:
    """Direct answers, made once per server, client and era and kept."""

    def __init__(self, world):
        self.world, self.made = world, {}
        self.at_once = asyncio.Semaphore(3)

    async def answers(self, kind, era, server):
        key = self.key(kind, era, server)
        if key not in self.made:
            self.made[key] = asyncio.create_task(self.make(kind, key[1], server))
        return await self.made[key]

    def forget(self, kind, era, server):
        self.made.pop(self.key(kind, era, server), None)

    @staticmethod
    def key(kind, era, server):
        # A server that knows only 2025 is asked in 2025, whatever the gateway's client speaks.
        return kind, era if server.modern else "2025", server.name

    async def expected(self, kind, era, server, case):
        """One answer; the Python client's where this client's SDK refuses to send the call."""
        own = (await self.answers(kind, era, server)).case(case.name)
        if "refused" in own and kind != "python":
            return (await self.answers("python", era, server)).case(case.name)
        return own

    async def make(self, kind, era, server):
        async with self.at_once:
            site = self.world.site()
            log = site.folder / "client.log"
            async with site.remote([server]), Driver(self.world.installed, kind, log) as driver:
                async with await driver.connect(site.direct(server), era) as connection:
                    tools = await connection.tools()
                    cases = {
                        case.name: await connection.call(case.tool, site.fill(case.arguments), case.progress)
                        for case in server.cases
                    }
            return Answers(site.folder, tools, cases)


class DirectChecks:
    """Every case gives what it is for, and the same to every SDK: otherwise nothing below would mean anything."""

    def __init__(self, world, server):
        self.world, self.server = world, server
        self.name = f"direct/{server.name}"

    def names(self):
        return [f"{self.name}/tools"] + [f"{self.name}/{case.name}" for case in self.server.cases]

    async def run(self, report):
        kinds = [(kind, era) for kind, eras in KINDS.items() for era in eras if era == "2025" or self.server.modern]
        asked = [self.world.direct.answers(kind, era, self.server) for kind, era in kinds]
        (reference, *others) = await asyncio.gather(*asked)
        # Eras may describe a tool differently, so lists are compared within one.
        same_era = [other for (_, era), other in zip(kinds[1:], others) if era == "2025"]
        report.check(
            f"{self.name}/tools",
            next((d for o in same_era if (d := compare.difference(reference.tools(), o.tools()))), None)
            or (None if reference.listed else "the server lists no tools"),
            f"{len(reference.listed)} tools",
        )
        for case in self.server.cases:
            problem = compare.gives(case, reference.cases[case.name]) or compare.disorder(reference.cases[case.name])
            for (kind, era), other in zip(kinds[1:], others):
                answer = other.case(case.name)
                if problem is None and "refused" not in answer:
                    problem = compare.difference(reference.case(case.name), answer)
                    problem = problem and f"python 2025 and {kind} {era} differ\n{problem}"
            report.check(f"{self.name}/{case.name}", problem)


def direct_checks(world):
    return [DirectChecks(world, server) for server in SERVERS]

