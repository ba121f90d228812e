"""One step of a debug run as its folder has it: each trajectory, with what it would teach."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from arkdev.errors import ConfigurationError, PluginResultError
from arkdev.flows.debug_records import members_of, task_advantages
from arkdev.harness.advantages import Advantage
from arkdev.harness.contexts import critic_context
from arkdev.harness.loss_shares import Share, shares_of
from arkdev.harness.loss_weights import LossAggMode
from arkdev.harness.sampling import DOCUMENTED_DEFAULTS
from arkdev.harness.steps import Counted, StepRecord
from arkdev.harness.teacher_logprobs import Distilled
from arkdev.harness.token_counts import CountTokens, token_counts
from arkdev.job.local_tokenizer import open_tokenizer
from arkdev.job.methods import CustomizationType
from arkdev.job.paths import filesystem_path
from arkdev.runs.reader import RunReader
from arkdev.runs.records import TEST, GroupRecord, TrajectoryRecord, Verdict, step_of_id

_PPO = (
    "the advantages of PPO come from its value model, which a debug run has not: they are not "
    "computed. Shown are the final rewards, which the last token gets, and the tokens that the "
    "critic alone is given"
)
_OPD = (
    "the advantage of OPD is task_reward_coef x task advantage - kl_reward_coef x (student's - "
    "teacher's log probability), token by token"
)


@dataclass(frozen=True)
class StepView:
    """A step, or the round of validation after it."""

    record: StepRecord
    groups: tuple[GroupRecord, ...]
    advantages: Mapping[str, Advantage]
    """By trajectory; none in a round of validation, and none of PPO."""
    advantage_name: str
    """``advantage``, ``task advantage`` of OPD, or "" where there is none."""
    shares: Mapping[str, Share]
    """Of the step's loss, by trajectory; empty where nobody counted the tokens."""
    critic_tokens: Mapping[str, int]
    """Of a PPO job, estimated, by trajectory."""
    distilled: tuple[Mapping[str, Any], ...]
    """Of an OPD job what the teacher's endpoint made of the student's own tokens."""
    notes: tuple[str, ...]


def step_view(reader: RunReader, record: StepRecord) -> StepView:
    """Read what a run's folder has of a step."""
    place = record.phase, record.step
    groups = tuple(g for g in reader.groups() if (g.phase, g.step) == place)
    if record.phase == TEST:
        return StepView(record, groups, {}, "", {}, {}, (), ())
    method = CustomizationType(reader.manifest.settings["customization_type"])
    trajectories = [t for t in reader.trajectories() if (t.phase, t.step) == place]
    advantages = task_advantages(groups)
    distilled = _distilled(reader, record.step) if method.has_teachers else ()
    return StepView(
        record,
        groups,
        {} if method.has_critic else advantages,
        _name(method),
        _shares(reader, record, trajectories, groups=groups, advantages=advantages, method=method),
        dict(_critic_tokens(trajectories)) if method.has_critic else {},
        distilled,
        tuple(_notes(method, reader, has_distilled=bool(distilled))),
    )


def _name(method: CustomizationType) -> str:
    if method.has_critic:
        return ""
    return "task advantage" if method.has_teachers else "advantage"


def _notes(method: CustomizationType, reader: RunReader, *, has_distilled: bool) -> Iterator[str]:
    if method.has_critic:
        yield _PPO
    if not method.has_teachers:
        return
    yield _OPD
    if not has_distilled:
        yield (
            "its second part needs a --teacher-endpoint with token ids and prompt_logprobs: it is "
            "not computed"
            if reader.manifest.settings.get("teacher") is None
            else "its second part is not computed: no trajectory of the step was shown to the "
            "teacher"
        )


def _distilled(reader: RunReader, step: int) -> tuple[Mapping[str, Any], ...]:
    """Return the last word on each trajectory; its group may have run again."""
    names = [field.name for field in fields(Distilled)]
    found = {
        event["trajectory_id"]: {name: event[name] for name in names}
        for event in reader.events()
        if event.get("kind") == "distilled" and step_of_id(event["trajectory_id"])[1] == step
    }
    return tuple(found.values())


def _critic_tokens(trajectories: Sequence[TrajectoryRecord]) -> Iterator[tuple[str, int]]:
    for trajectory in trajectories:
        try:
            context = critic_context(trajectory)
        except PluginResultError:
            continue
        if trajectory.verdict is Verdict.SUCCESS:
            yield trajectory.trajectory_id, context.estimated_tokens if context else 0


def _shares(
    reader: RunReader,
    record: StepRecord,
    trajectories: Sequence[TrajectoryRecord],
    *,
    groups: Sequence[GroupRecord],
    advantages: Mapping[str, Advantage],
    method: CustomizationType,
) -> Mapping[str, Share]:
    if record.loss is None or record.loss.counted_by is None:
        return {}
    weights = {
        tokens.trajectory_id: tokens.loss_weight
        for tokens in reader.tokens()
        if step_of_id(tokens.trajectory_id) == (record.phase, record.step)
    }
    count = _tokenizer(reader)
    counted = {}
    for trajectory in trajectories:
        own = weights.get(trajectory.trajectory_id)
        counts = token_counts(trajectory, loss_weight=own, count=None if own else count)
        counted[trajectory.trajectory_id] = Counted(counts, own)
    members = members_of(groups, advantages, counted=counted, is_learned_from=method.is_grpo)
    # the constant of the norm says nothing of shares
    constant = DOCUMENTED_DEFAULTS["max_new_tokens"]
    return shares_of(members, mode=LossAggMode(record.loss.mode), norm_tokens=constant)


def _tokenizer(reader: RunReader) -> CountTokens | None:
    """Return the run's own, where it is still there."""
    path = reader.manifest.settings.get("tokenizer")
    if not path:
        return None
    try:
        return open_tokenizer(filesystem_path(path)).count
    except ConfigurationError:
        return None
