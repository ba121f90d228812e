"""Token drift: where a conversation rendered from its messages differs from what was sampled.

Each dialogue is gone through turn by turn, as training would: the prompt of a turn extends the turn
before, and is also rendered from scratch. Two things can come of it::

    cut      the template writes an earlier turn otherwise now: its tokens are trained no more
    shifted  the prompt is extended as it should be, but a rendering from scratch differs: whoever
             trains on such renderings has other tokens under the weights from there on
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Literal

from arkdev.backends.local.common_beginning import num_common
from arkdev.backends.local.conversations import Conversations
from arkdev.backends.local.probe_dialogues import Dialogue
from arkdev.backends.local.rendering import Rendering
from arkdev.errors import ConfigurationError
from arkdev.plugin.evidence import TokenEvidence, TokenRecordBuilder

_CONTEXT = 12
"""Tokens that are shown before the first differing one."""


@dataclass(frozen=True)
class Drift:
    """The first difference of one kind in a dialogue, and what it does to all of it."""

    kind: Literal["cut", "shifted"]
    turn: int
    """The prompt that differs is the one of this turn, from 1."""
    position: int
    """Of the first differing token in it, from 0."""
    before: str
    """The text before that."""
    kept: str
    """The text of the token that was there, or is there by extending; empty: nothing follows."""
    fresh: str
    """The text of the token that the template writes in its place."""
    num_tokens: int
    """Trained tokens that are cut, or that stand at or after `position`."""


@dataclass(frozen=True)
class Unread:
    """An answer that this rendering would read otherwise than the message that it wrote."""

    turn: int
    field: str
    """``content``, ``reasoning_content`` or ``tool_calls``."""
    written: str
    read: str


@dataclass(frozen=True)
class DialogueDrift:
    """What became of one dialogue."""

    name: str
    num_turns: int
    """Answers that were gone through."""
    num_sampled: int
    """Their tokens."""
    is_as_sampled: bool
    """The ids of the answers are those that were sampled; else they are the template's."""
    drifts: tuple[Drift, ...] = ()
    unread: tuple[Unread, ...] = ()
    refusal: str | None = None
    """Why the template cannot write it; None: it can."""


@dataclass
class _Turns:
    """One dialogue on its way."""

    dialogue: Dialogue
    record: TokenRecordBuilder = field(default_factory=TokenRecordBuilder)
    last_id: str | None = None
    num_turns: int = 0
    num_sampled: int = 0
    num_cut: int = 0
    first_cut: Drift | None = None
    first_shift: Drift | None = None
    unread: list[Unread] = field(default_factory=list)

    @property
    def evidence(self) -> TokenEvidence:
        return self.record.built() or TokenEvidence((), (), ())


class DriftCheck:
    """Goes through dialogues with one model's rendering."""

    def __init__(self, rendering: Rendering) -> None:
        self._rendering = rendering

    def check(self, dialogues: Iterable[Dialogue]) -> Iterator[DialogueDrift]:
        """Yield what became of each dialogue; those of one group share their turns."""
        group, conversations, ids = "", Conversations(self._rendering), dict[str, str]()
        for dialogue in dialogues:
            if not dialogue.group or dialogue.group != group:
                group, conversations, ids = dialogue.group, Conversations(self._rendering), {}
            yield self._dialogue(_Turns(dialogue), conversations, ids)

    def _dialogue(
        self, turns: _Turns, conversations: Conversations, ids: dict[str, str]
    ) -> DialogueDrift:
        dialogue, refusal = turns.dialogue, None
        try:
            for number, index in enumerate(dialogue.answers):
                self._turn(turns, number, index, conversations=conversations, ids=ids)
        except ConfigurationError as error:
            refusal = str(error)
        drifts = []
        if turns.first_cut is not None:
            drifts.append(_with(turns.first_cut, turns.num_cut))
        if turns.first_shift is not None:
            weights = turns.evidence.loss_weight[turns.first_shift.position :]
            drifts.append(_with(turns.first_shift, sum(map(bool, weights))))
        return DialogueDrift(
            name=dialogue.name,
            num_turns=turns.num_turns,
            num_sampled=turns.num_sampled,
            is_as_sampled=dialogue.sampled is not None,
            drifts=tuple(drifts),
            unread=tuple(turns.unread),
            refusal=refusal,
        )

    def _turn(
        self,
        turns: _Turns,
        number: int,
        index: int,
        *,
        conversations: Conversations,
        ids: dict[str, str],
    ) -> None:
        dialogue = turns.dialogue
        messages = dialogue.messages[:index]
        options: dict[str, Any] = {"tools": dialogue.tools, "thinking": dialogue.thinking}
        prompt = conversations.prompt(messages, **options, previous_response_id=turns.last_id)
        fresh = self._rendering.render(messages, **options)
        if turns.num_turns:
            self._compare(turns, list(prompt.token_ids), fresh)
        message = dialogue.messages[index]
        if dialogue.sampled is not None:
            sampled = list(dialogue.sampled[number])
        else:
            sampled = self._rendering.answer_ids(dialogue.messages[: index + 1], **options)
        turns.num_turns += 1
        turns.num_sampled += len(sampled)
        turns.record.add_call(_answer(prompt.token_ids, sampled))
        unread = unread_part(message, self._rendering, sampled, prompt.token_ids)
        if unread is not None:
            turns.unread.append(Unread(turns.num_turns, *unread))
        key = json.dumps([turns.last_id, dialogue.messages[: index + 1], sampled], default=str)
        if key not in ids:
            ids[key] = f"r{len(ids)}"
            conversations.remember(
                ids[key],
                prompt=prompt,
                message=message,
                token_ids=sampled,
                logprobs=[0.0] * len(sampled),
            )
        turns.last_id = ids[key]

    def _compare(self, turns: _Turns, prompt: list[int], fresh: list[int]) -> None:
        """Compare the turns so far with a prompt, and that with the rendering from scratch."""
        before = turns.evidence
        common = num_common(before.token_ids, prompt)
        if common < len(before.token_ids):
            turns.num_cut += sum(map(bool, before.loss_weight[common:]))
            cut = self._drift("cut", turns, common, list(before.token_ids), prompt)
            turns.first_cut = turns.first_cut or cut
        common = num_common(prompt, fresh)
        if common < max(len(prompt), len(fresh)):
            shift = self._drift("shifted", turns, common, prompt, fresh)
            turns.first_shift = turns.first_shift or shift

    def _drift(
        self,
        kind: Literal["cut", "shifted"],
        turns: _Turns,
        position: int,
        kept: list[int],
        fresh: list[int],
    ) -> Drift:
        decode = self._rendering.decode
        return Drift(
            kind=kind,
            turn=turns.num_turns + 1,
            position=position,
            before=decode(kept[max(0, position - _CONTEXT) : position]),
            kept=decode(kept[position : position + 1]),
            fresh=decode(fresh[position : position + 1]),
            num_tokens=0,
        )


def unread_part(
    message: dict[str, Any],
    rendering: Rendering,
    sampled: Sequence[int],
    prompt_token_ids: Sequence[int],
) -> tuple[str, str, str] | None:
    """Return what of an answer is read otherwise than `message` says: field, written, read.

    Texts that the template does not write are not asked for, nor are the ids of tool calls and the
    white space around texts and inside JSON. None: all of it is read.
    """
    parsed = rendering.parse(sampled, prompt_token_ids=prompt_token_ids).message
    text = rendering.decode(sampled)
    for name in ("tool_calls", "reasoning_content", "content"):
        written, read = _meaning(message, name), _meaning(parsed, name)
        if name != "tool_calls" and written not in text:
            continue
        if written != read:
            return name, written, read
    return None


def _meaning(message: dict[str, Any], name: str) -> str:
    value = message.get(name)
    if name != "tool_calls":
        if isinstance(value, list):
            value = "".join(part.get("text") or "" for part in value)
        return (value or "").strip()
    calls = []
    for call in value or ():
        arguments = call["function"].get("arguments")
        with suppress(TypeError, ValueError):  # an object already, or broken JSON: as it is
            arguments = json.loads(arguments or "")
        calls.append([call["function"].get("name"), arguments])
    return json.dumps(calls, sort_keys=True, ensure_ascii=False)


def _answer(prompt: Sequence[int], sampled: Sequence[int]) -> dict[str, Any]:
    """The evidence of one call, as `arkdev.plugin.evidence` takes it."""
    logprobs = {"content": [{"logprob": 0.0}] * len(sampled)}
    return {
        "prompt_token_ids": list(prompt),
        "choices": [{"token_ids": list(sampled), "logprobs": logprobs}],
    }


def _with(drift: Drift, num_tokens: int) -> Drift:
    return Drift(**{**drift.__dict__, "num_tokens": num_tokens})
