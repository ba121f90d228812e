"""Counts with examples: how often something happened and where to look at it."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field

from arkdev.harness.summary import ErrorSummary

_VARYING = re.compile(
    r"""
    request\ id:\ \S+ | "[^"]*" | '[^']*' | \b[0-9a-f]*\d[0-9a-f-]{7,}\b | 0x[0-9a-f]+
    | \d+(\.\d+)?
    """,
    re.VERBOSE | re.IGNORECASE,
)
"""What differs between errors of one kind: ids, numbers, quoted data."""

_PYDANTIC_LINK = re.compile(r"\s*For further information visit \S+")
_OF_FIELDS = "validation error"
_HINT = "\nhint: "
_MAX_EXAMPLES = 3
_MAX_ERROR_KINDS = 200
_MAX_MESSAGE_CHARS = 300
_MAX_END_CHARS = 120


@dataclass
class Examples:
    """A count with the first few ids."""

    count: int = 0
    ids: list[str] = field(default_factory=list)

    def add(self, example: str) -> None:
        """Count one more, seen in `example`."""
        self.count += 1
        if len(self.ids) < _MAX_EXAMPLES and example not in self.ids:
            self.ids.append(example)


class ErrorCounts:
    """Attempts grouped by source, place and message, where ids, numbers and data do not matter."""

    def __init__(self) -> None:
        self._kinds: dict[tuple[str, str | None, str], Examples] = {}
        self._messages: dict[tuple[str, str | None, str], str] = {}
        self._hints: dict[tuple[str, str | None, str], str] = {}
        self._num_final: Counter[tuple[str, str | None, str]] = Counter()

    def add(
        self,
        source: str,
        *,
        message: str,
        where: str | None,
        example: str,
        is_final: bool = True,
        count: int = 1,
    ) -> None:
        """Count `count` attempts that failed alike; the last one decides when `is_final`."""
        message, _, hint = message.strip().partition(_HINT)
        if _OF_FIELDS not in message:  # each field of a validation error has lines of its own
            message = message.partition("\n")[0]
        message = _shortened(" ".join(_PYDANTIC_LINK.sub("", message).split()))
        key = (source, where, _VARYING.sub("0", message))
        if key not in self._kinds and len(self._kinds) >= _MAX_ERROR_KINDS:
            key = (source, None, "other errors")
            message, hint = "other errors", ""
        self._messages.setdefault(key, message)
        self._hints.setdefault(key, hint.strip())
        kind = self._kinds.setdefault(key, Examples())
        kind.add(example)
        kind.count += count - 1
        self._num_final[key] += is_final

    def summary(self) -> tuple[ErrorSummary, ...]:
        """Return what decided most rollouts or gradings first."""
        rows = (
            ErrorSummary(
                source=key[0],
                message=self._messages[key],
                hint=self._hints[key],
                where=key[1],
                count=examples.count,
                num_final=self._num_final[key],
                examples=tuple(examples.ids),
            )
            for key, examples in self._kinds.items()
        )
        return tuple(sorted(rows, key=lambda row: (-row.num_final, -row.count)))


def _shortened(message: str) -> str:
    """Cut a long message in its middle: what was wrong often stands at its end."""
    if len(message) <= _MAX_MESSAGE_CHARS:
        return message
    start = _MAX_MESSAGE_CHARS - _MAX_END_CHARS
    return f"{message[:start]} ... {message[-_MAX_END_CHARS:]}"
