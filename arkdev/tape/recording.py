"""Recording: what plugins get from outside is written down, for the attempt that they belong to.

Recording begins before the plugins are imported, the file when it is known what runs: what comes in
between waits in memory.
"""

from __future__ import annotations

import itertools
import threading
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from arkdev.observe.attempt import attempt_here
from arkdev.tape.format import (
    ATTEMPT,
    CLOCK,
    GROUP,
    SAMPLE,
    SHARED,
    TIMEOUT,
    Line,
    StreamKey,
    TapeHeader,
    TapeWriter,
    header_line,
)
from arkdev.tape.randomness import Generators
from arkdev.tape.redaction import Redaction

_NUM_LATEST_SECRETS = 64


def current_stream() -> StreamKey:
    """Return whose attempt the running code belongs to."""
    attempt = attempt_here()
    return SHARED if attempt is None else (attempt.name, attempt.number - 1)


def line_of(kind: str, stream: StreamKey, **fields: Any) -> Line:
    """Return a line of a tape that belongs to an attempt, or to none."""
    whose = {} if stream == SHARED else {"of": stream[0], "attempt": stream[1]}
    return {"kind": kind, **whose, **fields}


class Recording:
    """One tape that is being recorded. Safe to use from any thread."""

    def __init__(self, writer: TapeWriter, *, seed: int) -> None:
        self.seed = seed
        self.redaction = Redaction(())
        self._writer = writer
        self._waiting: list[Callable[[], Line]] | None = []
        self._numbers: defaultdict[tuple[str, StreamKey], Iterator[int]] = defaultdict(
            lambda: itertools.count(1)
        )
        self._generators: dict[StreamKey, Generators] = {}
        self._learned: defaultdict[str, set[str]] = defaultdict(set)
        """By sample, the secrets that services gave."""
        self._latest: deque[str] = deque(maxlen=_NUM_LATEST_SECRETS)
        self._lock = threading.RLock()

    def redaction_of(self, stream: StreamKey) -> Redaction:
        """Return what masks the lines of an attempt.

        A secret that a service gave, say a token, is one from then on: for the sample's attempts,
        and the latest for all, which may share a login.
        """
        sample = _sample_of(stream)
        with self._lock:
            # those of other samples stay known: an answer that held one has `***` from then on
            known = self._learned[sample]
            known.update(self._latest)
            known = set(known)
        return self.redaction.knowing(known, learn=lambda secret: self._learn(sample, secret))

    def _learn(self, sample: str, secret: str) -> None:
        with self._lock:
            if secret not in self._learned[sample]:
                self._learned[sample].add(secret)
                self._latest.append(secret)

    def begin(self, header: TapeHeader, *, secrets: Iterable[str]) -> None:
        """Write the header, and what came before it. Raises what `TapeWriter.claim` raises."""
        self._writer.claim()
        self.redaction = Redaction(secrets)
        with self._lock:
            line = header_line(header)
            self._writer.write({name: self.redaction.literals(v) for name, v in line.items()})
            for made in self._waiting or ():
                self._writer.write(made())
            self._waiting = None
        self._writer.check()

    def sample(self, index: int, *, line: str, sampling: dict[str, Any]) -> None:
        """A sample begins."""
        sample = {"index": index, "line": line, "sampling": sampling}
        self._write(lambda: {"kind": SAMPLE, **self.redaction.literals(sample)})

    def attempt(self, stream: StreamKey, *, at: float) -> None:
        """An attempt of a rollout begins, `at` seconds since 1970."""
        self._write(lambda: line_of(ATTEMPT, stream, at=at))

    def timeout(self, stream: StreamKey) -> None:
        """An attempt, of a rollout or of a grading, ran out of time."""
        self._write(lambda: line_of(TIMEOUT, stream))

    def group(self, sample_index: int, *, verdict: str) -> None:
        """A sample's group came to its end. Raises `OutputError` when the disk refused a line."""
        self._write(lambda: {"kind": GROUP, "sample_index": sample_index, "verdict": verdict})
        self._writer.check()

    def number(self, kind: str, stream: StreamKey) -> int:
        """Count a request of an attempt; its number among those of its kind, from 1."""
        with self._lock:
            return next(self._numbers[kind, stream])

    def exchange(
        self, kind: str, stream: StreamKey, *, number: int, exchange: Callable[[Redaction], Line]
    ) -> None:
        """Keep a request and what came of it; `exchange` makes them, redacted."""
        self._write(lambda: line_of(kind, stream, n=number, **exchange(self.redaction_of(stream))))

    def reading(self, name: str, read: Callable[[], Any]) -> Any:
        """See `arkdev.tape.clock.Clock`."""
        value, stream = read(), current_stream()
        self._write(lambda: line_of(CLOCK, stream, name=name, value=value))
        return value

    def generators(self) -> Generators:
        """Return the random generators of the running attempt."""
        stream = current_stream()
        with self._lock:
            if stream not in self._generators:
                self._generators[stream] = Generators(self.seed, *stream)
            return self._generators[stream]

    def forget(self, sample_index: int) -> None:
        """Drop what is kept in memory for the attempts of a sample that is done."""
        prefix = f"{sample_index}."
        with self._lock:
            self._learned.pop(str(sample_index), None)
            for stream in [s for s in self._generators if s[0].startswith(prefix)]:
                del self._generators[stream]
            for key in [key for key in self._numbers if key[1][0].startswith(prefix)]:
                del self._numbers[key]

    def close(self) -> None:
        """Close the file."""
        self._writer.close()

    def _write(self, made: Callable[[], Line]) -> None:
        if self._waiting is None:
            self._writer.write(made())
            return
        with self._lock:
            if self._waiting is not None:
                self._waiting.append(made)
                return
        self._writer.write(made())


def _sample_of(stream: StreamKey) -> str:
    """Return the sample of an attempt; "" where there is none."""
    return stream[0].partition(".")[0]
