"""Errors that a plugin seems to have turned into an ordinary reward, or told the policy about.

A reward that stands for an outage trains the policy on the outage. Nothing here is certain: the
report asks, and says where to look.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from http import HTTPStatus

from arkdev.runs.records import (
    FaultRecord,
    FaultSide,
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
    return SwallowedError(record.trajectory_id, _cause(faults) or "model error", is_told)


def suspicions(
    group: GroupRecord, rollouts: Sequence[SwallowedError]
) -> Iterator[tuple[str, str, float, str]]:
    """Yield (code, trajectory id, reward, cause) for what looks swallowed in a group."""
    rewards = dict(zip(group.trajectory_ids, group.rewards, strict=False))
    known = [reward for reward in rewards.values() if reward is not None]
    for seen in rollouts:
        reward = rewards.get(seen.trajectory_id)
        if reward is None:  # nothing is trained on it
            continue
        if reward <= 0 or min(known) == reward < max(known):
            yield LOW_REWARD, seen.trajectory_id, reward, seen.cause
        if seen.is_told:
            yield ERROR_AS_RESULT, seen.trajectory_id, reward, seen.cause
    for grader in group.graders:
        if grader.weight == 0:
            continue
        given = dict(zip(group.trajectory_ids, grader.rewards, strict=False))
        faults: dict[str | None, list[FaultRecord]] = {}
        for fault in _seen(grader.faults):
            faults.setdefault(fault.trajectory_id, []).append(fault)
        for trajectory_id, failed in faults.items():
            # of a group grader, the trajectory that fared worst stands for all
            named = [trajectory_id] if trajectory_id is not None else list(given)
            graded = {name: value for name in named if (value := given.get(name)) is not None}
            if graded:
                worst = min(graded, key=graded.__getitem__)
                yield REWARD_WITHOUT_JUDGE, worst, graded[worst], _cause(failed)


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
    """Return the faults that the plugin itself got and went on after."""
    return [
        fault
        for fault in faults
        if fault.handled_by is HandledBy.PLUGIN
        and fault.side in _NO_ERROR
        and fault.kind not in _NO_ERROR[fault.side]
    ]


def _cause(faults: Sequence[FaultRecord]) -> str:
    return ", ".join(dict.fromkeys(f"{fault.side} {fault.kind}" for fault in faults))
