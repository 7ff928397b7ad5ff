"""Training rows of tools: cleaning and filtering; and the order and writing of all rows.

A row is {"kind": "tool", "queries", "server", "name", "description", "params"} or
{"kind": "pair", "a", "b"}, with the language of `a` where it is not English.
"""

import gzip
import hashlib
import html
import json
import re
from collections import Counter
from pathlib import Path

from download import say

DATA = Path(__file__).resolve().parent.parent / ".data"
DESCRIPTION = 500  # characters of a description
PARAMETER = 120  # characters of a parameter with its description
PARAMETERS = 12
WORDS = range(2, 41)  # words of a query
SAME_QUERY = 12  # rows of one source that may share a query

# Services whose tools are in evaluation sets.
HELD_OUT = re.compile(r"(?<![a-z])(aws|amazon|amazonaws|google|googleapis|gcloud|gcp|gsutil|"
                      r"themoviedb|tmdb|spotify|rapidapi|boto)", re.I)

FOREIGN = set("""de la el los las del para por una con que se en un le les des du et est pour dans
sur avec au aux une der die das und ist von zu den mit ein eine auf het een van voor niet il di che
per non sono gli della os da do em uma na nie jest sie oder wird och att som""".split())
ENGLISH = set("""the a of to and for in is are with by from this that an or on be as it if not all
get list create delete update set returns return given new add remove""".split())

MARKUP = re.compile(r"[`<>\[{&*_#|~\\\x00-\x08\x7f-\x9f\u200b-\u200f\ufeff]|://|\.\. |--|==|\n\s*[-+>]\s")


def cut(text: str, limit: int) -> str:
    """The text, shortened at a word where it is longer than a limit other than 0."""
    if limit and len(text) > limit:
        return text[:limit].rsplit(" ", 1)[0].rstrip(" ,;:(")
    return text


def clean(text, limit: int = 0) -> str:
    """Plain text on one line: markup, links and code fences dropped; cut at a word if too long."""
    if not isinstance(text, str):
        return ""
    if not MARKUP.search(text):
        return cut(" ".join(text.split()), limit)
    text = re.sub(r"```.*?(```|\Z)", " ", text, flags=re.S)
    text = re.sub(r"<(pre|script|style)\b.*?(</\1>|\Z)", " ", text, flags=re.S | re.I)
    text = re.sub(r"</?[a-zA-Z][^<>]*>|<!--.*?-->", " ", text, flags=re.S)
    text = html.unescape(text).replace("\\n", " ")
    text = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", text)  # Markdown links and images
    text = re.sub(r"\{@\w+\s+([^}|]*)(\|([^}]*))?\}", lambda m: m[3] or m[1], text)  # JSDoc
    text = re.sub(r":[a-zA-Z][\w:.+-]*:`~?!?([^`<]*?)\s*(<[^`]*>)?`", r"\1", text)  # RST roles
    text = re.sub(r"^\s*\.\. .*$", " ", text, flags=re.M)  # RST directives
    text = re.sub(r"^\s*([=\-~^#*|+]{3,}|#{1,6}\s|[>*+-]\s)", " ", text, flags=re.M)
    text = re.sub(r"`+([^`]*)`+_*", r"\1", text)
    text = re.sub(r"(\*\*|__)(\S.*?)\1", r"\2", text)
    text = re.sub(r"https?://\S+", " ", text)
    text = re.sub(r"[\x00-\x1f\x7f-\x9f\u200b-\u200f\ufeff`]", " ", text)
    return cut(" ".join(text.split()), limit)


def sentence(text: str) -> tuple[str, str]:
    """The first sentence of a cleaned text and what follows it."""
    for stop in re.finditer(r"[.!?](?=\s+[A-Z\"'(\[0-9])", text):
        if not re.search(r"\b(e\.g|i\.e|etc|vs|cf|approx|no|resp|incl)\.$", text[: stop.end()], re.I):
            return text[: stop.end()].strip(), text[stop.end():].strip()
    return text, ""


def english(text: str) -> bool:
    """Whether a text is plausibly English: Latin letters, few foreign function words."""
    if sum(c.isascii() for c in text) < 0.97 * len(text):
        return False
    words = re.findall(r"[a-z]+", text.lower())
    foreign = sum(word in FOREIGN for word in words)
    return foreign < 2 or foreign <= sum(word in ENGLISH for word in words)


# Warnings, signatures and what generators write for every class alike.
EMPTY = re.compile(r"\b(deprecated|not implemented|do not use|internal use|see also|todo|fixme)\b|->|::|"
                   r"^(call the \w+ query|check if a given object implements|interface representing|"
                   r"returns the string|this class was auto|build an? \w+$)", re.I)


def query(text: str) -> str:
    """The text as a query, or nothing if it is no good as one."""
    text = re.sub(r"^[^\w(\"']+", "", text).strip(" .:;,-")
    words = re.findall(r"[A-Za-z][\w'-]*", text)
    if len(words) not in WORDS or len(text) > 320 or not english(text):
        return ""
    if EMPTY.search(text):
        return ""
    return text


def same(left: str, right: str) -> bool:
    """Whether two texts have the same letters and digits."""
    plain = lambda text: re.sub(r"[^a-z0-9]+", "", text.lower())
    return plain(left) == plain(right)


def tool(server: str, name: str, summary: str, description: str = "", params=()) -> dict | None:
    """A row for an operation. Without a summary, the description's first sentence is the query."""
    if isinstance(description, str):  # a paragraph ends a sentence, with or without a full stop
        description = re.sub(r"([^\s.!?:;,])[ \t]*\n\s*\n", r"\1.\n\n", description.strip())
    summary, description = clean(summary), clean(description)
    first, rest = sentence(description)
    if summary and not same(summary, first) and not same(summary, description):
        head, more = sentence(summary)
        asked, left = query(head), f"{more} {description}".strip()
    else:
        asked, left = query(first), rest
    if not asked or same(asked, name) or HELD_OUT.search(f"{asked} {server} {name}"):
        return None
    if left and not english(left[:DESCRIPTION]):
        left = ""
    seen: dict[str, str] = {}
    for label, about in params:
        label, about = clean(label), clean(about)
        if label and label not in seen:
            text = f"{label}: {about}" if about and not same(about, label) and english(about) else label
            seen[label] = clean(text, PARAMETER)
        if len(seen) == PARAMETERS:
            break
    return {"kind": "tool", "queries": [asked], "server": clean(server, 60), "name": name[:120],
            "description": clean(left, DESCRIPTION), "params": list(seen.values())}


def pair(a: str, b: str) -> dict | None:
    """A row for two texts that mean the same."""
    a, b = query(clean(a, 320)), clean(b, DESCRIPTION)
    if not a or len(b.split()) < 2 or not english(b) or same(a, b):
        return None
    return {"kind": "pair", "a": a, "b": b}


def order(row: dict) -> str:
    """A key that shuffles rows the same way every time."""
    return hashlib.sha256(json.dumps(row, sort_keys=True).encode()).hexdigest()


def sample(rows: list[dict], most: int) -> list[dict]:
    """At most so many rows, chosen by their content."""
    return rows if len(rows) <= most else sorted(rows, key=order)[:most]


def save(name: str, rows) -> int:
    """Writes the rows, sorted, to .data/<name>.jsonl.gz; returns how many."""
    lines = sorted(json.dumps(row, ensure_ascii=False) for row in rows)
    DATA.mkdir(parents=True, exist_ok=True)
    path = DATA / f"{name}.jsonl.gz"
    with open(path, "wb") as raw, gzip.GzipFile("", "wb", 6, raw, mtime=0) as file:
        for line in lines:
            file.write(line.encode() + b"\n")
    say(f"{path.name}: {len(lines)} rows")
    return len(lines)


def write(source: str, rows) -> int:
    """Drops repeats and saves the rows; returns how many."""
    kept, asked, seen = [], Counter(), set()
    for row in sorted((row for row in rows if row), key=order):
        text = (row["queries"][0] if row["kind"] == "tool" else row["a"]).lower()
        key = (text, row.get("server"), row.get("description"), row.get("b"))
        if key in seen or asked[text] >= SAME_QUERY:
            continue
        seen.add(key)
        asked[text] += 1
        kept.append(row)
    return save(source, kept)
