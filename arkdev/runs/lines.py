"""Lines of a run folder: records to JSON, and whole lines to append-only files.

A record is normally encoded by one call of the C encoder. Only when that refuses (a number that
JSON lacks, a plugin's own objects, text that UTF-8 cannot carry) or when a secret shows up is the
record walked in Python and cleaned.
"""

from __future__ import annotations

import errno
import json
import math
import os
import reprlib
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from arkdev.runs.function_records import FunctionCallRecord, FunctionInstanceRecord
from arkdev.runs.masking import forms_of, masked_text
from arkdev.runs.records import (
    Attempt,
    FailedGrading,
    FaultRecord,
    GraderRecord,
    GroupRecord,
    Manifest,
    PluginLogRecord,
    SampleRecord,
    SpanRecord,
    TokenRecord,
    TrajectoryRecord,
    TurnRecord,
)

RECORD_TYPES = (
    Attempt,
    FailedGrading,
    FaultRecord,
    FunctionCallRecord,
    FunctionInstanceRecord,
    GraderRecord,
    GroupRecord,
    Manifest,
    PluginLogRecord,
    SampleRecord,
    SpanRecord,
    TokenRecord,
    TrajectoryRecord,
    TurnRecord,
)
LENIENT_FIELDS = (
    "messages",
    "extra",
    "sample",
    "sample_extra",
    "config",
    "settings",
    "attributes",
)
"""Fields that users fill: odd values there are written as their repr, never refused."""

TEXT_REPLACED = "text_replaced"
NOT_JSON = "not_json"

_MAX_DEPTH = 100
_MAX_REPR_CHARS = 1000
_MAX_INT_BITS = 10_000
"""Python refuses to print much longer ones."""
_WRITE_AT_ONCE = 64
_WRITE_EVERY_S = 0.2


def _fields(value: object) -> dict[str, Any]:
    if isinstance(value, RECORD_TYPES):
        return vars(value)
    raise TypeError(f"{type(value).__name__} is not JSON")


_ENCODER = json.JSONEncoder(
    ensure_ascii=False,
    allow_nan=False,
    default=_fields,
    separators=(",", ":"),
    check_circular=False,  # a cycle ends in a RecursionError, and then the record is cleaned
)

# reprlib survives objects whose __repr__ raises, and cuts huge ones
_REPR = reprlib.Repr()
_REPR.maxother = _REPR.maxlong = _REPR.maxstring = _MAX_REPR_CHARS


def encoded(
    record: object, *, secrets: tuple[str, ...] = ()
) -> tuple[bytes, tuple[str, ...] | None]:
    """Encode one record (or dict) as one line with its newline.

    Returns with it the record's warnings as they are in the line, when something had to change.
    `secrets` are masked in all text. Raises `ValueError` naming the field when a number that is
    not finite, or a value that is not JSON, stands outside `LENIENT_FIELDS`.
    """
    try:
        text = _ENCODER.encode(record)
        line = text.encode()
    except (TypeError, ValueError, RecursionError):
        pass
    else:
        if not any(form in text for form in forms_of(secrets)):
            return line + b"\n", None
    document = cleaned(record, secrets=secrets)
    warnings = document.get("warnings")
    line = _ENCODER.encode(document).encode() + b"\n"
    return line, tuple(warnings) if warnings is not None else None


def masked_json(text: bytes, *, secrets: tuple[str, ...]) -> bytes:
    """Mask `secrets` in JSON that was written before."""
    return masked_text(text.decode(), secrets=secrets).encode() if secrets else text


def cleaned(record: object, *, secrets: tuple[str, ...] = ()) -> dict[str, Any]:
    """Turn a record into plain JSON data; what had to change is noted in its ``warnings``."""
    cleaner = _Cleaner(secrets)
    document = {
        key: cleaner.clean(value, path=key, is_lenient=key in LENIENT_FIELDS)
        for key, value in (record.items() if isinstance(record, dict) else _fields(record).items())
    }
    if cleaner.codes:
        known = list(document.get("warnings") or ())
        document["warnings"] = known + sorted(cleaner.codes.difference(known))
    return document


class _Cleaner:
    """Walks one record; `codes` collects what it had to change."""

    def __init__(self, secrets: tuple[str, ...]) -> None:
        self.codes: set[str] = set()
        self._secrets = secrets

    def clean(self, value: Any, *, path: str, is_lenient: bool, depth: int = 0) -> Any:
        if isinstance(value, str):
            return self.text(value)
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, int):
            return (
                value
                if value.bit_length() <= _MAX_INT_BITS
                else self._foreign(f"integer of {value.bit_length()} bits", path, is_lenient)
            )
        if isinstance(value, float):
            return value if math.isfinite(value) else self._foreign(value, path, is_lenient)
        if depth > _MAX_DEPTH:
            self.codes.add(NOT_JSON)
            return f"<nested deeper than {_MAX_DEPTH} levels>"
        if isinstance(value, RECORD_TYPES):
            value = vars(value)
        if isinstance(value, dict):
            return self._mapping(value, path, is_lenient, depth)
        if isinstance(value, (list, tuple)):
            return [
                self.clean(item, path=f"{path}[{index}]", is_lenient=is_lenient, depth=depth + 1)
                for index, item in enumerate(value)
            ]
        return self._foreign(value, path, is_lenient)

    def _mapping(
        self, value: dict[Any, Any], path: str, is_lenient: bool, depth: int
    ) -> dict[str, Any]:
        result = {}
        for key, item in value.items():
            if not isinstance(key, str):
                self.codes.add(NOT_JSON)
            name = self.text(key if isinstance(key, str) else _REPR.repr(key))
            result[name] = self.clean(
                item, path=f"{path}.{name}", is_lenient=is_lenient, depth=depth + 1
            )
        return result

    def _foreign(self, value: object, path: str, is_lenient: bool) -> str:
        if not is_lenient:
            raise ValueError(f"{path} is {_REPR.repr(value)}, which a run record cannot hold")
        self.codes.add(NOT_JSON)
        return self.text(_REPR.repr(value))

    def text(self, value: str) -> str:
        """Join surrogate pairs, replace lone surrogates by U+FFFD, mask secrets."""
        value = str(value)
        if not _is_utf8(value):
            joined = value.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
            if joined.count("\ufffd") > value.count("\ufffd"):
                self.codes.add(TEXT_REPLACED)
            value = joined
        return masked_text(value, secrets=self._secrets)


def _is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def utf8_text(text: str) -> str:
    """Return `text` with surrogate pairs joined and lone surrogates replaced by U+FFFD."""
    return _Cleaner(()).text(text)


class LineFile:
    """An append-only file of whole lines, opened on the first one. Safe to use from any thread.

    Each line is one `os.write` to an ``O_APPEND`` descriptor: a process killed at any moment
    leaves at most one torn line, the last.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._descriptor: int | None = None
        self._is_torn = False

    def append(self, line: bytes) -> None:
        """Write `line`, which ends in a newline.

        Raises `OSError`, also when the file was removed meanwhile: nobody would ever read the line.
        """
        with self._lock:
            if self._descriptor is None:
                flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
                self._descriptor = os.open(self._path, flags, 0o666)
            elif not os.fstat(self._descriptor).st_nlink:
                raise FileNotFoundError(errno.ENOENT, f"{self._path.name} was removed")
            if self._is_torn:  # an earlier line was cut short, say by a full disk
                line = b"\n" + line
            self._is_torn = True
            written = os.write(self._descriptor, line)
            while written < len(line):
                written += os.write(self._descriptor, line[written:])
            self._is_torn = False

    def close(self) -> None:
        """Close the file. A later line opens it again."""
        with self._lock:
            if self._descriptor is not None:
                with suppress(OSError):
                    os.close(self._descriptor)
                self._descriptor = None


class ManyLineFile(LineFile):
    """A file of very many lines: several are written at once, since each write costs a turn.

    A killed process may lose those of the last `_WRITE_EVERY_S` seconds.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._waiting: list[bytes] = []
        self._next_write = 0.0
        self._waiting_lock = threading.Lock()

    def append(self, line: bytes) -> None:
        """Take `line`, which ends in a newline; write what waits now and then."""
        with self._waiting_lock:
            self._waiting.append(line)
            if len(self._waiting) < _WRITE_AT_ONCE and time.monotonic() < self._next_write:
                return
            lines = self._taken()
        super().append(lines)

    def close(self) -> None:
        """Write what waits, and close the file."""
        with self._waiting_lock:
            lines = self._taken()
        if lines:
            super().append(lines)
        super().close()

    def _taken(self) -> bytes:
        lines = b"".join(self._waiting)
        self._waiting.clear()
        self._next_write = time.monotonic() + _WRITE_EVERY_S
        return lines
