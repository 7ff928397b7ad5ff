"""One line per check, a log with both sides of each failure, a summary."""

import fnmatch
import sys
import time


class Report:
    def __init__(self, only, log):
        self.only, self.file = only, log
        self.passed, self.failed, self.started = [], [], time.monotonic()
        log.parent.mkdir(parents=True, exist_ok=True)
        log.write_text("")

    def wants(self, name):
        """Whether a check was chosen: no `--only`, or a pattern that is in its name or matches it."""
        return not self.only or any(one in name or fnmatch.fnmatch(name, one) for one in self.only)

    def check(self, name, problem, note=""):
        """Records one check. `problem` is None when it passed."""
        if not self.wants(name):
            return
        if problem is None:
            self.passed.append(name)
            self.say(f"ok    {name}{'  ' + note if note else ''}")
            return
        self.failed.append(name)
        with self.file.open("a") as log:
            log.write(f"=== {name}\n{problem}\n\n")
        first = str(problem).strip().splitlines()
        self.say(f"FAIL  {name}: {first[0][:300] if first else ''}")

    def unmade(self, names, reason):
        """A check that was promised and not made has failed."""
        made = set(self.passed) | set(self.failed)
        for name in names:
            if name not in made:
                self.check(name, f"not made: {reason}")

    def say(self, line):
        print(line, flush=True)

    def note(self, line):
        print(f"      {line}", file=sys.stderr, flush=True)

    def close(self):
        total = len(self.passed) + len(self.failed)
        if self.failed:
            print(f"\nboth sides of each failure: {self.file}")
        print(f"\n{total} checks, {len(self.failed)} failed, {time.monotonic() - self.started:.0f} s")
        return 1 if self.failed or not total else 0
