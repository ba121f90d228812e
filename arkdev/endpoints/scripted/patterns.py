"""Make a string that matches a regular expression, for the simple ones that schemas use.

Literals, ``.``, ``\\d \\w \\s``, classes, groups, alternatives and repetition are understood;
anchors are dropped. The caller checks the result against the real pattern.
"""

from __future__ import annotations

import re

from arkdev.endpoints.scripted.schema import compiled

_UNICODE = re.compile(r"\\u([0-9a-fA-F]{4})")
_SHORTHAND = {"d": "0", "w": "a", "s": " ", "D": "a", "W": "-", "S": "a", "n": "\n", "t": "\t"}
_DIGITS = "0123456789"
_COUNT = re.compile(r"\{(\d+)(?:,\d*)?\}")
_CANDIDATES = "a0A- _.1B" + "".join(map(chr, range(33, 127)))


def example_of(pattern: str) -> str:
    """Return the shortest simple string for `pattern`; a best effort that may not match."""
    if compiled(pattern) is None:
        return ""
    return _Maker(_UNICODE.sub(lambda m: chr(int(m[1], 16)), pattern)).alternatives()


class _Maker:
    def __init__(self, pattern: str) -> None:
        self._pattern = pattern
        self._at = 0
        self._num_digits = 0

    def alternatives(self) -> str:
        """The first alternative, up to the closing bracket or the end."""
        first = self._sequence()
        while self._peek() == "|":
            self._at += 1
            self._sequence()
        return first

    def _peek(self) -> str:
        return self._pattern[self._at : self._at + 1]

    def _sequence(self) -> str:
        made = ""
        while self._peek() not in ("", "|", ")"):
            made += self._repeated()
        return made

    def _repeated(self) -> str:
        start = self._at
        atom = self._atom()
        after_atom = self._at
        count = self._count()
        made = atom if count else ""
        after_count = self._at
        for _ in range(count - 1):
            self._at = start
            made += self._atom()
        self._at = after_count if count else max(after_atom, after_count)
        return made

    def _count(self) -> int:
        char = self._peek()
        count = 1
        if char in ("?", "*", "+") and char:
            self._at += 1
            count = 1 if char == "+" else 0
        elif match := _COUNT.match(self._pattern, self._at):
            self._at = match.end()
            count = int(match[1])
        if self._peek() in ("?", "+") and self._pattern[self._at - 1] in "?*+}":
            self._at += 1  # lazy or possessive
        return min(count, 256)

    def _atom(self) -> str:
        char = self._peek()
        self._at += 1
        if char == "(":
            return self._group()
        if char == "[":
            return self._class()
        if char == "\\":
            return self._escape()
        if char in "^$":
            return ""
        return "a" if char == "." else char

    def _group(self) -> str:
        is_assertion = self._pattern.startswith(("?=", "?!", "?<=", "?<!"), self._at)
        if match := re.compile(r"\?(?:P?<\w+>|<?[:=!])").match(self._pattern, self._at):
            self._at = match.end()
        made = self.alternatives()
        self._at += 1
        return "" if is_assertion else made

    def _class(self) -> str:
        end = self._pattern.find("]", self._at + 1)
        while end > 0 and self._pattern[end - 1] == "\\":
            end = self._pattern.find("]", end + 1)
        if end < 0:
            end = len(self._pattern)
        members = self._pattern[self._at : end]
        self._at = end + 1
        if members.startswith("^"):
            accepted = re.compile(f"[{members}]")
            return next((c for c in _CANDIDATES if accepted.match(c)), "")
        return self._digit() if members in ("0-9", "\\d") else self._first_of(members)

    def _first_of(self, members: str) -> str:
        if members.startswith("\\"):
            return _SHORTHAND.get(members[1:2], members[1:2])
        return members[:1]

    def _escape(self) -> str:
        char = self._peek()
        self._at += 1
        if char in "bBAZ":
            return ""
        return self._digit() if char == "d" else _SHORTHAND.get(char, char)

    def _digit(self) -> str:
        self._num_digits += 1
        return _DIGITS[self._num_digits % 10]
