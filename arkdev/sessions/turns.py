"""The model calls of one attempt: on their way, and as they are kept while the attempt runs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from arkdev.endpoints.call_clock import CallClock
from arkdev.endpoints.endpoint import ModelRequest
from arkdev.plugin.conversation import Conversation
from arkdev.plugin.response_tree import ResponseNode
from arkdev.runs.records import TurnRecord
from arkdev.sessions.checks import notes_on_answer, notes_on_request


@dataclass(frozen=True)
class Place:
    """Where in the tree of responses a call belongs."""

    parent: ResponseNode
    key: tuple[str, ...]
    num_instructions: int

    @property
    def previous_answer_id(self) -> str | None:
        """The endpoint's own id of the last answer before it; None: there is none."""
        for node in reversed(self.parent.path):
            if node.answer is not None:
                return node.answer.get("id")
        return None


@dataclass
class Call:
    """A model call on its way: `body` is the Chat Completions request."""

    body: dict[str, Any]
    order: int
    seed: int
    via: str
    place: Place | None = None
    """None for a Chat Completions call."""
    node: ResponseNode | None = None
    """Its response in the tree, once answered."""
    num_retries: int = 0
    """How often it was sent again, once answered."""

    def request(self, *, sampling: dict[str, Any], clock: CallClock, scope: str) -> ModelRequest:
        """Return it as endpoints take it."""
        return ModelRequest(
            body=self.body,
            sampling=sampling,
            seed=self.seed,
            clock=clock,
            scope=scope,
            previous_response_id=self.place.previous_answer_id if self.place else None,
        )

    @property
    def name(self) -> str:
        """Which call of the attempt it is: its number from 1, or its place in the tree."""
        return str(self.order + 1) if self.place is None else "/".join(self.place.key)


@dataclass
class Turn:
    """A call that was answered. `started` is on the clock of `time.perf_counter`.

    `duration_s` is without `waited_s`, which it waited for the endpoint's limits.
    """

    call: Call
    answer: dict[str, Any]
    started: float
    duration_s: float
    num_retries: int
    waited_s: float = 0.0
    tool_duration_s: float | None = None
    was_acknowledged: bool = False

    @property
    def ended(self) -> float:
        """When the answer came, on the same clock."""
        return self.started + self.waited_s + self.duration_s

    @property
    def tool_calls(self) -> tuple[str, ...]:
        """Names of the tools that the answer calls."""
        calls = self.answer["choices"][0]["message"].get("tool_calls") or ()
        return tuple(str((call.get("function") or {}).get("name")) for call in calls)

    @property
    def is_unacknowledged(self) -> bool:
        """True for a raw chat call whose answer the rollout has not handed back."""
        is_raw_chat = self.call.via == "raw" and self.call.place is None
        return is_raw_chat and not self.was_acknowledged

    def record(self, *, attempt_started: float, end: ResponseNode | None = None) -> TurnRecord:
        """Return what the run folder keeps of it, in the trajectory that ends at `end`."""
        node = self.call.node
        usage = self.answer.get("usage") or {}
        return TurnRecord(
            started_s=self.started - attempt_started,
            duration_s=self.duration_s,
            waited_s=self.waited_s,
            finish_reason=self.answer["choices"][0].get("finish_reason"),
            prompt_tokens=usage.get("prompt_tokens"),
            completion_tokens=usage.get("completion_tokens"),
            tool_calls=self.tool_calls,
            tool_duration_s=self.tool_duration_s,
            num_retries=self.num_retries,
            via=self.call.via,
            response_id=node.id if node else None,
            answer_index=node.answer_index(end) if node and end else None,
            policy_version=self.answer.get("policy_version"),
        )


def notes_on(turns: Iterable[Turn], conversation: Conversation) -> Iterator[tuple[str, str]]:
    """Yield (warning code, detail) of everything odd about calls and what they came to."""
    for turn in turns:
        yield from notes_on_request(turn.call.body["messages"])
        yield from notes_on_answer(turn.answer)
    if any(turn.is_unacknowledged for turn in turns):
        yield "raw_call_not_processed", ""
    if conversation.was_rewritten:
        yield "history_rewritten", ""
    if conversation.evidence_problem:
        yield "evidence_incomplete", conversation.evidence_problem
    if any(not turn.answer.get("usage") for turn in turns):
        yield "usage_unknown", ""
