"""Hyperparameters as a job writes them, strings or numbers alike (SURFACE X-22), checked by name.

The catalogue says which names there are, of which type and range, and which methods take them.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar

from arkdev.job.catalogue import (
    INTERNAL_NAMES,
    Hyperparameter,
    Kind,
    catalogue,
    counterpart_of,
    entries_of,
)
from arkdev.job.methods import CustomizationType
from arkdev.job.spelling import closest

_INTEGER = re.compile(r"[-+]?[0-9]+")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
MAX_WHOLE_NUMBER = 2**31 - 1
"""Steps, samples and sizes beyond it are slips of the keyboard; counters end there."""
_SLIP = 0.85
"""Names so alike are one name and a slip of the keyboard; below that they may well be two."""


_declared: ContextVar[frozenset[str]] = ContextVar("arkdev_declared", default=frozenset())


@contextmanager
def declared_names(names: Iterable[str]) -> Iterator[None]:
    """Let jobs made inside of the block have these names, whatever the catalogue says of them.

    A workspace declares what the platform has and the catalogue lacks (``[hyperparameters]``).
    """
    token = _declared.set(frozenset(names))
    try:
        yield
    finally:
        _declared.reset(token)


def names_declared() -> frozenset[str]:
    """Return the names of the block that is under way."""
    return _declared.get()


def parse_number(text: str) -> int | float | None:
    """Return the finite decimal number that `text` spells, or None."""
    if len(text) > 40:
        return None
    if _INTEGER.fullmatch(text):
        return int(text)
    if _FLOAT.fullmatch(text):
        value = float(text)
        return value if math.isfinite(value) else None
    return None


def check_value(name: str, value: object) -> object:
    """Return the value of one hyperparameter, of the type that its name asks for.

    Raises ValueError, with a sentence that can follow the name, for what cannot be meant.
    """
    return check_value_of(catalogue().get(name), value)


def check_value_of(entry: Hyperparameter | None, value: object) -> object:
    """As `check_value`; None: nobody knows the name, so that any value passes."""
    if entry is not None and entry.name == "thinking":
        return _thinking(value)
    if value is None or not isinstance(value, (str, int, float)):
        raise ValueError(f"a string, a number or a boolean is expected, not {value!r}")
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"{value} is not a finite number")
    if entry is None or entry.kind is Kind.UNKNOWN:
        return value
    if entry.kind is Kind.TEXT:
        return _text(entry, value)
    if entry.kind is Kind.BOOLEAN:
        return _boolean(value)
    return _number(entry, value)


def _number(entry: Hyperparameter, value: str | int | float) -> int | float:
    number = parse_number(value.strip()) if isinstance(value, str) else value
    if number is None or isinstance(number, bool):
        raise ValueError(f"{value!r} is not a number")
    if entry.kind is Kind.INTEGER and number != int(number):
        raise ValueError(f"{value!r} is not a whole number")
    if entry.kind is Kind.INTEGER and abs(number) > MAX_WHOLE_NUMBER:
        raise ValueError(f"{value!r} given; at most {MAX_WHOLE_NUMBER:,} can be meant")
    if entry.range is not None and not entry.range.has(number):
        raise ValueError(f"{value!r} given; {entry.range.wanted} is expected")
    return int(number) if entry.kind is Kind.INTEGER else number


def _boolean(value: str | int | float) -> bool:
    if isinstance(value, bool):
        return value
    words = {"true": True, "false": False}
    if isinstance(value, str) and value.strip().lower() in words:
        return words[value.strip().lower()]
    raise ValueError(f"{value!r} given; true or false is expected")


def _text(entry: Hyperparameter, value: str | int | float) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{value!r} given; text is expected")
    if entry.options and value not in entry.options:
        raise ValueError(f"{value!r} given; one of {', '.join(entry.options)} is expected")
    return value


def _thinking(value: object) -> dict[str, str]:
    """Return the form of a sample, ``{"type": ...}``, for that form and for the word alone."""
    word = value.get("type") if isinstance(value, dict) and set(value) == {"type"} else value
    if not isinstance(word, str):
        raise ValueError(f"{value!r} given; a word such as enabled is expected")
    return {"type": _text(catalogue()["thinking"], word)}


def misused_names(values: Mapping[str, object], *, method: CustomizationType) -> dict[str, str]:
    """Return a sentence for each name that `method` does not take, by name.

    Those are misspelt names, and names of other methods. A name that nothing is like passes: the
    platform has more than the catalogue (`unknown_names` tells it).
    """
    sentences = {name: _misuse(name, method=method) for name in values}
    return {name: sentence for name, sentence in sentences.items() if sentence}


def _misuse(name: str, *, method: CustomizationType) -> str:
    if name in INTERNAL_NAMES:
        return "a name of the platform's own, which a job must not set; take it out"
    known = [entry.name for entry in entries_of(method)]
    if name in known or name in _declared.get():
        return ""
    instead = counterpart_of(name, method=method)
    entry = catalogue().get(name)
    if entry is not None:
        advice = f"; it is called {instead!r} there" if instead else ""
        return f"{method} does not take it ({', '.join(entry.methods)} do{advice})"
    match = closest(name, known, ratio=_SLIP) or closest(name, catalogue(), ratio=_SLIP)
    if match is None:
        return ""
    meant = None if match in known else counterpart_of(match, method=method)
    advice = f"{meant!r}, as {method} calls {match!r}" if meant else repr(match)
    return (
        f"not a name that arkdev knows; did you mean {advice}? If the platform has it, name it "
        "under [hyperparameters] in arkworkspace.toml"
    )


def unknown_names(values: Mapping[str, object], *, method: CustomizationType) -> dict[str, str]:
    """Return a sentence for each name that no source has, by name."""
    known = [entry.name for entry in entries_of(method)]
    sentences = {}
    for name in values:
        if name in catalogue() or name in _declared.get():
            continue
        match = closest(name, known)
        advice = f"; did you mean {match!r}?" if match else ""
        sentences[name] = f"not a name that arkdev knows, so nothing checks it{advice}"
    return sentences
