"""What a debug run says at its end: whether the job would learn anything."""

from __future__ import annotations

import io

import pytest
from rich.console import Console
from rich.text import Text

from arkdev.cli.debug_report import outcome_section, what_is_learned
from arkdev.harness.steps import StepRecord
from arkdev.runs.records import TEST, TRAIN


def step(kept: int, without: int | None, phase: str = TRAIN) -> StepRecord:
    return StepRecord(
        step=0,
        phase=phase,
        epoch=0,
        num_groups=4,
        num_kept=kept,
        num_without_signal=without,
        dropped={},
        duration_s=1.0,
        metrics={},
    )


@pytest.mark.parametrize(
    ("steps", "said", "is_any"),
    [
        ([step(4, 1), step(2, 2)], "in 1 of 2 steps, from 3 of 8 groups", True),
        ([step(4, 4), step(3, 3)], "nothing: every advantage is 0 in each of 2 steps", False),
        ([step(0, 0)], "nothing: no group is left in the step", False),
        ([step(0, None), step(0, None)], "nothing: no group is left in any of 2 steps", False),
        ([step(4, None)], "", True),
        ([step(4, None, TEST)], "", True),
        ([], "", True),
    ],
)
def test_a_job_that_learns_nothing_is_called_that(
    steps: list[StepRecord], said: str, is_any: bool
) -> None:
    assert what_is_learned(steps) == (said, is_any)


def test_what_validation_came_to_is_a_row_like_the_others() -> None:
    section = outcome_section(
        job_id="job-1",
        failure="step 0: it failed",
        warnings=(),
        steps=[],
        failed_at=["", "plugins/grader.py:3"],
        validation=Text("32 of 32 rollouts graded"),
    )
    console = Console(file=io.StringIO(), width=80)
    console.print(section.body)
    lines = console.file.getvalue().splitlines()  # type: ignore[attr-defined]
    values = ("job-1", "step 0", "plugins/grader.py:3", "32 of 32")
    assert len({line.index(v) for line, v in zip(lines, values, strict=True)}) == 1
