"""Errors that a plugin seems to have turned into an ordinary reward, or told the policy about.

A reward that stands for an outage trains the policy on the outage. Nothing here is certain: the
report asks, and says where to look.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus

from arkdev.harness.summary import SuspectReward
from arkdev.runs.records import (
    FaultRecord,
    FaultSide,
    GraderRecord,
    GroupRecord,
    HandledBy,
    TrajectoryRecord,
    Verdict,
)

LOW_REWARD = "low_reward_after_error"
REWARD_WITHOUT_JUDGE = "reward_after_grader_error"
ERROR_AS_RESULT = "error_as_tool_result"


@dataclass(frozen=True)
class Question:
    """What looks odd, and what to do if it was not meant."""

    text: str
    advice: str


QUESTIONS = {
    LOW_REWARD: Question(
        "the rollout went on after an error and got its group's lowest reward, or none above 0",
        "for an outage, raise RolloutRetryException or return PluginStatus.RETRY or DISCARD; a "
        "penalty is right where the policy's own call was wrong",
    ),
    REWARD_WITHOUT_JUDGE: Question(
        "a call that the grader made failed, and it gave a reward all the same",
        "unless the grader tried again, let the error rise or return PluginStatus.RETRY",
    ),
    ERROR_AS_RESULT: Question(
        "after a failed call the model was told an error text as the tool's result",
        "fine if the policy shall learn to live with outages; else raise RolloutRetryException",
    ),
}

_WORDS = r"error|exception|fail|failed|failure|traceback|time(?:d[ -]?)?out|unavailable"
_PHRASES = "|".join(re.escape(status.phrase) for status in HTTPStatus if status >= 400)
_ERROR_TEXT = re.compile(
    rf"""
    ^\W*(?:\w+[ _-]+){{0,3}}(?:{_WORDS})    # "Error: ...", "the search failed", "timed out"
      \s*(?:[:.,;!(\d]|$|\b(?:to|with|after|while|because)\b)
    | ^\W{{0,3}}"?(?:error|exception)"?\s*:  # {{"error": ...}}
    | ^\w+(?:Error|Exception|Timeout)\s*(?:[:(]|$)  # "ReadTimeout", "HTTPStatusError: ..."
    | ^\W*HTTP\S*\s+[45]\d\d\b                     # "HTTP 503", "HTTP/1.1 502 ..."
    | ^\W*[45]\d\d\s+(?:{_PHRASES})                # "503 Service Unavailable"
    | ^.{{0,12}}(?:错误|失败|超时|异常)
    """,
    re.VERBOSE | re.IGNORECASE,
)
_EXCEPTION_SWALLOWED = "exception_swallowed"
_NO_ERROR = {
    FaultSide.TOOL: ("slow",),
    FaultSide.MODEL: ("slow", "garbage", "cut_json", "empty"),
}
"""By side, what brings no error: it took long, or is what a policy may write as well."""


@dataclass(frozen=True)
class SwallowedError:
    """What is kept of a successful rollout that saw an error, until its group is done."""

    trajectory_id: str
    cause: str
    is_told: bool
    """Whether a tool's result says so."""
    is_of_group: bool
    """One plugin call made the whole group, and nobody knows for which member it failed."""


def swallowed_error(record: TrajectoryRecord) -> SwallowedError | None:
    """Return the error that a rollout went on after, in the attempt that counts."""
    if record.verdict is not Verdict.SUCCESS or not record.attempts:
        return None
    faults = _seen(record.attempts[-1].faults)
    is_noted = any(w.partition(":")[0] == _EXCEPTION_SWALLOWED for w in record.warnings)
    if not faults and not is_noted:
        return None
    is_told = any(fault.side is FaultSide.TOOL for fault in faults) and any(
        message.get("role") == "tool" and is_error_text(message.get("content"))
        for message in record.messages
    )
    return SwallowedError(
        record.trajectory_id,
        _cause(faults) or "model error",
        is_told,
        is_of_group=record.call_size > 1,
    )


def suspicions(
    group: GroupRecord, rollouts: Sequence[SwallowedError]
) -> Iterator[tuple[str, SuspectReward]]:
    """Yield a code and whose reward it is for what looks swallowed in a group."""
    rewards = _given(group.trajectory_ids, group.rewards)
    lowest = min(rewards.values(), default=0.0)
    is_asked_of_group = False
    for seen in rollouts:
        reward = rewards.get(seen.trajectory_id)
        if reward is None:  # nothing is trained on it
            continue
        is_low = reward <= 0 or lowest == reward < max(rewards.values())
        if is_low and not is_asked_of_group:
            is_asked_of_group = seen.is_of_group
            yield LOW_REWARD, _suspect(seen, rewards)
        if seen.is_told:  # its own messages say so
            yield ERROR_AS_RESULT, SuspectReward(seen.trajectory_id, reward, seen.cause)
    for grader in group.graders:
        if grader.weight != 0:
            yield from _without_judge(grader, group.trajectory_ids)


def _suspect(seen: SwallowedError, rewards: Mapping[str, float]) -> SuspectReward:
    """Return whose reward is asked about; of a group the one that fared worst stands for all."""
    name = min(rewards, key=rewards.__getitem__) if seen.is_of_group else seen.trajectory_id
    return SuspectReward(name, rewards[name], seen.cause, is_whole_group=seen.is_of_group)


def _without_judge(
    grader: GraderRecord, trajectory_ids: Sequence[str]
) -> Iterator[tuple[str, SuspectReward]]:
    given = _given(trajectory_ids, grader.rewards)
    faults: dict[str | None, list[FaultRecord]] = {}
    for fault in _seen(grader.faults):
        faults.setdefault(fault.trajectory_id, []).append(fault)
    for trajectory_id, failed in faults.items():
        is_of_group = trajectory_id is None and len(given) > 1
        graded = [name for name in given if trajectory_id in (None, name)]
        if graded:
            worst = min(graded, key=given.__getitem__)
            yield (
                REWARD_WITHOUT_JUDGE,
                SuspectReward(worst, given[worst], _cause(failed), is_whole_group=is_of_group),
            )


def _given(trajectory_ids: Sequence[str], rewards: Sequence[float | None]) -> dict[str, float]:
    """Return the rewards that were given, by trajectory."""
    pairs = zip(trajectory_ids, rewards, strict=False)
    return {name: reward for name, reward in pairs if reward is not None}


def is_error_text(content: object) -> bool:
    """Whether a message says nothing but that something failed.

    >>> [is_error_text(text) for text in ("Error: 503", "The 1962 error of judgement")]
    [True, False]
    """
    if isinstance(content, (list, tuple)):
        texts = [str(part.get("text") or "") for part in content if isinstance(part, dict)]
        content = "\n".join(texts)
    return isinstance(content, str) and _ERROR_TEXT.search(content) is not None


def _seen(faults: Sequence[FaultRecord]) -> list[FaultRecord]:
    """Return the faults that the plugin itself got, did not make good, and went on after."""
    return [
        fault
        for fault in faults
        if fault.handled_by is HandledBy.PLUGIN
        and not fault.is_answered_later
        and fault.side in _NO_ERROR
        and fault.kind not in _NO_ERROR[fault.side]
    ]


def _cause(faults: Sequence[FaultRecord]) -> str:
    return ", ".join(dict.fromkeys(f"{fault.side} {fault.kind}" for fault in faults))
