"""What a set of samples is made of, counted in flat memory while its files are read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from arkdev.job.length_distribution import LengthDistribution, LengthSummary
from arkdev.job.prompts import prompt_size

_MAX_KINDS = 50
_OTHER = "(other)"
_SAMPLING = ("max_new_tokens", "top_p", "top_k", "temperature", "thinking")
_MAX_PLACES = 3


@dataclass(frozen=True)
class SetStatistics:
    """Of all samples of a set, before mixing."""

    num_samples: int
    roles: dict[str, int]
    """Messages by role."""
    last_roles: dict[str, int]
    """Samples by the role of their last message."""
    parts: dict[str, int]
    """Parts of contents by type; a content that is text is none."""
    num_multimodal: int
    """Samples with a part that is not text."""
    num_with_tools: int
    sampling: dict[str, int]
    """Samples that set a sampling parameter of their own, by its name."""
    extra_keys: dict[str, int]
    """Samples whose ``extra`` has a key."""
    messages: LengthSummary | None
    """Messages of a prompt; None for an empty set, as the next two."""
    characters: LengthSummary | None
    tokens: LengthSummary | None
    """Estimated tokens of a prompt."""


@dataclass(frozen=True)
class MissingKey:
    """A key that graders read and some samples do not have."""

    key: str
    num_samples: int
    """Samples whose ``extra`` lacks it, or has null there."""
    places: tuple[str, ...]
    """file:line of the first three."""


class StatisticsCollector:
    """Collects the statistics of one set; `wanted` are the keys that graders read."""

    def __init__(self, *, wanted: Sequence[str] = ()) -> None:
        self._wanted = tuple(wanted)
        self._num_samples = self._num_multimodal = self._num_with_tools = 0
        self._roles: Counter[str] = Counter()
        self._last_roles: Counter[str] = Counter()
        self._parts: Counter[str] = Counter()
        self._sampling: Counter[str] = Counter()
        self._extra_keys: Counter[str] = Counter()
        self._missing: Counter[str] = Counter()
        self._places: dict[str, list[str]] = {}
        self._messages, self._characters = LengthDistribution(), LengthDistribution()
        self._tokens = LengthDistribution()

    def add(self, raw: Mapping[str, Any], *, where: str) -> None:
        """Add a line that is a sample."""
        self._num_samples += 1
        messages = raw["messages"]
        for message in messages:
            self._roles[message["role"]] += 1
        self._last_roles[messages[-1]["role"]] += 1
        self._add_parts(messages)
        self._num_with_tools += bool(raw.get("tools"))
        self._sampling.update(name for name in _SAMPLING if raw.get(name) is not None)
        self._add_extra(raw.get("extra") or {}, where=where)
        size = prompt_size(raw)
        self._messages.add(len(messages))
        self._characters.add(size.num_characters)
        self._tokens.add(size.num_tokens)

    def _add_parts(self, messages: Sequence[Mapping[str, Any]]) -> None:
        has_media = False
        for message in messages:
            content = message.get("content")
            if isinstance(content, str) or not content:
                continue
            for part in [content] if isinstance(content, dict) else content:
                _count(self._parts, part["type"])
                has_media = has_media or part["type"] != "text"
        self._num_multimodal += has_media

    def _add_extra(self, extra: Mapping[str, Any], *, where: str) -> None:
        for key in extra:
            _count(self._extra_keys, key)
        for key in self._wanted:
            if extra.get(key) is None:
                self._missing[key] += 1
                places = self._places.setdefault(key, [])
                if len(places) < _MAX_PLACES:
                    places.append(where)

    def missing_keys(self) -> list[MissingKey]:
        """Return the wanted keys that some samples lack."""
        return [
            MissingKey(key, count, tuple(self._places[key])) for key, count in self._missing.items()
        ]

    def summary(self) -> SetStatistics:
        """Return the statistics so far."""
        return SetStatistics(
            num_samples=self._num_samples,
            roles=dict(self._roles.most_common()),
            last_roles=dict(self._last_roles.most_common()),
            parts=dict(self._parts.most_common()),
            num_multimodal=self._num_multimodal,
            num_with_tools=self._num_with_tools,
            sampling=dict(self._sampling.most_common()),
            extra_keys=dict(self._extra_keys.most_common()),
            messages=self._messages.summary(),
            characters=self._characters.summary(),
            tokens=self._tokens.summary(),
        )


def _count(counter: Counter[str], name: str) -> None:
    """Count a name of the user's; beyond 50 different ones they are counted together."""
    counter[name if name in counter or len(counter) < _MAX_KINDS else _OTHER] += 1
