"""Grading again what a run recorded: the rollouts as they finished, to be graded by others."""

from __future__ import annotations

import json
from collections.abc import Sequence

from arkdev.harness.rollouts import FinishedRollout, SampleToRun
from arkdev.plugin.evidence import TokenEvidence
from arkdev.runs.recorded import RecordedGroup, RecordedTrajectory

NOT_KEPT = ("not_json", "text_replaced")
"""Warnings of trajectories that the run could not keep quite as the graders saw them."""


def recorded_sample(group: RecordedGroup) -> SampleToRun:
    """Return the sample of a group; it is not sampled again, so it has no parameters."""
    return SampleToRun(group.record.sample_index, json.dumps(group.sample), sampling={})


def recorded_rollouts(group: RecordedGroup) -> Sequence[FinishedRollout]:
    """Return the rollouts of a group as they were when its graders were called."""
    return [FinishedRollout(one.record, evidence=_evidence(one)) for one in group.trajectories]


def was_kept_whole(trajectory: RecordedTrajectory) -> bool:
    """Whether the graders are given what they were given in the run, to the last value."""
    return not any(warning in NOT_KEPT for warning in trajectory.record.warnings)


def _evidence(trajectory: RecordedTrajectory) -> TokenEvidence | None:
    tokens = trajectory.tokens
    if tokens is None:
        return None
    return TokenEvidence(
        token_ids=tokens.token_ids, loss_weight=tokens.loss_weight, logprobs=tokens.logprobs
    )
