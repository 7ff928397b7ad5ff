"""What the sources of plain text share: pinned GitHub checkouts, cleaning and writing of pairs."""

import html
import json
import re
import shutil
import subprocess
import sys
import unicodedata
from functools import lru_cache
from pathlib import Path

import download
from rows import save

CACHE = download.CACHE / "github"

# Languages kept, by the first part of their tags; Chinese is told apart by script.
LANGUAGES = """ar bg bn ca cs da de el es fa fi fr he hi hu id it ja ko nb nl pl pt ro ru sk sv th tr
uk vi zh-CN zh-TW""".split()
SAME = {"no": "nb", "iw": "he", "in": "id", "cmn": "zh-CN", "zh": "zh-CN", "zh-hans": "zh-CN",
        "zh-sg": "zh-CN", "zh-cn": "zh-CN", "zh-hans-cn": "zh-CN", "zh-hant": "zh-TW",
        "zh-tw": "zh-TW", "zh-hk": "zh-TW", "zh-hant-tw": "zh-TW", "cn": "zh-CN", "jp": "ja"}
# A translation into one of these must have at least one letter of its script.
SCRIPTS = {"ar": "ARABIC", "fa": "ARABIC", "bg": "CYRILLIC", "ru": "CYRILLIC", "uk": "CYRILLIC",
           "bn": "BENGALI", "el": "GREEK", "he": "HEBREW", "hi": "DEVANAGARI", "th": "THAI",
           "ja": "CJK|HIRAGANA|KATAKANA", "ko": "HANGUL", "zh-CN": "CJK", "zh-TW": "CJK"}


def language(tag: str) -> str | None:
    """One of LANGUAGES for a tag such as pt_BR, zh-Hans or values-in-rID."""
    tag = tag.replace("_", "-").replace("-r", "-").lower()
    for end in (len(tag), tag.find("-") if "-" in tag else len(tag)):
        found = SAME.get(tag[:end], tag[:end])
        if found in LANGUAGES:
            return found
    return None


def github(repo: str, commit: str, *paths: str) -> Path:
    """The named paths of a public repository at one commit."""
    target = CACHE / f"{repo.replace('/', '+')}-{commit[:12]}"
    if not target.is_dir():
        scratch = target.with_suffix(".partial")
        shutil.rmtree(scratch, ignore_errors=True)
        scratch.mkdir(parents=True)
        for command in (["init", "--quiet"],
                        ["remote", "add", "origin", f"https://github.com/{repo}"],
                        ["config", "remote.origin.promisor", "true"],
                        ["config", "remote.origin.partialclonefilter", "blob:none"],
                        ["fetch", "--quiet", "--depth=1", "--filter=blob:none", "origin", commit],
                        ["checkout", "--quiet", commit, "--", *paths]):
            subprocess.run(["git", "-C", str(scratch), *command], check=True)
        shutil.rmtree(scratch / ".git")
        scratch.rename(target)
    return target


def load(path: Path):
    """A JSON file, without its byte order mark and tolerating control characters."""
    try:
        return json.loads(path.read_text("utf-8-sig"), strict=False)
    except json.JSONDecodeError as error:
        print(f"left out {path}: {error}", file=sys.stderr)
        return {}


PLACEHOLDER = re.compile(
    r"\$\([\w~-]+\)|\$\{[^{}]*\}|\{\{[^{}]*\}\}|\{[\w .:$-]*\}|%\([\w.]+\)[a-z]|%\d*\$?[-\d.]*[sdifu@](?![a-z])"
    r"|%\{[^{}]*\}|\$[a-z]+_[a-z_]+\$|__\w+__|\$t\([^)]*\)|@:\S+|\[%key:[^\]]*\]")


@lru_cache(1 << 18)
def clean(text) -> str:
    """A UI string without placeholders, markup and access keys; empty where it is none."""
    if not isinstance(text, str) or re.search(r",\s*(plural|select|selectordinal)\s*,", text):
        return ""
    text = html.unescape(text)
    text = re.sub(r"</?[a-zA-Z][^<>]*>|<!--.*?-->", " ", text, flags=re.S)
    text = re.sub(r"\s?[(（]&{1,2}[A-Za-z0-9][)）]", "", text)
    text = text.replace("&&", "")
    text = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", text)
    text = PLACEHOLDER.sub(" ", text)
    text = re.sub(r"https?://\S+", " ", text)
    text = re.sub(r"(\*\*|__|`+)", " ", text).replace("\\n", " ").replace("\\'", "'").replace('\\"', '"')
    text = re.sub(r"[\x00-\x1f\x7f-\x9f\u200b-\u200f\u2060-\u2069\ufeff]", " ", text)
    text = re.sub(r"[\"'“”„«»‘’「」]\s*[\"'“”„«»‘’「」]|\(\s*\)|（\s*）|\[\s*\]", " ", text)
    text = re.sub(r"\s+([,.;:!?…])", r"\1", re.sub(r"\s+", " ", text))
    return text.strip(" .:;,-–—…·|/\\*#>=+~&_•。：，、；\"'“”«»")


def letters(text: str) -> int:
    """How many letters a text has."""
    return sum(c.isalpha() for c in text)


def scripted(text: str, lang: str) -> bool:
    """Whether the text has letters of its language's script."""
    if lang not in SCRIPTS:
        return True
    return any(re.match(SCRIPTS[lang], unicodedata.name(c, "")) for c in text if ord(c) > 127)


def untranslated(a: str, b: str) -> bool:
    """Whether a translation in Latin letters is really English: an older wording, or most words the same."""
    ours, theirs = re.findall(r"\w+", b.lower()), re.findall(r"\w+", a.lower())
    if len(theirs) < 3:
        return False
    telling = sum(word in {"the", "and", "your", "you", "this", "with", "from"} for word in theirs)
    return telling >= 2 or sum(word in ours for word in theirs) > 0.7 * len(theirs)


def pair(a: str, b: str, lang: str, **more) -> dict | None:
    """A foreign and an English string as a row, or nothing if they are no good."""
    a, b = clean(a), clean(b)
    # One Chinese or Japanese letter can be a word.
    short = 1 if lang in ("zh-CN", "zh-TW", "ja", "ko") else 2
    if letters(a) < short or letters(b) < 2 or len(a) > 320 or len(b) > 320:
        return None
    if a.casefold() == b.casefold() or not scripted(a, lang) or "{" in a + b:
        return None
    if lang != "en" and lang not in SCRIPTS and untranslated(a, b):
        return None
    if re.fullmatch(r"[\w.-]+[._/-][\w./-]+", b):  # keys, paths, host names
        return None
    return {"kind": "pair", "a": a, "b": b, "lang": lang, **more}


def distinct(rows) -> list[dict]:
    """The rows without empty ones and repeats; of two that differ in case, the first."""
    seen = {}
    for row in rows:
        if row:
            key = (row.get("lang"), row["a"].casefold(), row["b"].casefold()) if row["kind"] == "pair" \
                else json.dumps(row, sort_keys=True)
            seen.setdefault(key, row)
    return list(seen.values())


def write(name: str, rows) -> int:
    """Drops repeats and saves the rows; returns how many."""
    return save(name, distinct(rows))
