"""What a text offers as argument values: names, quotations, numbers, dates."""

from __future__ import annotations

import re
from functools import cached_property

from arkdev.endpoints.scripted.arithmetic import find_expression
from arkdev.endpoints.scripted.vocabulary import (
    CHINESE_FILLERS,
    CHINESE_JOINERS,
    CJK,
    ENGLISH_FILLER,
    ENGLISH_JOINER,
    synonyms,
)

_QUOTED = re.compile(
    r"\"([^\"]{1,200})\"|“([^”]{1,200})”|「([^」]{1,200})」|《([^》]{1,200})》|『([^』]{1,200})』|(?<!\w)'([^']{1,200})'(?!\w)"
)
_NUMBER = re.compile(r"(?<![\w.])-?\d+(?:\.\d+)?(?![\d.]*\d)")
_CODE = re.compile(r"(?<![\w.-])[A-Za-z0-9][\w-]{2,}(?![\w-])", re.ASCII)
_CLOCK = re.compile(r"\d{4}-\d{1,2}-\d{1,2}(?:T[\d:.]+)?|\d{1,2}:\d{2}(?::\d{2})?")
_WORD = re.compile(r"[A-Za-zÀ-ÿ][\w'À-ÿ-]*")
_AFTER_PREPOSITION = re.compile(
    r"\b(?:in|at|for|of|to|from|near|about)\s+((?:[a-z][\w'-]*\s?){1,3})"
)
_CJK_RUN = re.compile(r"[\u3400-\u9fffA-Za-z0-9·]+")
_COUNTED = re.compile(
    r"(?<![\d.])(\d{1,3})\s*(?:条|个|篇|天|次|位|results?\b|items?\b|days?\b|times\b|people\b|hits?\b)"
)
FORMATS = {
    "email": re.compile(r"[\w.+-]+@[\w-]+(?:\.[\w-]+)+"),
    "uri": re.compile(r"https?://[^\s，。）)\"']+"),
    "date": re.compile(r"\d{4}-\d{2}-\d{2}"),
    "date-time": re.compile(r"\d{4}-\d{2}-\d{2}T\d{2}:\d{2}(?::\d{2})?(?:Z|[+-]\d{2}:\d{2})?"),
    "time": re.compile(r"(?<!\d)\d{2}:\d{2}(?::\d{2})?(?!\d)"),
    "uuid": re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"),
    "ipv4": re.compile(r"(?<![\d.])\d{1,3}(?:\.\d{1,3}){3}(?![\d.])"),
}


class Evidence:
    """The values in one text. `take_*` hands each one out once, in the order of the text."""

    def __init__(self, text: str, *, earlier: str = "") -> None:
        self.text = " ".join(text.split())
        self.earlier = earlier
        self._taken_names = 0
        self._taken_numbers = 0
        self._positions: dict[str, int] = {}

    @cached_property
    def lowered(self) -> str:
        """The text in lower case."""
        return self.text.lower()

    @cached_property
    def is_chinese(self) -> bool:
        """Whether the text has a Chinese character."""
        return CJK.search(self.text) is not None

    @cached_property
    def numbers(self) -> list[str]:
        """Numbers as they are written, without those of dates and times."""
        return _NUMBER.findall(_CLOCK.sub(" ", self.text))

    @cached_property
    def count(self) -> str | None:
        """A number that counts something ("5 results", "3天")."""
        match = _COUNTED.search(self.text)
        return match[1] if match else None

    @cached_property
    def quoted(self) -> list[str]:
        """What stands in quotation marks."""
        return [next(filter(None, groups)) for groups in _QUOTED.findall(self.text)]

    @cached_property
    def expression(self) -> str | None:
        """The sum in the text, with digits and ``+ - * /``."""
        return find_expression(self.text)

    @cached_property
    def code(self) -> str | None:
        """An identifier such as A1234, SN-20 or 98431."""
        return next((c for c in _CODE.findall(self.text) if any(map(str.isdigit, c))), None)

    @cached_property
    def names(self) -> list[list[str]]:
        """Names, those joined by "and" or a comma in one list: [["Paris", "Rome"], ["Ann"]].

        Quotations come first. Without any name here, the last one of the earlier messages counts.
        """
        rest = _QUOTED.sub("，", self.text) if self.quoted else self.text
        found = [self.quoted] if self.quoted else []
        found += _chinese_names(rest) if self.is_chinese else []
        found += _capitalised(rest)
        found = found or _after_preposition(rest)
        if not found and self.earlier:
            found = Evidence(self.earlier).names[-1:]
        return found

    def rewind(self) -> None:
        """Hand every value out again."""
        self._taken_names = self._taken_numbers = 0

    def take_name(self) -> str | None:
        """Return the next name, or None when all are taken."""
        flat = [name for group in self.names for name in group]
        if self._taken_names >= len(flat):
            return None
        self._taken_names += 1
        return flat[self._taken_names - 1]

    def take_number(self) -> str | None:
        """Return the next number, or None when all are taken."""
        if self._taken_numbers >= len(self.numbers):
            return None
        self._taken_numbers += 1
        return self.numbers[self._taken_numbers - 1]

    def mentions(self, word: str) -> bool:
        """Whether the text has `word` or a word that means exactly the same."""
        return self.position(word) >= 0

    def position(self, word: str) -> int:
        """Where the text first mentions `word`, -1 when it does not."""
        at = self._positions.get(word)
        if at is None:
            found = (_find_word(self.lowered, w) for w in synonyms(word) if w)
            at = min((at for at in found if at >= 0), default=-1)
            self._positions[word] = at
        return at


def _find_word(text: str, word: str) -> int:
    """Like `str.find`, but "c" is not found in "celsius"."""
    at = text.find(word)
    while at >= 0:
        end = at + len(word)
        if not (
            _is_inside(text[at - 1 : at], word[0]) or _is_inside(text[end : end + 1], word[-1])
        ):
            return at
        at = text.find(word, at + 1)
    return -1


def _is_inside(neighbour: str, edge: str) -> bool:
    return (neighbour + edge).isascii() and neighbour.isalnum() and edge.isalnum()


def _chinese_names(text: str) -> list[list[str]]:
    groups = []
    for run in _CJK_RUN.findall(CHINESE_FILLERS.sub("，", text)):
        names = [n for n in CHINESE_JOINERS.split(run) if CJK.search(n) and 2 <= len(n) <= 12]
        if names:
            groups.append(names)
    return groups


def _capitalised(text: str) -> list[list[str]]:
    """Runs of capitalised words; a run joined to the one before it shares its list."""
    groups: list[list[str]] = []
    end_of_last = -1
    for start, end in _capitalised_runs(text):
        joiner = text[end_of_last:start]
        if groups and ENGLISH_JOINER.fullmatch(joiner):
            groups[-1].append(text[start:end])
        else:
            groups.append([text[start:end]])
        end_of_last = end
    return groups


def _capitalised_runs(text: str) -> list[tuple[int, int]]:
    runs: list[tuple[int, int]] = []
    for match in _WORD.finditer(text):
        word = match.group().removesuffix("'s")
        if not word[0].isupper() or word.lower() in ENGLISH_FILLER:
            continue
        start, end = match.start(), match.start() + len(word)
        if runs and text[runs[-1][1] : start] == " ":
            runs[-1] = (runs[-1][0], end)
        else:
            runs.append((start, end))
    return runs


def _after_preposition(text: str) -> list[list[str]]:
    groups = []
    for words in _AFTER_PREPOSITION.findall(text):
        kept = []
        for word in words.split():
            if word in ENGLISH_FILLER:
                break
            kept.append(word)
        if kept:
            groups.append([" ".join(kept)])
    return groups
