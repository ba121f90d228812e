r"""The lines of a requirements file, whatever editor wrote it (field case 7.2).

`packaging` reads single requirements; what is around them is read here. The one parser of whole
files (pip-requirements-parser, last released in 2022) is a copy of an older pip and says of one
line at a time what is wrong, in pip's words.
"""

from __future__ import annotations

import codecs
import re
from dataclasses import dataclass
from pathlib import Path

from arkdev.errors import RequirementsError
from arkdev.job.paths import shown_path

SAVE_AS_UTF_8 = "save the file as UTF-8; in PowerShell: ... | Out-File -Encoding utf8 FILE"

_BOMS = (
    (codecs.BOM_UTF8, "UTF-8 with a byte order mark", "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "UTF-32", ""),  # before UTF-16, whose mark it begins with
    (codecs.BOM_UTF32_BE, "UTF-32", ""),
    (codecs.BOM_UTF16_LE, "UTF-16", "utf-16"),
    (codecs.BOM_UTF16_BE, "UTF-16", "utf-16"),
)
_CODING = re.compile(rb"^[ \t]*#.*?coding[:=][ \t]*([-\w.]+)", re.MULTILINE)
_COMMENT = re.compile(r"(^|\s+)#.*$")


@dataclass(frozen=True)
class RequirementsText:
    """What a file says, and how it says it."""

    text: str
    """With ``\n`` as the end of lines."""
    encoding: str
    """``UTF-8``, ``UTF-8 with a byte order mark`` or ``UTF-16``."""
    newline: str
    r"""``\n`` or ``\r\n``: the first that is used."""


@dataclass(frozen=True)
class Line:
    """A logical line: several of the file where they end with a backslash."""

    number: int
    """The first one's, from 1."""
    raw: str
    """As it stands in the file."""
    text: str
    """Joined, without the comment; empty for a comment and an empty line."""
    comment: str
    """With its ``#``; empty where there is none."""


def decoded_file(path: Path) -> RequirementsText:
    """Read a requirements file.

    Raises `RequirementsError` when it cannot be read or is neither UTF-8 nor UTF-16 with a byte
    order mark, and `FileNotFoundError`.
    """
    shown = shown_path(path)
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise
    except OSError as error:
        raise RequirementsError(f"cannot be read: {error.strerror}", where=shown) from error
    encoding, text = _decoded(data, shown=shown)
    newline = "\r\n" if text.partition("\n")[0].endswith("\r") else "\n"
    return RequirementsText(re.sub(r"\r\n?", "\n", text), encoding, newline)


def _decoded(data: bytes, *, shown: str) -> tuple[str, str]:
    for mark, name, codec in _BOMS:
        if data.startswith(mark):
            if not codec:
                raise _refused(f"{name} text", where=shown)
            try:
                return name, data.decode(codec)
            except UnicodeDecodeError as error:
                raise _refused(f"broken {name} text (byte {error.start})", where=shown) from error
    if b"\0" in data:
        raise _refused("UTF-16 without a byte order mark, or no text", where=shown)
    try:
        return "UTF-8", data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        said = _CODING.search(data)
        kind = f"{said[1].decode()}, as it says" if said else f"perhaps {_likely(data)}"
        raise _refused(f"not UTF-8 text ({kind})", where=f"{shown}:{line}") from error


def _likely(data: bytes) -> str:
    try:
        data.decode("gb18030")
    except UnicodeDecodeError:
        return "Latin-1"
    return "GBK"


def _refused(what: str, *, where: str) -> RequirementsError:
    return RequirementsError(what, where=where, hint=SAVE_AS_UTF_8)


def logical_lines(text: str) -> list[Line]:
    """Return the lines of a file's text, those that are continued joined."""
    lines: list[Line] = []
    parts: list[str] = []
    physical = text.removesuffix("\n").split("\n") if text else []
    for number, raw in enumerate(physical, start=1):
        parts.append(raw)
        is_comment = raw.lstrip().startswith("#")  # a comment is not continued
        if raw.endswith("\\") and not is_comment and number < len(physical):
            continue
        lines.append(_line(parts, number=number - len(parts) + 1))
        parts = []
    return lines


def _line(parts: list[str], *, number: int) -> Line:
    joined = "".join(part.removesuffix("\\") for part in parts)
    found = _COMMENT.search(joined)
    comment = found[0].strip() if found else ""
    return Line(number, "\n".join(parts), _COMMENT.sub("", joined).strip(), comment)
