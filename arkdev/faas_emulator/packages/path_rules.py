"""Which paths a list of patterns names: the rules of ``.dockerignore``.

=========  =====================================================================
pattern    names
=========  =====================================================================
``*``      any part of one name
``**``     any number of folders, none too: ``**/x`` is ``x`` at any depth
``?``      one character
``[a-c]``  one character of a set, ``[^a-c]`` one of the others
``\\x``     ``x`` itself
=========  =====================================================================

A pattern starts at the root and names a folder's whole content too. One that begins with ``!``
takes back what earlier ones named: the last pattern that fits a path decides. Libraries for
``.gitignore`` do not serve: a pattern without a slash fits at any depth there, and what a pattern
with a slash or a star names is decided differently for folders.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class _Rule:
    pattern: str
    """As it was written, without ``!``."""
    is_exception: bool
    names: re.Pattern[str]


class PathRules:
    """Patterns in their order. Paths are relative and have forward slashes."""

    def __init__(self, patterns: Iterable[str]) -> None:
        """Take patterns as they are written; empty ones have no meaning and are dropped.

        Raises `ValueError`, which quotes the pattern, for one that cannot be read.
        """
        self._rules = [rule for pattern in patterns if (rule := _rule(pattern))]

    def __bool__(self) -> bool:
        return bool(self._rules)

    @property
    def has_exceptions(self) -> bool:
        """Whether a pattern begins with ``!``: only then may a named folder hold other files."""
        return any(rule.is_exception for rule in self._rules)

    def match(self, path: str) -> bool:
        """Tell whether the patterns name `path`, or a folder that it lies in."""
        parts = path.split("/")
        is_named = False
        fits = [False] * len(self._rules)  # of the folder above: what fits it fits all below
        for count in range(1, len(parts) + 1):
            is_named = False
            for index, rule in enumerate(self._rules):
                # a pattern that would change nothing for a folder is not kept for what lies below
                if not fits[index] and rule.is_exception == is_named:
                    fits[index] = bool(rule.names.fullmatch("/".join(parts[:count])))
                if fits[index]:
                    is_named = not rule.is_exception
        return is_named


def dockerignore_patterns(text: str) -> list[tuple[int, str]]:
    """Return the patterns of a ``.dockerignore`` with their lines, comments left out."""
    lines = enumerate(text.removeprefix("\N{BYTE ORDER MARK}").splitlines(), 1)
    return [(number, line.strip()) for number, line in lines if line.strip() and line[:1] != "#"]


def _rule(written: str) -> _Rule | None:
    text = written.strip()
    is_exception = text.startswith("!")
    pattern = text.removeprefix("!").strip()
    if is_exception and not pattern:
        raise ValueError(f"{written!r} excepts nothing: a pattern is expected after '!'")
    cleaned = posixpath.normpath(pattern).lstrip("/") if pattern else ""
    if cleaned in ("", "."):
        return None
    try:
        return _Rule(pattern, is_exception, re.compile(_regular_expression(cleaned), re.DOTALL))
    except re.error as error:
        raise ValueError(f"{written!r} is not a pattern: {error}") from error


_TOKEN = re.compile(
    r"(?P<folders>\*\*/?)|(?P<part>\*)|(?P<one>\?)|(?P<set>[\[\]])|\\?(?P<itself>.)"
)


def _regular_expression(pattern: str) -> str:
    ending = pattern.removeprefix("**")
    if ending and ending != pattern and not re.search(r"^/|[*?\[\]\\\\]", ending):
        return ".*" + re.escape(ending)  # **.py: a file of that ending, at any depth
    written = []
    in_set = False
    for token in _TOKEN.finditer(pattern):
        kind, text = token.lastgroup, token[0]
        if kind == "set":
            in_set = text == "["
            written.append(text)
        elif in_set:
            written.append(text)
        elif kind == "folders":
            written.append(".*" if token.end() == len(pattern) else "(?:.*/)?")
        elif kind == "part":
            written.append("[^/]*")
        elif kind == "one":
            written.append("[^/]")
        else:
            written.append(re.escape(token["itself"]))
    return "".join(written)
