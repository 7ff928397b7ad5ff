"""Runs of the suite, and what came of each check."""

import json
import os
import shlex
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from .programs import environment

REVISIONS = ["2025-11-25", "2026-07-28"]
DRIVER = Path(__file__).resolve().parent / "driver.py"
# The mildest first: of several checks by one name, the worst counts.
RANKS = ["SKIPPED", "INFO", "SUCCESS", "WARNING", "FAILURE"]
MOST_MS = 90_000
AT_ONCE = 2
BAD = ("WARNING", "FAILURE")


class Run:
    """The checks of each scenario: the worst status of each, and what was said of it."""

    def __init__(self, scenarios):
        self.scenarios = scenarios

    def failures(self, other=None):
        """Checks that failed; compared with another run, also those that only the other one passed."""
        failed = {}
        for scenario, checks in self.scenarios.items():
            for check, (status, said) in checks.items():
                if status in BAD:
                    failed[scenario, check] = said
        for scenario, checks in (other.scenarios if other else {}).items():
            for check, (status, _) in checks.items():
                here, said = self.scenarios.get(scenario, {}).get(check, (None, ""))
                if status == "SUCCESS" and here in (None, "SKIPPED", "INFO"):
                    failed[scenario, check] = said or "not reached"
        return failed


class Suite:
    def __init__(self, command, folder, only):
        self.command, self.folder, self.only = command, folder, only
        self.runs = 0

    def serve(self, url, revision):
        """The server scenarios against one URL."""
        output = self.output()
        if self.only:
            for scenario in self.named("server", revision):
                options = ["--spec-version", revision, "--force", "-o", output]
                self.call("server", "--url", url, "--scenario", scenario, *options)
        else:
            self.call("server", "--url", url, "--requirements", revision, "-o", output)
        return Run(self.some(read(output, "server-")))

    def connect(self, binary, revision):
        """The client scenarios, with the gateway as the client: some at once, as each starts a gateway."""
        output = self.output()
        home = output / "home"
        home.mkdir(parents=True)
        command = shlex.join([sys.executable, "-S", str(DRIVER), str(binary), str(home)])

        def one(scenario):
            options = ["--spec-version", revision, "--force", "--timeout", str(MOST_MS), "-o", output / "out"]
            return self.run("client", "--command", command, "--scenario", scenario, *options)

        named = self.named("client", revision)
        with ThreadPoolExecutor(AT_ONCE) as pool:
            done = dict(zip(named, pool.map(one, named)))
        scenarios = self.some(read(output / "out", ""))
        for scenario, checks in scenarios.items():
            # The suite also minds a client that failed, though every check it could make is fine.
            if done[scenario].returncode and not any(status in BAD for status, _ in checks.values()):
                checks["driver"] = ("FAILURE", refusal(output / "out", scenario))
        return Run(scenarios)

    def named(self, role, revision):
        """The scenarios of a role that a revision requires, and those that came later. Extensions are optional."""
        names, kind = [], None
        for line in self.call("list", "--requirements", revision).splitlines():
            if line.endswith(":"):
                kind = line.strip().removesuffix(":")
            elif line.strip().startswith("- "):
                name, _, leg = line.strip(" -").partition(" ")
                required = kind.lower().startswith(f"{role} scenarios")
                later = leg == f"[{role}]" and not kind.startswith("extension")
                if (required or later) and (self.only or "") in name:
                    names.append(name)
        return names

    def some(self, scenarios):
        if not scenarios and not self.only:
            sys.exit("conformance: the suite left no results")
        return scenarios

    def output(self):
        self.runs += 1
        return self.folder / f"run-{self.runs}"

    def call(self, *arguments):
        return self.run(*arguments).stdout

    def run(self, *arguments):
        env = {**os.environ, **environment(self.folder), "NO_COLOR": "1"}
        command = [*self.command, *map(str, arguments)]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=env)
        if done.returncode not in (0, 1):
            sys.exit(f"conformance: the suite itself failed:\n{done.stdout[-4000:]}")
        return done


def read(output, prefix):
    """What the suite wrote of each scenario."""
    scenarios = {}
    for file in sorted(output.rglob("checks.json")):
        checks = scenarios.setdefault(scenario_of(file, output, prefix), {})
        found = json.loads(file.read_text())
        names = {}
        for check in found:
            names.setdefault(check["id"], set()).add(check["name"])
        for check in found:
            # One id may stand for several checks, which their names tell apart.
            key = check["id"] if len(names[check["id"]]) == 1 else f"{check['id']}/{check['name']}"
            before, _ = checks.get(key, ("SKIPPED", ""))
            if key not in checks or RANKS.index(check["status"]) > RANKS.index(before):
                checks[key] = (check["status"], check.get("errorMessage") or "")
    return scenarios


def refusal(output, scenario):
    """What the driver said last."""
    for file in output.rglob("stderr.txt"):
        if scenario_of(file, output, "") == scenario and (lines := file.read_text().strip().splitlines()):
            return lines[-1]
    return "the driver failed"


def scenario_of(file, output, prefix):
    """A result's folder is named after the scenario and the time."""
    return str(file.parent.relative_to(output)).removeprefix(prefix).rsplit("-", 6)[0]
