"""Contract records: what crosses between the dataset, a rollout, a grader and the trainer.

Names, fields and defaults are the contract's (SURFACE rows ROLL, GRADE, GROUP, CTX). Records are
tolerant on input (unknown keys are kept, nulls are accepted where the documents show them) and
answer like dicts too (``sample["extra"]``), because the documented grader signature is typed
``Dict`` while its code is typed with classes (SURFACE Y-06).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator


class Record(BaseModel):
    """A contract record: keeps unknown keys and can be read as an object or as a mapping."""

    model_config = ConfigDict(
        extra="allow",
        arbitrary_types_allowed=True,
        protected_namespaces=(),  # fields such as model_customization_job_id, before pydantic 2.10
    )

    def __getitem__(self, key: str) -> Any:
        try:
            return getattr(self, key)
        except AttributeError:
            raise KeyError(key) from None

    def __contains__(self, key: object) -> bool:
        return isinstance(key, str) and key in self.keys()

    def get(self, key: str, default: Any = None) -> Any:
        """Return the field or extra key `key`, or `default` when there is none."""
        return getattr(self, key) if key in self else default

    def keys(self) -> list[str]:
        """Field names, then unknown keys kept from the input."""
        return [*type(self).model_fields, *(self.model_extra or {})]

    def values(self) -> Iterator[Any]:
        """Values in the order of `keys`."""
        return (self[key] for key in self.keys())

    def items(self) -> Iterator[tuple[str, Any]]:
        """Pairs in the order of `keys`."""
        return ((key, self[key]) for key in self.keys())


class PluginStatus(str, Enum):
    """What a plugin says became of its call (ROLL-12..16). Lower-case words on the wire."""

    SUCCESS = "success"
    FAILURE = "failure"
    DISCARD = "discard"
    RETRY = "retry"


class Function(Record):
    """The function part of a tool call; `arguments` is the raw JSON string (ROLL-34)."""

    name: str | None = None
    arguments: str | None = None


class ChatCompletionMessageToolCall(Record):
    """One tool call of an assistant turn (ROLL-33)."""

    id: str | None = "user_defined"
    function: Function
    type: Literal["function"] = "function"


class ChatCompletionMessage(Record):
    """One message of a conversation (ROLL-32). `content` is str, a list of parts, or None."""

    role: str
    content: Any = None
    tool_calls: list[ChatCompletionMessageToolCall] | None = None
    reasoning_content: str | None = ""


class Thinking(Record):
    """The thinking switch of a sample: enabled, disabled, auto or custom (ROLL-30, X-37)."""

    type: str


class ChatCompletionSample(Record):
    """One dataset line as the rollout sees it (ROLL-19..28).

    `model_fields_set` tells a value that the line carries from a documented default.
    """

    n: int = 1
    max_new_tokens: int = 4096
    top_p: float = 1.0
    top_k: int = 0
    temperature: float = 1.0
    messages: list[ChatCompletionMessage]
    tools: list[dict[str, Any]] | None = None
    thinking: Thinking | None = None
    extra: dict[str, Any] | None = None


class CompletionUsage(Record):
    """Token counts (GRADE-16). None means unknown, never 0."""

    completion_tokens: int | None = None
    prompt_tokens: int | None = None
    total_tokens: int | None = None


class Trajectory(Record):
    """The record of one rollout as the graders see it (GRADE-14..21).

    `messages` holds the prompt and everything after it (SURFACE Y-08). The three token lists have
    one entry for each token from the sample's start to the end of the last turn, or are None when
    the endpoint gives no token evidence (ADV-06, ADV-07):
    `total_loss_weight` is non-zero on tokens that the policy sampled, `total_token_logprobs` is
    the natural log of the probability of each sampled token (0.0 elsewhere).
    """

    messages: list[ChatCompletionMessage]
    usage: CompletionUsage | None = None
    finish_reason: str | None = None
    extra: dict[str, Any] | None = None
    total_loss_weight: list[float] | None = None
    total_token_ids: list[int] | None = None
    total_token_logprobs: list[float] | None = None


class ChatCompletionChoice(Record):
    """One choice of a model's answer."""

    message: ChatCompletionMessage
    finish_reason: str | None = None
    index: int = 0


class ChatCompletionResponse(Record):
    """A model's answer, made from `completion.model_dump()` (PROXY-14)."""

    id: str | None = None
    model: str | None = None
    choices: list[ChatCompletionChoice]
    usage: CompletionUsage | None = None


class RolloutResult(Record):
    """What a rollout returns (ROLL-05..09, Y-01, Y-02). None in its place means success."""

    status: PluginStatus = PluginStatus.SUCCESS
    error: str | None = None
    extra: dict[str, Any] | None = None
    config: dict[str, Any] | None = None


class SingleResponse(Record):
    """One trajectory of a group rollout, by the id of its last response (GROUP-06)."""

    id: str
    extra: dict[str, Any] | None = None


class GroupRolloutResult(Record):
    """What a group rollout returns (GROUP-07)."""

    status: PluginStatus = PluginStatus.SUCCESS
    error: str | None = None
    responses: list[SingleResponse] = Field(default_factory=list)


def _metrics_or_empty(value: Any) -> Any:
    return {} if value is None else value


class _InsertedContext(Record):
    """A text message that is put before the policy's answer number `qa_index`, from 0."""

    qa_index: int
    message: ChatCompletionMessage


class CriticContext(_InsertedContext):
    """What only the critic of PPO sees (CRIT-03, CRIT-04)."""


class TeacherContext(_InsertedContext):
    """What only the teacher of an OPD job sees (OPD-19, OPD-20)."""


class GroupGraderResult(Record):
    """What a group grader returns: one reward for each trajectory, in order (GRADE-05).

    `seq_advantages` has one float per trajectory, `tok_advantages` one list per trajectory with
    one float per token (ADV-03, ADV-04).
    """

    rewards: list[float] = Field(default_factory=list)
    metrics: dict[str, float] = Field(default_factory=dict)
    status: PluginStatus = PluginStatus.SUCCESS
    error: str | None = None
    seq_advantages: list[float] | None = None
    tok_advantages: list[list[float]] | None = None

    _metrics = field_validator("metrics", mode="before")(_metrics_or_empty)


class SingleGraderResult(Record):
    """What a single grader returns: one reward (GRADE-06, Y-05)."""

    reward: float | None = None
    metrics: dict[str, float] = Field(default_factory=dict)
    status: PluginStatus = PluginStatus.SUCCESS
    error: str | None = None

    _metrics = field_validator("metrics", mode="before")(_metrics_or_empty)


@dataclass
class RewardFunctionResult:
    """The documented dataclass form of a grader's result (GRADE-04)."""

    rewards: list[float]
    metrics: dict[str, float] = field(default_factory=dict)
    status: str = "success"
    error: str = ""


_OLDER_JOB_ID = "modle_customization_job_id"


class PluginContext(Record):
    """The job that a call belongs to (CTX). `phase` is "train" or "test"."""

    model_customization_job_id: str = ""
    foundation_model_name: str = ""
    foundation_model_version: str = ""
    customization_type: str = ""
    phase: str = ""
    is_mock: bool = False
    current_training_step: int | None = None

    @model_validator(mode="before")
    @classmethod
    def _take_older_spelling(cls, fields: Any) -> Any:
        if isinstance(fields, dict) and _OLDER_JOB_ID in fields:
            return {"model_customization_job_id": fields[_OLDER_JOB_ID], **fields}
        return fields

    @property
    def modle_customization_job_id(self) -> str:
        """The job's id under the name that it has in older plugins (X-36)."""
        return self.model_customization_job_id
