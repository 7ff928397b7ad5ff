"""A table of scenarios, and what is not as expected."""

WIDTH = 48


def table(title, revisions, runs, columns):
    """How many checks of each scenario passed in each run, of how many."""
    heads = [(revision, column) for revision in revisions for column in columns]
    lines = ["", title.ljust(WIDTH) + "".join(f"{revision} {column}".ljust(22) for revision, column in heads)]
    names = {name for head in heads for name in runs[head].scenarios}
    for name in sorted(names):
        cells = []
        for revision, column in heads:
            # What the server passes directly is what there is to pass.
            full = runs.get((revision, "direct"), runs[revision, column]).scenarios.get(name)
            cells.append(cell(runs[revision, column].scenarios.get(name), full))
        lines.append(name.ljust(WIDTH) + "".join(text.ljust(22) for text in cells))
    totals = [total(runs[head]) for head in heads]
    lines.append("checks passed".ljust(WIDTH) + "".join(text.ljust(22) for text in totals))
    return "\n".join(lines)


def passed(checks):
    return {check for check, (status, _) in checks.items() if status == "SUCCESS"}


def bad(checks):
    return {check for check, (status, _) in checks.items() if status in ("WARNING", "FAILURE")}


def cell(checks, full):
    if checks is None:
        return "–"
    all_checks = passed(full or {}) | passed(checks) | bad(checks)
    if not all_checks:
        return "nothing to check"
    good = len(passed(checks))
    return str(good) if good == len(all_checks) else f"{good} of {len(all_checks)}"


def total(run):
    return str(sum(len(passed(checks)) for checks in run.scenarios.values()))


def differences(where, failures, known, verbose):
    """Prints failures nobody expected, and expected ones that did not come; says how many."""
    used, count = set(), 0
    for (scenario, check), said in sorted(failures.items()):
        names = {scenario, f"{scenario}:{check}"} & known.keys()
        used |= names
        if not names:
            count += 1
        if verbose or not names:
            first = said.splitlines()[0][:300] if said else ""
            print(f"{'known' if names else 'FAILS'}  {where}  {scenario}:{check}  {first}")
    for name in sorted(known.keys() - used):
        count += 1
        print(f"WORKS  {where}  {name} is expected to fail: take it out of expected.json")
    return count
