"""Suggestions for names that do not exist, and places for keys that stand in the wrong one."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import SequenceMatcher

_CLOSE_ENOUGH = 0.7


def closest(word: str, known: Iterable[str], *, ratio: float = _CLOSE_ENOUGH) -> str | None:
    """Return the name in `known` that `word` was probably meant to be, or None.

    `ratio`: how alike the two have to be, 1 being the same.
    """
    folded = word.casefold()
    scored = [
        (SequenceMatcher(None, folded, name.casefold()).ratio(), name) for name in sorted(known)
    ]
    best, name = max(scored, default=(0.0, ""))
    return name if best >= ratio else None


def unknown_name(kind: str, word: str, *, known: Iterable[str]) -> str:
    """Say that `word` is unknown, with the closest known name or with all of them."""
    names = sorted(known)
    # kl_coef, clip
    longer = [name for name in names if len(word) > 2 and name.startswith(word)]
    if longer:
        choices = " or ".join(map(repr, longer))
        return f"unknown {kind} {word!r}; did you mean {choices}?"
    match = closest(word, names)
    advice = f"did you mean {match!r}?" if match else f"known: {', '.join(names)}"
    return f"unknown {kind} {word!r}; {advice}"
