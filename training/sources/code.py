"""Training rows from the documentation inside open source packages.

    python3 training/sources/code.py [python] [typescript] [home] [packages]

Reads the pinned packages of packages.tsv and writes to training/.data:
python.jsonl.gz (docstrings), typescript.jsonl.gz (documentation comments of
declarations), home.jsonl.gz (Home Assistant's actions) and packages.jsonl.gz
(what each package says it is). No package is run.
"""

import ast
import csv
import email
import hashlib
import inspect
import json
import re
import sys
import warnings
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from download import every, npm, pypi, say
from rows import HELD_OUT, clean, pair, tool, write

PER_PACKAGE = 1500
PER_AZURE_PACKAGE = 300
BYTES = 3_000_000  # of source read from one package
# Folders that document nothing, and servers and benchmarks that evaluation sets are made of.
SKIP = re.compile(r"(^|[/_.-])(tests?|testing|_?vendor(ed)?|third_party|mcp|bench(marks?)?|fixtures|"
                  r"examples?|node_modules|locale|migrations|i18n|umd|cjs|commonjs)([/_.-]|$)", re.I)


def packages(registry: str) -> dict[str, str]:
    """Name and version of the pinned packages of a registry."""
    table = Path(__file__).with_name("packages.tsv")
    with open(table, encoding="utf-8", newline="") as file:
        return {row["name"]: row["version"] for row in csv.DictReader(file, delimiter="\t")
                if row["registry"] == registry}


def files(root: Path, endings: tuple[str, ...]) -> list[Path]:
    """A package's source files, at most BYTES of them, chosen by name."""
    found = []
    for path in root.rglob("*"):
        place = str(path.relative_to(root))
        if place.endswith(endings) and path.is_file():
            if not SKIP.search(place) and not HELD_OUT.search(place):
                found.append((hashlib.sha256(place.encode()).digest(), path))
    chosen, size = [], 0
    for _, path in sorted(found):
        size += path.stat().st_size
        if size > BYTES and chosen:
            break
        chosen.append(path)
    return sorted(chosen)


def build(name: str, found) -> list[dict]:
    """Rows of a package from (label, text, read), in an order given by their content, up to the limit.

    `read(text)` gives prose and parameters; it is called only for what is used.
    """
    most = PER_AZURE_PACKAGE if re.search("azure|msgraph", name, re.I) else PER_PACKAGE
    server = re.sub(r"^@types/|@", "", name).replace("/", " ")
    key = lambda item: hashlib.sha256(f"{item[0]} {item[1]}".encode()).digest()
    rows: dict[str, dict] = {}
    seen = set()
    for label, text, read in sorted(found, key=key):
        if len(rows) == most:
            break
        if text[:200] in seen or HELD_OUT.search(text):
            continue
        seen.add(text[:200])
        prose, params = read(text)
        row = tool(server, label, "", prose[:2000], params)
        if row:
            row["description"] = clean(row["description"], 400)
            rows.setdefault(row["queries"][0].lower(), row)
    return list(rows.values())


# Python

SECTION = re.compile(r"^\s*(?:(args|arguments|parameters|params|keyword args|other parameters)|"
                     r"returns?|yields?|raises?|examples?|notes?|see also|references|warnings?|"
                     r"attributes|usage|warns|todo|methods)\s*(?::\s*$|\n\s*[-=~]{3,}\s*$)", re.I | re.M)


def docstring(text: str) -> tuple[str, list[tuple[str, str]]]:
    """The prose of a docstring and its parameters (reST, Google and NumPy styles)."""
    marks = list(SECTION.finditer(text))
    field = re.search(r"^\s*[:@](param|type|returns?|rtype|raises?|keyword|ivar|arg)\b", text, re.M)
    ends = [mark.start() for mark in marks[:1]] + ([field.start()] if field else [])
    example = re.search(r"^\s*>>> |::\s*$", text, re.M)
    prose = text[: min(ends + ([example.start()] if example else []), default=len(text))]
    found = [(name, about) for name, about in re.findall(
        r"^\s*[:@](?:param|keyword|arg)\s+(?:[\w\[\], .|`~]+\s+)?\\?\*{0,2}(\w+)\s*:\s*(.*(?:\n(?!\s*[:@]\w|\s*\n).+)*)",
        text, re.M)]
    for index, mark in enumerate(marks):
        if not mark[1]:
            continue
        end = marks[index + 1].start() if index + 1 < len(marks) else len(text)
        body = inspect.cleandoc("\n" + text[mark.end(): end].strip("\n"))
        for item in re.split(r"\n(?=\S)", body):
            head, _, rest = item.partition("\n")
            google = re.match(r"\\?\*{0,2}(\w+)\s*(\([^)]*\))?\s*:\s+(.+)", head)
            if "---" in mark[0] or not google:
                head = re.match(r"[`*\\]*(\w+)", head)
                if head:
                    found.append((head[1], rest.split("\n\n")[0]))
            else:
                found.append((google[1], f"{google[3]} {rest}"))
    return prose, found


NO_TOOL = re.compile(r"(Error|Exception|Warning|Mixin|Meta)$|^(Base|Test|Abstract)")


def python_rows(name: str, root: Path) -> list[dict]:
    """Rows of the public functions and classes of a package."""
    found = []

    def visit(body, owner: str) -> None:
        for node in body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                if not NO_TOOL.search(node.name):
                    document(node, node.name, [])
                visit(node.body, node.name)
            elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and not node.name.startswith("_"):
                taken = [arg.arg for arg in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)]
                document(node, f"{owner}.{node.name}".strip("."),
                         [arg for arg in taken if arg not in ("self", "cls", "kwargs")])

    def document(node, label: str, taken: list[str]) -> None:
        def read(text: str):
            prose, documented = docstring(text)
            about = dict(documented)
            return prose.strip(), [(arg, about.get(arg, "")) for arg in taken] or documented

        text = ast.get_docstring(node)
        if text and len(text) >= 10:
            found.append((label, text, read))

    for path in files(root, (".py", ".pyi")):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                tree = ast.parse(path.read_text("utf-8", "ignore"))
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            continue
        visit(tree.body, "")
    return build(name, found)


# TypeScript

MODIFIERS = r"(?:(?:export|declare|default|public|static|abstract|async|readonly|override|get|const|let|var)\s+)*"
COMMENT = re.compile(r"/\*\*((?:[^*]|\*(?!/))*)\*/\s*((?:@\w+\([^)]*\)\s*)*[^\n]*)")
OWNER = re.compile(rf"^\s*{MODIFIERS}(?:class|interface|namespace|module)\s+['\"]?([A-Za-z_]\w*)", re.M)
CALLABLE = re.compile(MODIFIERS + r"(?:function\s+)?['\"]?([A-Za-z$][\w$./-]*)['\"]?\??\s*"
                      r"(?:<|\(|:\s*(?:<[^>]*>\s*)?\(|:\s*\{\s*$)")
NOISE = re.compile(r"(Resource|Instance|ListInstance|Impl|Interface|Static|Props|Options)$")


def comment(text: str) -> tuple[str, list[tuple[str, str]]]:
    """The prose of a documentation comment and its parameters."""
    text = re.sub(r"^[ \t]*\*? ?", "", text, flags=re.M)
    prose, *tags = re.split(r"^@(?=[a-zA-Z])", text, flags=re.M)
    params = []
    for tag in tags:
        kind, _, body = tag.partition(" ")
        if kind in ("param", "arg", "argument", "property"):
            found = re.match(r"\s*(?:\{[^}]*\}\s*)?\[?([\w$.]+)[^\s\]]*\]?\s*(?:-\s*)?(.*)", body, re.S)
            if found:
                params.append((found[1].rsplit(".", 1)[-1], found[2]))
        elif kind in ("description", "summary", "desc"):
            prose += f"\n\n{body}"
        elif kind.strip() in ("deprecated", "internal", "private", "hidden", "ignore"):
            return "", []
    return prose, params


def typescript_rows(name: str, root: Path) -> list[dict]:
    """Rows of the functions and methods that a package declares."""
    found = []
    for path in files(root, (".d.ts", ".d.mts")):
        source = path.read_text("utf-8", "ignore")
        owners = [(0, "")] + [(owner.start(), owner[1]) for owner in OWNER.finditer(source)]
        at = 0
        for note in COMMENT.finditer(source):
            while at + 1 < len(owners) and owners[at + 1][0] < note.start():
                at += 1
            line = note[2].strip()
            member = CALLABLE.match(line)
            if not member or member[1] in ("constructor", "if", "for", "return"):
                continue
            label = member[1]
            if source[max(note.start() - 1, 0): note.start()] in (" ", "\t"):  # indented: a member of what came last
                label = f"{NOISE.sub('', owners[at][1])}.{label}".strip(".")

            def read(text: str, line: str = line):
                prose, params = comment(text)
                inside = line.partition("(")[2]
                return prose, params or [(arg, "") for arg in
                                         re.findall(r"(?:^|,\s*)([A-Za-z_]\w*)\??\s*:", inside)]

            found.append((label, note[1], read))
    return build(name, found)


def harvest(source: str, fetch, registry: str, rows_of) -> None:
    """Rows of every pinned package of a registry."""
    roots = every(fetch, packages(registry))
    with ProcessPoolExecutor() as pool:
        jobs = [(name, pool.submit(rows_of, name, root)) for name, root in sorted(roots.items())]
        rows = []
        for name, job in jobs:
            found = job.result()
            rows += found
            say(f"{source}: {name} {len(found)}")
    write(source, rows)


def python() -> None:
    harvest("python", pypi, "pypi", python_rows)


def typescript() -> None:
    harvest("typescript", npm, "npm", typescript_rows)


# Home Assistant


def home() -> None:
    """Actions of Home Assistant's integrations, with their fields."""
    version = packages("pypi")["homeassistant"]
    rows = []
    for path in sorted(pypi("homeassistant", version).rglob("components/*/strings.json")):
        if HELD_OUT.search(path.parent.name):
            continue
        strings = json.loads(re.sub(r"\[%key:[^%\]]*%\]", "", path.read_text("utf-8")))  # references
        for key, service in sorted(strings.get("services", {}).items()):
            fields = service.get("fields", {})
            params = [(field, about.get("description", "")) for field, about in fields.items()]
            server = (strings.get("title") or path.parent.name).replace("_", " ")
            rows.append(tool(server, f"{path.parent.name}.{key}", "", service.get("description", ""), params))
            rows.append(pair(service.get("name", ""), service.get("description", "")))
    write("home", rows)


# What packages say of themselves


def about(text: str) -> str:
    """The first paragraph of prose in a read-me."""
    text = re.sub(r"```.*?```|<[^>]*>", " ", text, flags=re.S)
    for block in re.split(r"\n\s*\n", text):
        plain = clean(re.sub(r"^\s*(#.*|[=\-~]{3,}|\.\. .*|\|.*|:\w+:.*)$", "", block, flags=re.M))
        if len(plain.split()) >= 12 and not re.search(r"badge|shields|copyright|ESM only|install with|(npm|pip) install", plain, re.I):
            return plain
    return ""


def package_rows() -> None:
    """The summary of each package beside its keywords or read-me."""
    rows = []
    for name, root in every(pypi, packages("pypi")).items():
        for path in sorted(root.glob("*.dist-info/METADATA")) or sorted(root.glob("*/PKG-INFO")):
            message = email.message_from_string(path.read_text("utf-8", "ignore"))
            body = message.get_payload() or message.get("Description", "")
            rows.append(pair(str(message.get("Summary", "")), f"{name}: {about(body)}"))
    for name, root in every(npm, packages("npm")).items():
        if name.startswith("@types/"):
            continue
        for path in sorted(root.glob("*/package.json")):
            manifest = json.loads(path.read_text("utf-8", "ignore"))
            readme = next(iter(sorted(path.parent.glob("[Rr][Ee][Aa][Dd][Mm][Ee].md"))), None)
            words = manifest.get("keywords") or []
            keywords = " ".join(word for word in words if isinstance(word, str)) if isinstance(words, list) else ""
            rows.append(pair(manifest.get("description", ""), f"{name}: {keywords}" if keywords else ""))
            if readme:
                rows.append(pair(manifest.get("description", ""), about(readme.read_text("utf-8", "ignore"))))
    write("packages", rows)


if __name__ == "__main__":
    known = {"python": python, "typescript": typescript, "home": home, "packages": package_rows}
    for chosen in sys.argv[1:] or known:
        if chosen not in known:
            sys.exit(f"no source {chosen}; there are {', '.join(known)}")
        known[chosen]()
