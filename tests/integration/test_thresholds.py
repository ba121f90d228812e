"""Thresholds on the command line: exit code 3, with the number, n and its standard error."""

from __future__ import annotations

import pytest

from tests.integration.workspace import Command, Workspace


@pytest.fixture(autouse=True)
def half_of_the_rewards(workspace: Workspace) -> None:
    """Rewards 1 0 1 0: mean 0.5, standard error 0.289, lower end 0.025."""
    workspace.samples("1", "0", "1", "0")
    workspace.write(
        "plugins/grader.py",
        """
        from arkdev import single_grader

        @single_grader
        def one(context, sample, trajectory):
            return float(sample.messages[0].content)
        """,
    )


@pytest.mark.parametrize(
    ("flags", "exit_code"),
    [
        (("--min-reward-mean", "0.02"), 0),
        (("--min-reward-mean", "0.03"), 3),
        (("--min-success-rate", "0.02"), 0),
        (("--min-success-rate", "0.5"), 3),
        (("--min-reward-mean", "0.02", "--min-success-rate", "0.5"), 3),
        (("--min-success-rate", "0.02", "--success-threshold", "2"), 3),
        (("--min-reward-mean", "nan"), 2),
        (("--min-success-rate", "2"), 2),
    ],
)
def test_a_missed_threshold_is_3(arkdev: Command, flags: tuple[str, ...], exit_code: int) -> None:
    told = arkdev("test", "plugin", *flags)
    assert told.exit_code == exit_code, told.err
    assert ("threshold missed" in told.err) == (exit_code == 3)


def test_the_numbers_are_said_and_in_the_document(arkdev: Command) -> None:
    told = arkdev("test", "plugin", "--min-reward-mean", "0.4", "--json")
    line = "reward mean 0.5 (n = 4, standard error 0.289): 0.5 - 1.645 x 0.289 = 0.02513"
    assert f"threshold missed: {line}, at least 0.4 was asked for" in told.err
    (threshold,) = told.document["thresholds"]
    assert (threshold["name"], threshold["at_least"], threshold["is_met"]) == (
        "reward_mean",
        0.4,
        False,
    )
    assert told.document["exit_code"] == 3


def test_one_sample_is_compared_without_an_error(arkdev: Command) -> None:
    told = arkdev("test", "plugin", "--sample", "0", "--min-reward-mean", "1")
    assert told.exit_code == 0
    assert "threshold met: reward mean 1 (n = 1, one sample: no standard error)" in told.err


def test_a_missed_threshold_counts_before_what_failed(
    workspace: Workspace, arkdev: Command
) -> None:
    workspace.samples("1", "0", "x")
    assert arkdev("test", "plugin", "--min-reward-mean", "0.4").exit_code == 3
    assert arkdev("test", "plugin", "--min-reward-mean", "-5").exit_code == 1
