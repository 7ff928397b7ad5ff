"""Strings of user interfaces in many languages, each beside its English original.

    python3 training/sources/languages.py

Writes training/.data/languages.jsonl.gz: pairs of a foreign string and the English one.
"""

import re
import sys
import time
import xml.etree.ElementTree as xml
from collections import Counter, defaultdict
from functools import lru_cache
from gettext import GNUTranslations
from pathlib import Path

from download import npm, pypi
from rows import order
from texts import github, language, load, pair, write

# The languages most asked for, and how many pairs one of them and one of the others may have.
MAIN = "ar cs de es fr hi id it ja ko nl pl pt ru sv tr uk vi zh-CN zh-TW".split()
MOST, MOST_OF_OTHERS = 50_000, 12_000
LONG = 120  # characters of English; longer strings come last
MOST_OF_SOURCE = 16_000  # of one language from one source


@lru_cache(64)
def english_strings(path: Path) -> dict:
    """The strings of an English file, which is read once for all languages."""
    return flat(load(path))


def flat(tree, key: tuple = ()) -> dict:
    """The strings of nested JSON by their path."""
    if isinstance(tree, str):
        return {key: tree}
    items = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    return {path: text for name, value in items for path, text in flat(value, (*key, str(name))).items()}


def by_key(english: dict | Path, foreign: dict, lang: str):
    """Pairs two trees of strings with the same keys."""
    original = english_strings(english) if isinstance(english, Path) else flat(english)
    for key, text in flat(foreign).items():
        yield pair(text, original.get(key, ""), lang)


def by_english(foreign: dict, lang: str):
    """Pairs of a mapping from English to a translation."""
    for english, text in foreign.items():
        yield pair(text, english, lang)


def folders(root: Path, pattern: str, english: str = "en"):
    """Trees of <language>/<file>.json, or <prefix><language><suffix>, beside the English ones.

    The pattern has one `{}` where the language stands."""
    before, after = pattern.split("{}")
    matches = re.compile(re.escape(before).replace(r"\*", "(.*)") + "([A-Za-z_-]+?)"
                         + re.escape(after).replace(r"\*", "(.*)"))
    for path in sorted(root.glob(pattern.replace("{}", "*"))):
        found = matches.fullmatch(path.relative_to(root).as_posix())
        if not found:
            continue
        start, end = found.span(before.count("*") + 1)
        name = found.string
        lang = language(name[start:end])
        source = root / (name[:start] + english + name[end:])
        if lang and name[start:end] != english and source.is_file():
            yield source, path, lang


def trees(root: Path, pattern: str, english: str = "en"):
    """Pairs of all the files that `folders` finds."""
    for source, path, lang in folders(root, pattern, english):
        yield from by_key(source, load(path), lang)


def po(path: Path) -> dict[str, str]:
    """A gettext source catalog without its plurals and unsure entries."""
    strings = {}
    for entry in re.split(r"\n\s*\n", path.read_text("utf-8")):
        if "#, fuzzy" in entry or "msgid_plural" in entry:
            continue
        parts = {"msgid": "", "msgstr": ""}
        at = None
        for line in entry.splitlines():
            found = re.match(r'(msgid|msgstr)?\s*"(.*)"$', line)
            if found:
                at = found[1] or at
                if at:
                    parts[at] += found[2].replace('\\"', '"')
            else:
                at = None
        strings[parts["msgid"]] = parts["msgstr"]
    return strings


def catalogs(root: Path):
    """The gettext catalogs of a package: sources, which tell unsure entries, before compiled ones."""
    for path in sorted(root.rglob("LC_MESSAGES/*.mo")):
        lang = language(path.parent.parent.name)
        if not lang:
            continue
        if path.with_suffix(".po").is_file():
            yield from by_english(po(path.with_suffix(".po")), lang)
            continue
        try:
            with open(path, "rb") as file:
                strings = GNUTranslations(file)._catalog
        except (OSError, UnicodeDecodeError, ValueError):
            continue
        for english, text in strings.items():
            if isinstance(english, tuple):  # the forms of a plural
                english = english[0]
            if english:
                yield pair(text, english.split("\x04")[-1], lang)


def vscode():
    """VS Code's language packs; the pseudo language is English with its letters exchanged."""
    root = github("microsoft/vscode-loc", "da6509eed60b550e0e785d0d78ac05be46d5e982", "i18n") / "i18n"
    packs = {path.name.removeprefix("vscode-language-pack-"): path / "translations" for path in root.iterdir()}
    pseudo = packs.pop("qps-ploc")
    contents = {path.relative_to(pseudo): load(path).get("contents", {}) for path in sorted(pseudo.rglob("*.json"))}
    votes: dict = defaultdict(Counter)
    for tree in contents.values():
        for english, text in tree.get("bundle", {}).items():
            if len(english) == len(text):
                for plain, changed in zip(english, text):
                    votes[changed][plain] += 1
    table = str.maketrans({changed: plain.most_common(1)[0][0] for changed, plain in votes.items()
                           if not changed.isascii()})
    english = {}
    for path, tree in contents.items():
        english[path] = {module: {key: key if module == "bundle" else text.translate(table)
                                  for key, text in strings.items() if isinstance(text, str)}
                         for module, strings in tree.items()}
    for name, pack in sorted(packs.items()):
        for path, tree in english.items():
            if (pack / path).is_file():
                yield from by_key(tree, load(pack / path).get("contents", {}), language(name))


def home_assistant():
    root = pypi("homeassistant", "2024.3.3")
    yield from trees(root, "homeassistant/components/*/translations/{}.json")
    root = pypi("home-assistant-frontend", "20250109.2") / "hass_frontend/static/translations"
    for folder in sorted({path.parent for path in root.rglob("*.json")}):
        named = {re.sub(r"-[0-9a-f]{32}$", "", path.stem): path for path in sorted(folder.glob("*.json"))}
        for tag, path in named.items():
            if language(tag) and "en" in named:
                yield from by_key(named["en"], load(path), language(tag))


def activepieces():
    root = github("activepieces/activepieces", "eef1a1d4d22e4181859792813bf855c4038a3d0b", "packages/pieces/community/*/src/i18n/*.json")
    for path in sorted(root.rglob("i18n/*.json")):
        if lang := language(path.stem):
            yield from by_english(load(path), lang)


def gitea():
    root = github("go-gitea/gitea", "1fa6465efd569df515438bb100bddd1c9969ca29", "options/locale")
    yield from trees(root, "options/locale/locale_{}.json", "en-US")


def zulip():
    root = github("zulip/zulip", "668661774650afdc91c203de5011cc0b1b86d6c7", "locale")
    for path in sorted(root.glob("locale/*/translations.json")):
        if lang := language(path.parent.name):
            yield from by_english(load(path), lang)
    for path in sorted(root.glob("locale/*/LC_MESSAGES/django.po")):
        if lang := language(path.parent.parent.name):
            yield from by_english(po(path), lang)


def chatwoot():
    root = github("chatwoot/chatwoot", "4339e0ee0add0616d56bc0bb74e1f38ecc8dd8f2", "app/javascript/dashboard/i18n/locale/*.json")
    yield from trees(root, "app/javascript/dashboard/i18n/locale/{}/*.json")


def rocket_chat():
    root = github("RocketChat/Rocket.Chat", "a834e1707691413778cb74f379328929979541f1", "packages/i18n/src/locales")
    yield from trees(root, "packages/i18n/src/locales/{}.i18n.json")


def matrix():
    root = github("matrix-org/matrix-react-sdk", "b67a2303f912a8cab5caf089f3ea710850aa252c", "src/i18n/strings")
    yield from trees(root, "src/i18n/strings/{}.json", "en_EN")


def tldr():
    """What a command does and its examples, line by line where both pages have as many."""
    root = github("tldr-pages/tldr", "08e345f42639f67d99282813247ac670dc6e87cb", "pages", "pages.*")
    told = lambda path: [re.sub(r"[\[\]]", "", line[1:]) for line in path.read_text("utf-8").splitlines()
                         if line[:1] in ">-" and line.strip() and "http" not in line]
    for folder in sorted(root.glob("pages.*")):
        lang = language(folder.name.removeprefix("pages."))
        if not lang:
            continue
        for path in sorted(folder.rglob("*.md")):
            source = root / "pages" / path.relative_to(folder)
            if path.name.startswith(("aws", "gcloud")) or not source.is_file():
                continue
            ours, theirs = told(source), told(path)
            if len(ours) == len(theirs):
                for english, text in zip(ours, theirs):
                    yield pair(text, english, lang)


ANDROID = {
    "Settings": "b136b3f2f801f86ab184b9cfb0b580fa9aa5c148",
    "Contacts": "41570c7a7ae33052338af7730c7c64f871dc391d",
    "Gallery2": "b2c1689bbac846425abc95d47b6b32c46bc196a1",
    "Email": "f67ba43a3af2a57d75b96ba68c274453ab5ac70c",
    "Messaging": "46d8c06e4aedb90d1f77ffca9e6b513fe3414051",
    "DeskClock": "501626741b616e5e41ad4b316e8cc9d8989a7967",
}


def android():
    """The Android applications that come with a telephone: settings, contacts, mail, photos, clock."""
    def strings(path: Path) -> dict:
        try:
            tree = xml.parse(path).getroot()
        except xml.ParseError:
            return {}
        return {node.get("name"): "".join(node.itertext()).strip().strip('"')
                for node in tree.iter("string") if node.get("translatable") != "false"}

    for app, commit in ANDROID.items():
        root = github(f"LineageOS/android_packages_apps_{app}", commit, "*/values/*strings.xml", "*/values-*/*strings.xml")
        for source in sorted(root.rglob("values/*strings.xml")):
            english = strings(source)
            for path in sorted(source.parent.parent.glob(f"values-*/{source.name}")):
                lang = language(path.parent.name.removeprefix("values-"))
                if lang:
                    yield from by_key(english, strings(path), lang)


def cldr():
    """Names of countries, languages, currencies, units and date fields; of emoji, with their keywords."""
    names = npm("cldr-localenames-full", "48.2.0") / "package/main"
    wanted = {
        "localenames": (names, ("territories.json", "languages.json")),
        "numbers": (npm("cldr-numbers-full", "48.2.0") / "package/main", ("currencies.json",)),
        "units": (npm("cldr-units-full", "48.2.0") / "package/main", ("units.json",)),
        "dates": (npm("cldr-dates-full", "48.2.0") / "package/main", ("dateFields.json", "ca-gregorian.json")),
    }
    tags = [path.name for path in sorted(names.iterdir())
            if path.name in ("no", "zh", "zh-Hant") or language(path.name) == path.name]
    for root, files in wanted.values():
        for file in files:
            english = flat(load(root / "en" / file)["main"]["en"])
            for tag in tags:
                if not (root / tag / file).is_file():
                    continue
                for key, text in flat(load(root / tag / file)["main"][tag]).items():
                    if key[-1] not in ("symbol", "symbol-alt-narrow") and "short" not in key \
                            and "narrow" not in key and "abbreviated" not in key:
                        yield pair(text, english.get(key, ""), language(tag))
    root = npm("cldr-annotations-full", "48.2.0") / "package/annotations"
    emoji = load(root / "en/annotations.json")["annotations"]["annotations"]
    for tag in tags:
        path = root / tag / "annotations.json"
        if path.is_file():
            for sign, told in load(path)["annotations"]["annotations"].items():
                if sign in emoji and "tts" in told and "tts" in emoji[sign]:
                    yield pair(told["tts"][0], emoji[sign]["tts"][0], language(tag))
                    yield pair(" ".join(told.get("default", ())), " ".join(emoji[sign].get("default", ())), language(tag))


PACKAGES = [("apache-superset", "6.1.0"), ("django", "5.2.19"), ("wagtail", "8.0.1"),
            ("django-allauth", "65.21.1"), ("django-oscar", "4.2.1")]
JUPYTER = ["ar-SA", "ca-ES", "cs-CZ", "da-DK", "de-DE", "el-GR", "es-ES", "fi-FI", "fr-FR", "he-IL", "hu-HU",
           "id-ID", "it-IT", "ja-JP", "ko-KR", "nl-NL", "no-NO", "pl-PL", "pt-BR", "ro-RO",
           "ru-RU", "tr-TR", "uk-UA", "vi-VN", "zh-CN", "zh-TW"]


def gettext():
    for name, version in PACKAGES:
        yield from catalogs(pypi(name, version))


def jupyter():
    for tag in JUPYTER:
        yield from catalogs(pypi(f"jupyterlab-language-pack-{tag}", "4.5.post3"))


def airflow():
    root = pypi("apache-airflow-core", "3.3.2")
    yield from trees(root, "airflow/ui/dist/i18n/locales/{}/*.json")


def choice(row: dict) -> tuple:
    """Short strings before long ones, otherwise shuffled."""
    return len(row["b"]) > LONG, order(row)


SOURCES = [vscode, home_assistant, activepieces, gitea, zulip, chatwoot, rocket_chat, matrix, tldr,
           android, cldr, gettext, jupyter, airflow]


def main() -> None:
    kept = []
    for source in SOURCES:
        began = time.time()
        rows: dict = defaultdict(dict)
        for row in source():
            if row:
                rows[row["lang"]].setdefault((row["a"].casefold(), row["b"].casefold()), row)
        count = 0
        for found in rows.values():
            chosen = sorted(found.values(), key=choice)[:MOST_OF_SOURCE]
            count += len(chosen)
            kept += chosen
        print(f"{source.__name__}: {count} pairs in {len(rows)} languages, {time.time() - began:.0f} s",
              file=sys.stderr, flush=True)
    by_language: dict = defaultdict(dict)
    for row in kept:
        by_language[row["lang"]].setdefault((row["a"].casefold(), row["b"].casefold()), row)
    rows = []
    for lang, found in sorted(by_language.items()):
        rows += sorted(found.values(), key=choice)[:MOST if lang in MAIN else MOST_OF_OTHERS]
    write("languages", rows)
    print(dict(Counter(row["lang"] for row in rows).most_common()), file=sys.stderr)


if __name__ == "__main__":
    main()
