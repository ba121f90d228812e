"""Counts with examples: how often something happened and where to look at it."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field

from arkdev.harness.summary import ErrorSummary

_NUMBER = re.compile(r"0x[0-9a-f]+|\d+(\.\d+)?")
_MAX_EXAMPLES = 3
_MAX_ERROR_KINDS = 200
_MAX_MESSAGE_CHARS = 300


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
    """Attempts grouped by source, place and message, where numbers in messages do not matter."""

    def __init__(self) -> None:
        self._kinds: dict[tuple[str, str | None, str], Examples] = {}
        self._messages: dict[tuple[str, str | None, str], str] = {}
        self._num_final: Counter[tuple[str, str | None, str]] = Counter()

    def add(
        self, source: str, *, message: str, where: str | None, example: str, is_final: bool = True
    ) -> None:
        """Count one failed attempt; only the first line of `message` is looked at."""
        message = " ".join(message.strip().partition("\n")[0].split())[:_MAX_MESSAGE_CHARS]
        key = (source, where, _NUMBER.sub("0", message))
        if key not in self._kinds and len(self._kinds) >= _MAX_ERROR_KINDS:
            key = (source, None, "other errors")
            message = "other errors"
        self._messages.setdefault(key, message)
        self._kinds.setdefault(key, Examples()).add(example)
        self._num_final[key] += is_final

    def summary(self) -> tuple[ErrorSummary, ...]:
        """Return what decided most rollouts or gradings first."""
        rows = (
            ErrorSummary(
                source=key[0],
                message=self._messages[key],
                where=key[1],
                count=examples.count,
                num_final=self._num_final[key],
                examples=tuple(examples.ids),
            )
            for key, examples in self._kinds.items()
        )
        return tuple(sorted(rows, key=lambda row: (-row.num_final, -row.count)))
