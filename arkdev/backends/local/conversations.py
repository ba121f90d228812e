"""The ids of conversations as they were sampled: the next prompt extends them (decisions 8 and 9).

A turn is a prompt and the answer sampled to it. Two turns that follow one share what led to it::

    r1  [5, 6] [7, 8] ─┬─ r2  [5, 6, 7, 8, 9] [4]
                       └─ r3  [5, 6, 7, 8, 2] [1]
"""

from __future__ import annotations

import json
import threading
from array import array
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from typing import Any

from arkdev.backends.local.common_beginning import num_common
from arkdev.backends.local.rendering import AnsweredHistory, Messages, Rendering, Tools
from arkdev.plugin.conversation import canonical

MAX_TOKENS = 1 << 24
"""What is remembered at most: 64 MiB of ids; with logprobs and what names the turns, up to half a
gigabyte where they are short."""


@dataclass(frozen=True)
class Prompt:
    """The ids of a prompt, and where they come from."""

    token_ids: tuple[int, ...]
    num_kept: int
    """So many at the beginning are those of an earlier turn, prompt and answer, as they were."""
    follows: str | None
    """The response id of that turn; None: no remembered turn is a beginning of the messages."""
    is_written_anew: bool
    """A remembered turn is a beginning of the messages, but not of the prompt: the template writes
    it otherwise now that more follows. Of its ids only those in common are kept."""
    place: _Place = field(repr=False)
    """For `Conversations.remember`."""


@dataclass(frozen=True)
class PromptCounts:
    """How many prompts came about in which way."""

    begun: int = 0
    """No remembered turn is a beginning of them: first ones, and rewritten ones."""
    extended: int = 0
    written_anew: int = 0
    """See `Prompt.is_written_anew`."""


@dataclass(frozen=True)
class RememberedTurn:
    """What was sampled for one response."""

    prompt_token_ids: tuple[int, ...]
    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]


@dataclass(frozen=True)
class _Place:
    scope: str
    num_messages: int
    digest: bytes
    """Of tools, thinking switch and messages."""


class _Turn:
    """Of a turn only what its parent does not have."""

    def __init__(self, response_id: str, *, parent: _Turn | None, num_kept: int) -> None:
        self.response_id = response_id
        self.parent = parent
        self.num_kept = num_kept
        self.root: str = parent.root if parent is not None else response_id
        self.rest = array("i")
        """The ids after the kept ones, of the prompt and of the answer."""
        self.num_sampled = 0
        self.logprobs = array("d")
        self.key: tuple[str, bytes] = ("", b"")
        """Scope, and digest of the messages with the answer."""
        self.num_messages = 0

    @property
    def token_ids(self) -> list[int]:
        """All of them."""
        parts: list[array[int]] = []
        turn: _Turn | None = self
        end = self.num_kept + len(self.rest)
        while turn is not None:
            if end > turn.num_kept:
                parts.append(turn.rest[: end - turn.num_kept])
                end = turn.num_kept
            turn = turn.parent
        return [token for part in reversed(parts) for token in part]

    @property
    def history(self) -> AnsweredHistory:
        ids = self.token_ids
        begin = len(ids) - self.num_sampled
        return AnsweredHistory(self.num_messages, ids[:begin], ids[begin:])


class Conversations:
    """Remembers turns by response id and writes the prompts that follow them; thread-safe.

    When more than `max_tokens` are remembered, the conversation that was used least recently is
    forgotten, and of one that alone is larger the oldest branches; a later turn of what is
    forgotten is rendered from its messages.
    """

    def __init__(self, rendering: Rendering, *, max_tokens: int = MAX_TOKENS) -> None:
        self._rendering = rendering
        self._max_tokens = max_tokens
        self._turns: dict[str, _Turn] = {}
        self._by_key: dict[tuple[str, bytes], _Turn] = {}
        """The latest of those that say the same."""
        self._latest: dict[str, _Turn] = {}
        """Of each scope."""
        self._trees: OrderedDict[str, list[_Turn]] = OrderedDict()
        """The turns of each conversation with its branches, by its root; used last at the end."""
        self._num_tokens = 0
        self._counts = PromptCounts()
        self._lock = threading.Lock()

    @property
    def counts(self) -> PromptCounts:
        """How the prompts so far came about."""
        return self._counts

    @property
    def num_tokens(self) -> int:
        """Ids that are remembered now; those that turns share count once."""
        return self._num_tokens

    def prompt(
        self,
        messages: Messages,
        *,
        tools: Tools | None = None,
        thinking: bool | None = None,
        scope: str = "",
        previous_response_id: str | None = None,
    ) -> Prompt:
        """Return the prompt of `messages`.

        It extends the turn `previous_response_id`, if that is remembered and the messages begin
        with its own; else the longest turn of the same `scope` (one attempt, say) whose messages
        are canonically equal to the beginning of these (`arkdev.plugin.conversation.canonical`).
        Other scopes are not looked at: which of them come first is chance. Without such a turn, and
        where the template writes it otherwise now, the prompt is rendered whole. Raises what
        `Rendering.render` raises.
        """
        digests = list(_digests(messages, tools=tools, thinking=thinking))
        place = _Place(scope, len(messages), digests[-1])
        with self._lock:
            turns = self._candidates(digests, scope, previous_response_id)
            latest = self._latest.get(scope)
        found = self._deepest(turns, messages, tools=tools, thinking=thinking)
        if found is not None:
            turn, added = found
            kept = turn.token_ids
            prompt = Prompt(
                (*kept, *added), len(kept), turn.response_id, turn is not turns[0], place
            )
        else:
            whole = self._rendering.render(messages, tools=tools, thinking=thinking)
            near = turns[0] if turns else latest
            num_kept = num_common(near.token_ids, whole) if near is not None else 0
            follows = near.response_id if near is not None and turns else None
            prompt = Prompt(tuple(whole), num_kept, follows, bool(turns), place)
        self._count(prompt)
        return prompt

    def remember(
        self,
        response_id: str,
        *,
        prompt: Prompt,
        message: Mapping[str, Any],
        token_ids: Sequence[int],
        logprobs: Sequence[float],
    ) -> None:
        """Keep what was sampled to `prompt`; `message` is the answer as the caller gets it."""
        with self._lock:
            parent = self._turns.get(prompt.follows) if prompt.follows is not None else None
            num_kept = prompt.num_kept if parent is not None else 0
            turn = _Turn(response_id, parent=parent, num_kept=num_kept)
            turn.rest.extend(prompt.token_ids[num_kept:])
            turn.rest.extend(token_ids)
            turn.num_sampled = len(token_ids)
            turn.logprobs.extend(logprobs)
            turn.num_messages = prompt.place.num_messages + 1
            turn.key = (prompt.place.scope, _next_digest(prompt.place.digest, message))
            self._turns[response_id] = turn
            self._by_key[turn.key] = turn
            self._latest[prompt.place.scope] = turn
            self._trees.setdefault(turn.root, []).append(turn)
            self._trees.move_to_end(turn.root)
            self._num_tokens += len(turn.rest)
            self._forget_some()

    def turn(self, response_id: str) -> RememberedTurn | None:
        """Return what was sampled for a response; None when it is not, or no longer, remembered."""
        with self._lock:
            turn = self._turns.get(response_id)
        if turn is None:
            return None
        history = turn.history
        return RememberedTurn(
            tuple(history.prompt_token_ids), tuple(history.token_ids), tuple(turn.logprobs)
        )

    def _candidates(
        self, digests: Sequence[bytes], scope: str, previous_response_id: str | None
    ) -> list[_Turn]:
        """Return the turns that the messages begin with, the longest first."""
        keys = {digest: length for length, digest in enumerate(digests)}
        found: list[_Turn] = []
        turn = self._turns.get(previous_response_id) if previous_response_id is not None else None
        while turn is not None:  # what it followed may be a beginning where it is not itself
            if keys.get(turn.key[1]) == turn.num_messages:
                found.append(turn)
            turn = turn.parent
        if not found:
            by_key = (self._by_key.get((scope, digest)) for digest in reversed(digests))
            found = [turn for turn in by_key if turn is not None]
        for turn in found[:1]:
            if turn.root in self._trees:
                self._trees.move_to_end(turn.root)
        return found

    def _deepest(
        self, turns: Sequence[_Turn], messages: Messages, **options: Any
    ) -> tuple[_Turn, list[int]] | None:
        """Return the longest turn that the prompt can extend, and the ids that follow it.

        Where a template writes a turn otherwise now, it may still write an earlier one as it did;
        if it does, it does so for all before that.
        """

        def extended(turn: _Turn) -> tuple[_Turn, list[int]] | None:
            added = self._rendering.extend(messages, after=turn.history, **options)
            return None if added is None else (turn, added)

        found = extended(turns[0]) if turns else None
        if found is not None:
            return found
        low, high = 1, len(turns)
        while low < high:
            middle = (low + high) // 2
            deeper = extended(turns[middle])
            if deeper is None:
                low = middle + 1
            else:
                found, high = deeper, middle
        return found

    def _count(self, prompt: Prompt) -> None:
        if prompt.is_written_anew:
            name = "written_anew"
        else:
            name = "begun" if prompt.follows is None else "extended"
        with self._lock:
            counts = self._counts
            self._counts = replace(counts, **{name: getattr(counts, name) + 1})

    def _forget_some(self) -> None:
        """Forget whole conversations, since the turns of one lean on each other."""
        while self._num_tokens > self._max_tokens and len(self._trees) > 1:
            _, turns = self._trees.popitem(last=False)
            for turn in turns:
                self._forget(turn)
        if self._num_tokens > self._max_tokens:
            self._forget_branches()

    def _forget_branches(self) -> None:
        """Of the one conversation that is left, forget the oldest turns that nothing follows.

        A few more than need be: the next ones have room for a while.
        """
        ((root, turns),) = self._trees.items()
        followed = {turn.parent for turn in turns}
        *before, newest = turns
        kept = []
        for turn in before:
            if turn in followed or self._num_tokens <= self._max_tokens * 7 // 8:
                kept.append(turn)
            else:
                self._forget(turn)
        self._trees[root] = [*kept, newest]

    def _forget(self, turn: _Turn) -> None:
        self._num_tokens -= len(turn.rest)
        self._turns.pop(turn.response_id, None)
        scope = turn.key[0]
        if self._by_key.get(turn.key) is turn:
            del self._by_key[turn.key]
        if self._latest.get(scope) is turn:
            del self._latest[scope]


def _digests(messages: Messages, *, tools: Tools | None, thinking: bool | None) -> Iterator[bytes]:
    """Yield what stands for the beginnings of the messages, from none of them to all."""
    digest = _digest(b"", [list(tools or ()), thinking])
    yield digest
    for message in messages:
        digest = _next_digest(digest, message)
        yield digest


def _next_digest(digest: bytes, message: Mapping[str, Any]) -> bytes:
    return _digest(digest, canonical(dict(message)))


def _digest(before: bytes, value: Any) -> bytes:
    text = json.dumps(value, sort_keys=True, default=str).encode()
    return blake2b(before + text, digest_size=16).digest()
