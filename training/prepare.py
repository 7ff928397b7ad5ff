"""Reads `.data/*.jsonl.gz`, chooses the vocabulary, and writes everything as arrays of pieces.

    python3 training/prepare.py [--teacher DIR] [--size 58000]

Writes `.data/vocabulary.txt` (a piece a line, in order) and `.data/corpus.npz`. `--teacher` is the
folder of the teacher model; its word list is where the everyday words of the vocabulary come from.
"""
import argparse
import collections
import gzip
import json
import pathlib
import re

import numpy as np

from text import IS_UNSPACED, MIN_PIECE, Vocabulary, words

HERE = pathlib.Path(__file__).parent
DATA = HERE / ".data"

# What a table of this size is spent on, in pieces.
FOREIGN_SHARE = 0.36
PIECES = 3_000
# A language gets words in proportion to this; those that are not named share the rest.
LANGUAGES = {"zh": 3.0, "ja": 1.6, "ko": 1.3, "es": 1.6, "fr": 1.5, "de": 1.8, "pt": 1.3, "ru": 1.5, "it": 1.0,
             "pl": 0.6, "nl": 0.6, "tr": 0.6, "uk": 0.4, "ar": 0.5, "cs": 0.4, "sv": 0.4, "vi": 0.3, "id": 0.3, "hi": 0.3}
MOST_FIELD = 96
# Left out: a source that is mostly noise.
UNUSED = {"packages"}
# Left out: what happens to equal a query of a set that ranking is measured on.
MEASURED = {"skip to the next track", "transcribe an audio file", "what is the current time"}
# Pairs of one language that are used; beyond that every so-maniest is.
MOST_PAIRS = 40_000


def rows(path):
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        for line in lines:
            yield json.loads(line)


def sources():
    return [path for path in sorted(DATA.glob("*.jsonl.gz")) if path.name.split(".")[0] not in UNUSED]


def language(row):
    return row.get("lang", "en").split("-")[0].lower()


def is_measured(text):
    return text.strip(" .?").lower() in MEASURED


def usable(path):
    """The rows of a file, without languages the table has no room for and without the surplus."""
    counts = collections.Counter(language(row) for row in rows(path) if row["kind"] == "pair")
    seen = collections.Counter()
    for row in rows(path):
        if row["kind"] == "tool":
            row["queries"] = [query for query in row["queries"] if not is_measured(query)]
        elif is_measured(row["a"]) or is_measured(row["b"]):
            continue
        if row["kind"] == "pair":
            lang = language(row)
            if lang != "en":
                if lang not in LANGUAGES:
                    continue
                seen[lang] += 1
                if seen[lang] * MOST_PAIRS % max(counts[lang], MOST_PAIRS) >= MOST_PAIRS:
                    continue
        yield row


def count_words(counts, text, weight=1.0):
    for whole, parts in words(text):
        counts[whole] += weight
        for part in parts:
            counts[part] += weight


def unspaced_pieces(counts):
    """Substrings of two to four letters of a script without spaces, and single letters."""
    found = collections.Counter()
    for run, count in counts.items():
        if IS_UNSPACED.match(run):
            for size in (1, 2, 3, 4):
                for at in range(len(run) - size + 1):
                    found[run[at:at + size]] += count
    # A longer piece is worth its place if it is not just what its parts would say.
    return collections.Counter({
        piece: count * (0.3, 1.0, 1.0, 1.2)[len(piece) - 1] for piece, count in found.items()})


def choose(teacher, size):
    english, foreign = collections.Counter(), collections.defaultdict(collections.Counter)
    for path in sources():
        for row in usable(path):
            if row["kind"] == "tool":
                for text in [*row["queries"], row["name"], row["server"], row["description"], *row["params"]]:
                    count_words(english, text)
            else:
                lang = language(row)
                count_words(english if lang == "en" else foreign[lang], row["a"])
                count_words(english, row["b"], 1.0 if lang == "en" else 0.1)
    is_word = re.compile(r"[a-z][a-z0-9]*$").match
    everyday = [w for w in (teacher / "vocab.txt").read_text(encoding="utf-8").split("\n")
                if is_word(w) and len(w) > 1]
    chosen = dict.fromkeys(w for w in everyday if len(w) > 2 or english[w] > 20)
    share = int(size * FOREIGN_SHARE)
    total = sum(LANGUAGES.values())
    for lang, weight in LANGUAGES.items():
        counts = foreign[lang]
        if lang in ("zh", "ja", "ko"):
            counts = unspaced_pieces(counts)
        room = int(share * weight / total)
        for piece, count in sorted(counts.items(), key=lambda item: (-item[1], item[0])):
            if room == 0 or count < 4:
                break
            if piece not in chosen and not piece.isdigit() and len(piece) <= 24:
                chosen[piece] = None
                room -= 1
    by_count = sorted(english.items(), key=lambda item: (-item[1], item[0]))
    for word, count in by_count:
        if len(chosen) >= size - PIECES or count < 3:
            break
        if is_word(word) and len(word) <= 24:
            chosen.setdefault(word)
    rare = collections.Counter()
    for word, count in by_count:
        if word not in chosen and word.isalpha() and word.isascii():
            for length in range(MIN_PIECE, 7):
                for at in range(len(word) - length + 1):
                    rare[word[at:at + length]] += length - 1
    for piece, _ in sorted(rare.items(), key=lambda item: (-item[1], item[0])):
        if len(chosen) >= size:
            break
        chosen.setdefault(piece)
    return list(chosen)


class Texts:
    """Texts as one long array of pieces; a text given twice is kept once."""

    def __init__(self, vocabulary):
        self.vocabulary, self.known, self.pieces, self.ends, self.texts = vocabulary, {}, [], [0], []

    def add(self, text):
        at = self.known.get(text)
        if at is None:
            at = self.known[text] = len(self.texts)
            self.texts.append(text)
            self.pieces.extend(self.vocabulary.encode(text, MOST_FIELD))
            self.ends.append(len(self.pieces))
        return at


def main():
    ask = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ask.add_argument("--teacher", type=pathlib.Path, required=True)
    ask.add_argument("--size", type=int, default=58_000)
    args = ask.parse_args()
    pieces = choose(args.teacher, args.size)
    (DATA / "vocabulary.txt").write_text("\n".join(pieces) + "\n", encoding="utf-8")
    vocabulary = Vocabulary(pieces)
    texts = Texts(vocabulary)
    tools, pairs, servers, kinds, foreign = [], [], {}, [], set()
    for path in sources():
        source = path.name.split(".")[0]
        kinds.append(source)
        for row in usable(path):
            if row["kind"] == "tool":
                server = servers.setdefault((source, row["server"]), len(servers))
                fields = [row["name"].replace("/", " "), row["server"], row["description"], " ; ".join(row["params"])]
                fields = [texts.add(field) for field in fields]
                for query in row["queries"]:
                    tools.append([texts.add(query), *fields, server, len(kinds) - 1])
            else:
                weak = 1 if row.get("weak") else 0
                english = language(row) == "en"
                pairs.append([texts.add(row["a"]), texts.add(row["b"]), len(kinds) - 1, weak, int(english)])
                if not english:
                    foreign.add(pairs[-1][0])
    np.savez_compressed(
        DATA / "corpus.npz", pieces=np.array(texts.pieces, np.uint16), ends=np.array(texts.ends, np.int32),
        tools=np.array(tools, np.int32).reshape(-1, 7), pairs=np.array(pairs, np.int32).reshape(-1, 5),
        sources=np.array(kinds))
    with gzip.open(DATA / "texts.json.gz", "wt", encoding="utf-8") as out:
        # The teacher knows English only.
        json.dump(["" if at in foreign else text[:600] for at, text in enumerate(texts.texts)], out, ensure_ascii=False)
    print(f"{len(pieces)} pieces, {len(texts.texts)} texts, {len(tools)} tool rows, {len(pairs)} pairs")


main()
