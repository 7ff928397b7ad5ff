"""What is known to fail behind the gateway, with the reason."""

import json


class Expected:
    def __init__(self, file, chosen):
        self.entries = json.loads(file.read_text())
        self.chosen = chosen

    def none(self):
        return {}

    def of(self, role, revision):
        """The entries of one run: a scenario, or `scenario:check` for one check of it; each with its reason."""
        known = {}
        for entry in self.entries:
            for name in entry.get(f"{role} {revision}", []):
                scenario = name.split(":")[0]
                if (self.chosen.only or "") in scenario:
                    known[name] = entry["reason"]
        return known
