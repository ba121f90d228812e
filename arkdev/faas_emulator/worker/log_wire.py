"""What an instance writes on its standard output and standard error, and how it is read.

Both streams carry raw bytes and, among them, frames: one JSON object each, as a JSON text sequence
has it (RFC 7464: a record separator, the JSON in ASCII, a line feed). What Python code prints or
logs comes in frames that name the request; what is written past Python, by libraries and child
processes, comes raw::

    ␞{"begin": "req-1"}
    ␞{"request": "req-1", "at": 1.5, "level": "PRINT", "text": "caf\\u00e9\\n"}
    gcc: error
    ␞{"request": "req-1", "at": 1.6, "level": "INFO", "logger": "plugins.search", "text": "asked"}
    ␞{"end": "req-1"}

``text`` holds bytes that are no UTF-8 as lone surrogates (``surrogateescape``), so nothing is lost.
A frame is at most `MAX_FRAME_BYTES` long, so that the system writes it in one piece; what is longer
comes in several, all but the last with ``"more": true``. Printed text is not cut at its line ends:
`OutputReader` puts the lines of a request together. A raw line belongs to the request that alone is
under way; when there are several, or none, nobody knows whose it is.

Once the instance serves, it says ``{"ready": {"port": ..., "import_s": ...}}`` on standard output;
when it cannot, ``{"failed": ...}`` with the error (`arkdev.plugin.error_documents`).
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

from arkdev.observe.attempt import AttemptPlace
from arkdev.observe.log_lines import OUTPUT, PRINT, LogLine

RECORD_SEPARATOR = b"\x1e"
MAX_FRAME_BYTES = 4096
"""What a pipe takes in one piece (PIPE_BUF of Linux): frames of several writers never mix."""
MAX_LINE_BYTES = 1_048_576
"""A longer line comes in pieces of at most this size."""
_HELD_BYTES = 16_384
"""Of a line that is cut into pieces: the last bytes, since a secret may go on after them."""
_FIRST_TEXT_CHARS = 2048
"""Tried for one frame; less where characters take several bytes in ASCII."""

Stream = Literal["stdout", "stderr"]


@dataclass(frozen=True)
class OutputLine:
    """One line of an instance's output, byte for byte, without its line end."""

    request_id: str
    """Empty: nobody knows whose it is."""
    stream: Stream
    data: bytes
    at: float
    """Seconds since 1970."""
    level: str
    """`PRINT`, `OUTPUT` (written past Python) or a level of `logging`."""
    logger: str = ""

    @property
    def text(self) -> str:
        """The line as text; what is no UTF-8 is replaced."""
        return self.data.decode("utf-8", "replace")

    def log_line(self, place: AttemptPlace | None) -> LogLine:
        """Return the line as one of the attempt that the request belongs to."""
        return LogLine(self.at, self.level, self.logger, self.text, place)


@dataclass(frozen=True)
class Ready:
    """The instance serves."""

    port: int
    import_s: float
    """What the import of the plugin took, in seconds."""


@dataclass(frozen=True)
class Failed:
    """The instance cannot serve; `error` is an error document."""

    error: dict[str, Any]


Output = OutputLine | Ready | Failed


def frame(fields: dict[str, Any]) -> bytes:
    """Return one frame, ready to be written."""
    text = json.dumps(fields, ensure_ascii=True, separators=(",", ":"))
    return RECORD_SEPARATOR + text.encode("ascii") + b"\n"


def text_frames(
    text: str, *, request_id: str, level: str, at: float, logger: str = ""
) -> Iterator[bytes]:
    """Yield the frames of a text that was printed, or of a log record."""
    head: dict[str, Any] = {"request": request_id, "at": round(at, 6), "level": level}
    if logger:
        head["logger"] = logger
    start, size = 0, _FIRST_TEXT_CHARS
    while True:
        is_last = start + size >= len(text)
        more = {} if is_last else {"more": True}
        made = frame({**head, "text": text[start : start + size], **more})
        if len(made) > MAX_FRAME_BYTES and size > 1:
            size //= 2
            continue
        yield made
        if is_last:
            return
        start += size


def _as_it_is(data: bytes) -> bytes:
    return data


class _Line:
    """The part of a line that has come so far; `mask` as `OutputReader` has it."""

    def __init__(self, mask: Callable[[bytes], bytes]) -> None:
        self._mask = mask
        self._parts = bytearray()

    def add(self, data: bytes) -> list[bytes]:
        """Take the next part; return what is whole now, without line ends."""
        self._parts += data
        *whole, rest = self._parts.split(b"\n") if b"\n" in data else [self._parts]
        self._parts = rest
        return [bytes(line) for line in whole] + self._pieces()

    def rest(self) -> list[bytes]:
        """Take what waits: the line has no end."""
        rest, self._parts = self._parts, bytearray()
        return [bytes(rest)] if rest else []

    def _pieces(self) -> list[bytes]:
        if len(self._parts) <= MAX_LINE_BYTES:
            return []
        data = self._mask(bytes(self._parts))
        end = max(len(data) - _HELD_BYTES, 0)
        self._parts = bytearray(data[end:])
        begins = range(0, end, MAX_LINE_BYTES)
        return [data[begin : min(begin + MAX_LINE_BYTES, end)] for begin in begins]


class OutputReader:
    """Reads one stream of an instance, in whatever pieces it comes.

    `mask` takes the secrets out of a line that is cut into pieces: in these nobody finds them.
    """

    def __init__(self, stream: Stream, *, mask: Callable[[bytes], bytes] = _as_it_is) -> None:
        self._stream: Stream = stream
        self._mask = mask
        self._frame: bytearray | None = None
        """The frame that has begun, without its separator."""
        self._printed: dict[str, _Line] = {}
        self._record: list[str] = []
        """The parts of a log record that comes in several frames."""
        self._raw = _Line(mask)
        self._raw_owner = ""
        self._under_way: dict[str, None] = {}

    def feed(self, data: bytes) -> list[Output]:
        """Take the next bytes; return what is whole now."""
        found: list[Output] = []
        while data:
            if self._frame is None:
                raw, separator, data = data.partition(RECORD_SEPARATOR)
                found += self._take_raw(raw)
                if separator:
                    self._frame = bytearray()
                continue
            part, end, data = data.partition(b"\n")
            self._frame += part
            if end or len(self._frame) > MAX_FRAME_BYTES:
                text, self._frame = bytes(self._frame), None
                found += self._take_frame(text, end)
        return found

    def close(self) -> list[Output]:
        """Take the end of the stream; return what never came to its line end."""
        found: list[Output] = []
        if self._frame is not None:
            found += self._take_raw(RECORD_SEPARATOR + bytes(self._frame))
            self._frame = None
        found += self._raw_rest()
        for request_id, line in self._printed.items():
            found += [self._line(data, request_id, PRINT) for data in line.rest()]
        self._printed.clear()
        return found

    def _take_frame(self, text: bytes, end: bytes) -> list[Output]:
        try:
            fields = json.loads(text)
        except (ValueError, RecursionError):
            fields = None
        try:
            return self._read(fields)
        except (KeyError, TypeError, AttributeError):  # somebody else's separator
            return self._take_raw(RECORD_SEPARATOR + text + end)

    def _read(self, fields: Any) -> list[Output]:
        if "text" in fields:
            return self._take_text(fields)
        if "begin" in fields:
            return self._begin(fields["begin"])
        if "end" in fields:
            return self._end(fields["end"])
        if "ready" in fields:
            return [Ready(**fields["ready"])]
        return [Failed(dict(fields["failed"]))]

    def _take_text(self, fields: dict[str, Any]) -> list[Output]:
        request_id, level, text = fields["request"], fields["level"], fields["text"]
        if level != PRINT:
            self._record.append(text)
            if fields.get("more"):
                return []
            data, self._record = _bytes("".join(self._record)), []
            logger = fields.get("logger", "")
            return [OutputLine(request_id, self._stream, data, fields["at"], level, logger)]
        line = self._printed.setdefault(request_id, _Line(self._mask))
        return [
            self._line(data, request_id, PRINT, at=fields["at"]) for data in line.add(_bytes(text))
        ]

    def _begin(self, request_id: str) -> list[Output]:
        found = self._raw_rest()
        self._under_way[request_id] = None
        return found

    def _end(self, request_id: str) -> list[Output]:
        found = self._raw_rest()
        printed = self._printed.pop(request_id, None)
        if printed is not None:
            found += [self._line(data, request_id, PRINT) for data in printed.rest()]
        self._under_way.pop(request_id, None)
        return found

    def _take_raw(self, data: bytes) -> list[Output]:
        return [self._line(line, self._alone, OUTPUT) for line in self._raw.add(data)]

    def _raw_rest(self) -> list[Output]:
        return [self._line(line, self._alone, OUTPUT) for line in self._raw.rest()]

    @property
    def _alone(self) -> str:
        return next(iter(self._under_way)) if len(self._under_way) == 1 else ""

    def _line(
        self, data: bytes, request_id: str, level: str, *, at: float | None = None
    ) -> OutputLine:
        return OutputLine(request_id, self._stream, data, time.time() if at is None else at, level)


def _bytes(text: str) -> bytes:
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:  # a half of a character that Python code made itself
        return text.encode("utf-8", "surrogatepass")
