"""Paths written in files, opened and shown alike under every locale (field case 6.7).

Under ``LC_ALL=C`` without UTF-8 mode Python encodes file names as ASCII with surrogate escapes, so
a path read from a UTF-8 file has to be brought into that form before it can be opened, and back
before it can be shown.
"""

from __future__ import annotations

import os
from pathlib import Path


def filesystem_path(text: str) -> Path:
    """Return the path that `text`, read from a UTF-8 file, names on this machine.

    Raises ValueError, with a sentence, for what can be no path on any.
    """
    if "\0" in text:
        raise ValueError("a path has no NUL in it")
    try:
        return Path(os.fsdecode(text.encode("utf-8", "surrogateescape")))
    except UnicodeEncodeError:
        raise ValueError("half a surrogate pair is no character, so this is no path") from None


def shown_path(path: Path) -> str:
    """Return `path` as readable text: relative to the current directory where it lies below."""
    text = os.fsencode(path).decode("utf-8", "replace")
    here = os.fsencode(Path.cwd()).decode("utf-8", "replace")
    return text.removeprefix(here + "/") if text.startswith(here + "/") else text


def readable(text: str) -> str:
    """Return text that came from the command line with its surrogate escapes made characters."""
    try:
        return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    except UnicodeEncodeError:  # surrogates that are no escapes of the command line
        return text
