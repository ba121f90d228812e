"""The rows and the curve of a training."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from arkdev.cli.terminal import Symbols, symbols
from arkdev.cli.train_report import (
    HEADERS,
    aligned,
    cells,
    curve_section,
    kl_column,
    learned_told,
    next_after_failure,
    next_for_models,
    outcome_section,
    rewards_told,
    telling,
)
from arkdev.harness.steps import StepRecord


def step(
    number: int, reward: float | None, *, phase: str = "train", **metrics: float
) -> StepRecord:
    own = {} if reward is None else {f"{phase}/reward->final_reward.mean": reward}
    return StepRecord(
        step=number,
        phase=phase,
        epoch=0,
        num_groups=4,
        num_kept=4,
        num_without_signal=0,
        dropped={},
        duration_s=2.0,
        metrics={**own, **metrics},
    )


def signs(encoding: str) -> Symbols:
    console = Console(file=io.TextIOWrapper(io.BytesIO(), encoding=encoding), width=100)
    return symbols(console)


def drawn(steps: list[StepRecord], encoding: str = "utf-8") -> str:
    console = Console(file=io.StringIO(), width=100)
    section = curve_section(steps, signs(encoding))
    assert section is not None
    console.print(section.body)
    return str(console.file.getvalue())


def test_a_row_has_what_the_step_came_to_and_a_dash_for_what_nobody_measured() -> None:
    record = step(3, 0.5, **{"train/kl": 0.01, "train/pg_clipfrac": 0.125, "time/update_s": 1.5})
    row = dict(zip(HEADERS, cells(record, signs("ascii"), kl="kl", left_s=61.0), strict=True))
    assert (row["step"], row["reward"], row["kl"], row["clip"]) == ("3", "0.500", "0.010", "12.5%")
    assert (row["update"], row["entropy"], row["rollout"]) == ("1.50 s", "-", "-")
    assert row["left"] == "1m01s"


@pytest.mark.parametrize("left_s, told", [(0.0, "0m00s"), (34.6, "0m35s"), (119.7, "2m00s")])
def test_the_time_left_is_an_estimate_in_whole_seconds(left_s: float, told: str) -> None:
    assert cells(step(0, 0.5), signs("utf-8"), kl="kl", left_s=left_s)[-1] == told


@pytest.mark.parametrize("value", [-1.48e-08, 3e-09])
def test_a_distance_that_is_only_rounding_is_shown_as_none(value: float) -> None:
    record = step(0, 0.5, **{"train/kl": value})
    assert cells(record, signs("utf-8"), kl="kl", left_s=None)[2] == "≈0"
    assert cells(record, signs("ascii"), kl="kl", left_s=None)[2] == "~0"


def test_what_comes_next_tests_and_exports_one_and_the_same_model() -> None:
    tested, exported = next_for_models("run-1", best="models/step-5", last="models/step-9")
    assert tested == "arkdev test plugin --endpoint local --model run-1"
    assert exported == "arkdev export run-1 --step best --to my-model"
    for best in (None, "models/step-9"):  # not validated; the last is the best
        assert "--step" not in next_for_models("run-1", best=best, last="models/step-9")[1]


def test_a_run_elsewhere_is_tested_by_the_folder_of_its_model() -> None:
    tested, _ = next_for_models(
        "/elsewhere/run-1", best=None, last="/elsewhere/run-1/models/step-9"
    )
    assert tested.endswith("--model /elsewhere/run-1/models/step-9")


def test_a_round_of_validation_is_a_row_of_its_own() -> None:
    row = cells(step(3, 0.25, phase="test"), signs("ascii"), kl="kl", left_s=None)
    assert (row[0], row[1], row[-1]) == ("3 test", "0.250", "2.00 s")
    assert set(row[2:-1]) == {""}


def test_rows_fit_80_columns_and_lose_the_least_telling_ones_for_it() -> None:
    record = step(123, 0.5)
    row = cells(record, signs("ascii"), kl="kl", left_s=None)
    for line in (aligned(HEADERS, width=80), aligned(row, width=80)):
        assert len(line) <= 80
    assert "tok/s" in aligned(HEADERS, width=200) and "tok/s" not in aligned(HEADERS, width=80)


def test_the_column_of_kl_says_which_distance_it_shows() -> None:
    assert kl_column({"kl_coefficient": 0.1})[0] == "kl"
    assert kl_column({})[0] == "rollout_off_policy_kl"


@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
def test_the_curve_rises_with_the_rewards_in_any_encoding(encoding: str) -> None:
    text = drawn([step(n, n / 9) for n in range(10)] + [step(9, 0.5, phase="test")], encoding)
    mark = "•" if encoding == "utf-8" else "*"
    text.encode(encoding)
    rows = [line.partition("│" if encoding == "utf-8" else "|")[2] for line in text.splitlines()]
    assert rows[0].rstrip().endswith(mark)
    assert rows[7].startswith(mark)
    assert "1.000" in text and "0.000" in text and "step 0 to 9" in text
    assert "validation" in text


def test_many_steps_share_columns_and_one_reward_is_said() -> None:
    assert max(map(len, drawn([step(n, n % 7) for n in range(1000)]).splitlines())) < 80
    assert "in every step" in drawn([step(n, 0.5) for n in range(3)])
    assert curve_section([step(0, 0.5)], signs("utf-8")) is None
    assert curve_section([step(n, None) for n in range(5)], signs("utf-8")) is None


def test_a_report_shows_rewards_and_the_updates_main_numbers() -> None:
    record = step(
        0,
        0.5,
        **{
            "train/entropy": 1.0,
            "train/computed_tokens": 5.0,
            "train/loss_share->largest_group": 0.5,
            "train/reward->KEY.mean": 2.0,
        },
    )
    kept = telling(record).metrics
    assert set(kept) == {
        "train/reward->final_reward.mean",
        "train/entropy",
        "train/reward->KEY.mean",
    }


@pytest.mark.parametrize(
    ("updated", "without", "said", "is_any"),
    [
        ((True, True), 1, "in 2 of 2 steps, from 6 of 8 groups", True),
        ((True, False), 1, "in 1 of 2 steps, from 3 of 8 groups", True),
        ((False, False), 1, "nothing: no update was made in any of 2 steps", False),
        ((False, False), 4, "nothing: every advantage is 0 in each of 2 steps", False),
        ((True, True), 4, "in 2 of 2 steps, by KL or entropy alone", True),
    ],
)
def test_what_was_learned_counts_the_updates_that_were_made(
    updated: tuple[bool, ...], without: int, said: str, is_any: bool
) -> None:
    steps = [
        replace(
            step(number, 0.5, **({"time/update_s": 0.1} if is_updated else {})),
            num_without_signal=without,
        )
        for number, is_updated in enumerate(updated)
    ]
    validation = step(1, 0.5, phase="test", **{"time/update_s": 0.1})
    assert learned_told([*steps, validation]) == (said, is_any)


def test_saved_models_are_named_by_their_folder_in_the_run() -> None:
    """A whole path does not fit a terminal, and would be broken within a name."""
    models = {"last": Path("/a/very/long/way/runs/run-1/models/step-2")}
    section = outcome_section([step(0, 0.5)], job_id="j", failure=None, models=models, warnings=())
    console = Console(file=io.StringIO(), width=60)
    console.print(section.body)
    assert "models/step-2 in the run's folder" in console.file.getvalue()  # type: ignore[attr-defined]


def test_one_round_of_validation_is_one_number_and_no_way_from_there_to_itself() -> None:
    steps = [step(0, 0.25), step(1, 0.5), step(1, 0.75, phase="test")]
    assert rewards_told(steps) == "0.250 to 0.500 in training, 0.750 in validation"


def test_after_a_failure_only_what_was_saved_is_gone_on_with() -> None:
    """The fault lies in a plugin as a rule, and once that is mended a run cannot be resumed."""
    assert not any("--resume" in line for line in next_after_failure("run-1", last_checkpoint=None))
    resume, anew = next_after_failure("run-1", last_checkpoint=3)
    assert "--resume run-1" in resume and "after 3 steps while no file has changed" in resume
    assert anew.startswith("arkdev train ")


def test_what_is_below_a_failure_is_aligned_with_it() -> None:
    told = [("validation", "32 of 32 rollouts graded")]
    section = outcome_section(
        [step(0, 0.5)], job_id="j", failure=None, more=told, models={}, warnings=()
    )
    console = Console(file=io.StringIO(), width=80)
    console.print(section.body)
    lines = console.file.getvalue().splitlines()  # type: ignore[attr-defined]
    values = ("j ", "0.500", "32 of")
    assert len({line.index(v) for line, v in zip(lines, values, strict=False)}) == 1
