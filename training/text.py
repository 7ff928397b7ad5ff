"""Text to words and words to pieces, as the Rust crate `toolcrib-search` does it.

A text is folded (compatibility forms, no accents) and taken apart at everything that is not a letter
or a digit and where camelCase words begin. A word the vocabulary has is one piece. Any other is
taken apart from the left into the longest pieces the vocabulary has, of at least `MIN_PIECE`
letters; letters that begin no piece are passed over. Scripts without spaces are one long word to
that rule, with pieces of one letter and up.
"""
import functools
import re
import unicodedata

MIN_PIECE = 3
MOST_PIECE = 24

UNSPACED = "\u1100-\u11ff\u3130-\u318f\uac00-\ud7af\u3040-\u30ff\u31f0-\u31ff\u3005\u3007\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
RUN = re.compile(f"[{UNSPACED}]+|[^\\W_{UNSPACED}]+")
IS_UNSPACED = re.compile(f"[{UNSPACED}]")
CAMEL = re.compile(r"(?<=[a-z])(?=[A-Z])|(?<=[A-Za-z]\d)(?=[A-Z])|(?<=[A-Za-z]\d\d)(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-rt-z]|[A-Z]s[a-z])")


def fold(text: str) -> str:
    if text.isascii():
        return text
    bare = (c for c in unicodedata.normalize("NFKD", text) if unicodedata.combining(c) < 10)
    return unicodedata.normalize("NFC", "".join(bare))


@functools.lru_cache(1 << 18)
def parts(run: str) -> tuple[str, ...]:
    """The parts of a camelCase word; a single letter stays with what follows it."""
    found = CAMEL.split(run)
    if any(len(part) == 1 for part in found[:-1]):
        joined: list[str] = []
        for part in found:
            if joined and len(joined[-1]) == 1:
                joined[-1] += part
            else:
                joined.append(part)
        found = joined
    return tuple(found)


def words(text: str):
    """Every word as (whole, parts), in lower case; parts is empty unless it is a camelCase word."""
    for run in RUN.findall(fold(text)):
        if IS_UNSPACED.match(run) or run[1:].islower() or len(run) == 1:
            yield run.lower(), ()
            continue
        found = parts(run)
        yield run.lower(), tuple(part.lower() for part in found) if len(found) > 1 else ()


class Vocabulary:
    def __init__(self, pieces):
        self.pieces = list(pieces)
        self.ids = {piece: i for i, piece in enumerate(self.pieces)}
        self.cache: dict[str, tuple[int, ...]] = {}

    def word(self, word: str) -> tuple[int, ...]:
        """The pieces of one word."""
        known = self.cache.get(word)
        if known is None:
            known = self.cache[word] = tuple(self._split(word))
        return known

    def _split(self, word: str):
        if word in self.ids:
            yield self.ids[word]
            return
        if word.isdigit():
            return
        least = 1 if IS_UNSPACED.match(word) else MIN_PIECE
        at = 0
        while at < len(word):
            for end in range(min(len(word), at + MOST_PIECE), at + least - 1, -1):
                if word[at:end] in self.ids:
                    yield self.ids[word[at:end]]
                    at = end
                    break
            else:
                at += 1

    def encode(self, text: str, most: int = 256) -> list[int]:
        out: list[int] = []
        for whole, found in words(text):
            if not found or whole in self.ids:
                out.extend(self.word(whole))
            else:
                for part in found:
                    out.extend(self.word(part))
            if len(out) >= most:
                return out[:most]
        return out
