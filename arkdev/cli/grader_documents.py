"""The JSON documents of ``arkdev test grader``, as types."""

from __future__ import annotations

from typing_extensions import TypedDict

from arkdev.harness.attack_verdicts import AttackedGraderReport
from arkdev.harness.repeated_grading import GraderAgreement, RepeatedGrader


class GraderAttackDocument(TypedDict):
    """``arkdev test grader --attack --json``."""

    schema_version: int
    run: str | None
    """Id of the run that the samples come from; None: `data`."""
    data: list[str]
    exit_code: int
    num_samples: int
    num_without_reference: int
    """Samples whose ``extra`` names no right answer."""
    reference_key: str | None
    graders: list[AttackedGraderReport]
    judge_calls: int
    warnings: list[str]


class GraderRepeatDocument(TypedDict):
    """``arkdev test grader --repeat N --json``."""

    schema_version: int
    run: str | None
    data: list[str]
    exit_code: int
    num_groups: int
    num_gradings: int
    """Of each trajectory: N."""
    num_small_groups: int
    """Groups that were left out: fewer than two successful rollouts."""
    graders: list[RepeatedGrader]
    """With several also ``weighted``, the sum that training sees."""
    agreement: GraderAgreement | None
    judge_calls: int
    warnings: list[str]
