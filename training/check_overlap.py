"""Looks for evaluation data among the training texts.

    python3 training/check_overlap.py [--data training/.data] [--words 8] [--json FILE] SET...

A SET is a folder, searched to the bottom, or a file. Lines of `*.jsonl` with a `query` are queries,
those with a `name` and no query are tools; `*.json` with a list of `tools` is a captured server. The
training side is every row of `.data/*.jsonl.gz` but the sources that prepare.py leaves out.

Texts are compared as the words of text.py, without case, accents and punctuation. Counted are
equal texts, and texts that share a run of `--words` words. Ends with status 1 if a query of more than
three words is, word for word, a query or either side of a pair in the training rows. What prepare.py
drops (`MEASURED`) does not count, unless it still stands in the `texts.json.gz` that it wrote. Status 2
means that nothing could be compared.
"""
import argparse
import ast
import collections
import gzip
import json
import pathlib
import sys

from text import IS_UNSPACED, words

HERE = pathlib.Path(__file__).parent
SHORT = 3  # words; what people ask for in so few is bound to be written elsewhere too


def fail(text: str):
    print(text, file=sys.stderr)
    sys.exit(2)


def constant(name: str):
    """A constant of prepare.py, read without running it."""
    for node in ast.parse((HERE / "prepare.py").read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", None) == name:
            return ast.literal_eval(node.value)
    fail(f"prepare.py has no constant {name}")


def plain(text) -> tuple[str, ...]:
    return tuple(whole for whole, _ in words(text)) if isinstance(text, str) else ()


def length(found: tuple[str, ...]) -> int:
    """Words of a text; where the script has no spaces, two letters count as one."""
    return sum(max(1, len(word) // 2) if IS_UNSPACED.match(word) else 1 for word in found)


def runs(found: tuple[str, ...], size: int):
    for at in range(len(found) - size + 1):
        yield hash(found[at:at + size])


def measured(places: list[pathlib.Path]):
    """(set, is a query, text) of everything under the given files and folders."""
    for place in places:
        if not place.exists():
            fail(f"{place}: no such file or folder")
        found = sorted(path for path in place.rglob("*.json*") if path.is_file()) if place.is_dir() else [place]
        for path in found:
            name = path.parent.name if path.suffix == ".json" or path.stem in ("tools", "queries") else path.stem
            if path.suffix == ".jsonl":
                with path.open(encoding="utf-8") as lines:
                    for line in lines:
                        row = json.loads(line)
                        if "query" in row:
                            yield name, True, row["query"]
                        elif "name" in row:
                            yield name, False, row.get("description")
            elif path.suffix == ".json":
                document = json.loads(path.read_text(encoding="utf-8"))
                tools = document.get("tools") if isinstance(document, dict) else None
                for tool in tools or ():
                    yield name, False, tool.get("description")


def trained(data: pathlib.Path):
    """(source, stands for a query, text) of every training row, without the sources prepare.py leaves out."""
    unused = constant("UNUSED")
    paths = [path for path in sorted(data.glob("*.jsonl.gz")) if path.name.split(".")[0] not in unused]
    if not paths:
        fail(f"{data}: no *.jsonl.gz there; training/run makes them")
    for path in paths:
        source = path.name.split(".")[0]
        with gzip.open(path, "rt", encoding="utf-8") as lines:
            for line in lines:
                row = json.loads(line)
                if row["kind"] == "pair":
                    yield source, True, row["a"]
                    yield source, True, row["b"]
                    continue
                for query in row["queries"]:
                    yield source, True, query
                yield source, False, row["description"]
                for param in row["params"]:
                    yield source, False, param


def dropped(data: pathlib.Path) -> set[tuple[str, ...]]:
    """The texts that prepare.py drops and has dropped."""
    wanted = {plain(text) for text in constant("MEASURED")}
    prepared = data / "texts.json.gz"
    if not prepared.is_file():
        return wanted
    longest = 2 * max(sum(map(len, found)) + len(found) for found in wanted)
    with gzip.open(prepared, "rt", encoding="utf-8") as file:
        return wanted - {plain(text) for text in json.load(file) if len(text) <= longest}


def main() -> int:
    ask = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ask.add_argument("sets", type=pathlib.Path, nargs="+", metavar="SET")
    ask.add_argument("--data", type=pathlib.Path, default=HERE / ".data")
    ask.add_argument("--words", type=int, default=8)
    ask.add_argument("--json", type=pathlib.Path, help="also write every match to this file")
    args = ask.parse_args()

    items = [(name, is_query, text, plain(text)) for name, is_query, text in measured(args.sets)]
    items = [item for item in items if item[3]]
    if not items:
        fail("no queries and no tools in what was given")
    wanted = {found for _, _, _, found in items}
    parts = {run for _, _, _, found in items for run in runs(found, args.words)}

    without = dropped(args.data)
    as_query, as_text, shared = {}, {}, {}
    seen, count = set(), 0
    for source, is_query, text in trained(args.data):
        if (is_query, text) in seen:
            continue
        seen.add((is_query, text))
        count += 1
        found = plain(text)
        if found in without:
            continue
        if found in wanted:
            (as_query if is_query else as_text).setdefault(found, (source, text))
        for run in runs(found, args.words):
            if run in parts:
                shared.setdefault(run, (source, text))
    print(f"{count} different training texts, {len(items)} texts to look for\n")

    columns = ["queries", "= query", f"= query, > {SHORT} words", "= other text", f"{args.words} words shared",
               "tools", "= any text", f"{args.words} words shared"]
    table = collections.defaultdict(lambda: [0] * len(columns))
    matches = []
    for name, is_query, text, found in items:
        near = next((shared[run] for run in runs(found, args.words) if run in shared), None)
        row = table[name]
        if is_query:
            literal = found in as_query and length(found) > SHORT
            for at, holds in enumerate((True, found in as_query, literal, found in as_text, near)):
                row[at] += bool(holds)
            told = as_query.get(found) or as_text.get(found) or near
            if told:
                how = "literal" if literal else "short" if found in as_query else "text" if found in as_text else "shared"
                matches.append({"set": name, "query": text, "how": how, "source": told[0], "training": told[1]})
        else:
            for at, holds in enumerate((True, found in as_query or found in as_text, near), 5):
                row[at] += bool(holds)
    print("| set | " + " | ".join(columns) + " |\n|---|" + "---:|" * len(columns))
    total = [sum(column) for column in zip(*table.values())]
    for name, row in [*sorted(table.items()), ("all", total)]:
        print(f"| {name} | " + " | ".join(map(str, row)) + " |")
    for kind in ("literal", "text", "shared"):
        chosen = [match for match in matches if match["how"] == kind]
        if chosen:
            print(f"\n{kind}:")
        for match in chosen:
            print(f"  {match['set']}: {match['query'][:160]!r} — {match['source']}: {match['training'][:160]!r}")
    if args.json:
        args.json.write_text(json.dumps(matches, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
    literal = total[2]
    print(f"\n{literal} queries of more than {SHORT} words are in the training rows word for word")
    return 1 if literal else 0


if __name__ == "__main__":
    sys.exit(main())
