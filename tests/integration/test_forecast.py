"""`arkdev forecast`, and the forecast at the end of a debug run."""

from __future__ import annotations

from typing import Any

import pytest

from arkdev.flows.forecast import AskedSize, forecast_run
from arkdev.harness.forecast.forecast import Forecast
from arkdev.job.prices import Prices
from arkdev.runs.reader import RunReader
from tests.integration.debugging import Rehearsal, rehearse
from tests.integration.workspace import Command, Workspace, job_yaml

KINDS = ("always", "never", "half", "drop")


@pytest.fixture
def mixed(workspace: Workspace) -> Workspace:
    """A job of two steps of 8 samples, two of each kind in each 8."""
    workspace.write(
        "plugins/grader.py",
        """
        from arkdev import GroupGraderResult, PluginStatus, group_grader

        @group_grader
        def one(context, sample, trajectories):
            n = len(trajectories)
            kind = sample.extra["kind"]
            rewards = {"always": [1.0] * n, "never": [0.0] * n}.get(kind, [1.0] + [0.0] * (n - 1))
            status = PluginStatus.DISCARD if kind == "drop" else PluginStatus.SUCCESS
            return GroupGraderResult(rewards=rewards, status=status)
        """,
    )
    workspace.lines(
        {
            "messages": [{"role": "user", "content": f"question {i}"}],
            "extra": {"kind": KINDS[i % 4]},
        }
        for i in range(16)
    )
    values = {"batch_size": 8, "num_generations": 4, "num_steps": 10}
    workspace.write("job.yaml", job_yaml(hyperparameters=values))
    return workspace


def forecast(rehearsal: Rehearsal, **asked: int) -> Forecast:
    return forecast_run(rehearsal.reader, prices=Prices(), asked=AskedSize(**asked))


def test_a_debug_run_is_forecast_for_the_job_and_not_for_the_steps_that_were_run(mixed) -> None:
    found = forecast(rehearse(mixed, steps=2))
    assert (found.num_groups, found.job.num_steps, found.job.num_samples) == (16, 10, 16)
    signal = found.signal
    assert signal is not None
    assert signal.useful_per_1000.value == pytest.approx(250)
    assert signal.zero_variance.value == pytest.approx(2 / 3)
    assert signal.left == {"discarded": 4}
    assert signal.useful_per_step.value == pytest.approx(2)
    settled = found.settled
    assert settled is not None
    assert [p.sample_index for p in settled.always_solved] == [0, 4, 8, 12]
    assert [p.text for p in settled.never_solved][:1] == ["question 1"]


def test_another_size_may_be_asked_for(mixed) -> None:
    run = rehearse(mixed, steps=2)
    found = forecast(run, num_steps=100, batch_size=4, num_generations=2)
    assert (found.job.num_steps, found.job.batch_size, found.job.num_generations) == (100, 4, 2)
    assert found.signal is not None
    assert found.signal.useful_per_1000.value == pytest.approx(
        125
    )  # half of the pairs of 1, 0, 0, 0


def test_epochs_and_a_resumed_run_are_of_the_same_prompts(mixed) -> None:
    found = forecast(rehearse(mixed, steps=4))
    assert (found.num_groups, found.num_prompts) == (32, 16)
    assert found.signal is not None
    assert found.signal.useful_per_1000.value == pytest.approx(250)
    assert found.settled is not None
    assert {p.num_rollouts for p in found.settled.always_solved} == {8}


def test_rounds_of_validation_are_left_out(mixed) -> None:
    data = {
        "training_set": {"local_files": ["data.jsonl"]},
        "validation_set": {"local_files": ["data.jsonl"]},
    }
    values = {"batch_size": 8, "num_generations": 4, "num_steps": 2}
    mixed.write("job.yaml", job_yaml(hyperparameters=values, data=data))
    found = forecast(rehearse(mixed))
    assert found.num_groups == 16
    assert found.tokens.prompt_per_step.value is not None


def test_a_ppo_job_has_no_signal_of_equal_rewards(mixed) -> None:
    run = rehearse(mixed, steps=1)
    manifest = run.reader.manifest
    manifest.settings["training"]["customization_type"] = "PPO"
    reader = RunReader(run.reader.folder)
    reader.manifest = manifest
    found = forecast_run(reader, prices=Prices())
    assert found.signal is None
    assert any("a critic teaches" in note for note in found.notes)


def test_a_failed_rollout_is_no_reward_of_0(mixed) -> None:
    mixed.write(
        "plugins/rollout.py",
        """
        from arkdev import rollout

        @rollout
        def answer(context, proxy, sample):
            if sample.messages[0].content in ("question 0", "question 8"):
                raise ValueError("no")
            client = proxy.rollout_client()
            client.chat.completions.create(model="m", messages=sample.model_dump()["messages"])
        """,
    )
    found = forecast(rehearse(mixed, steps=2, keep_going=True))
    assert found.signal is not None
    assert found.signal.left == {"discarded": 4, "failed": 2}
    assert found.settled is not None
    assert [p.sample_index for p in found.settled.never_solved] == [1, 5, 9, 13]
    assert any("attempts failed" in note for note in found.notes)


def test_the_end_of_a_debug_run_and_its_page_have_the_forecast(mixed, arkdev: Command) -> None:
    told = arkdev("debug", "--steps", "2")
    assert "Signal forecast" in told.out
    assert "4 of 12 prompts always solved" in told.out
    assert "no prices" in told.out
    page = next((mixed.root / "runs").glob("*/report.html")).read_text("utf-8")
    assert "Signal forecast" in page
    assert "question 1" in page


def test_the_command_says_the_same_as_the_end_of_the_run(mixed, arkdev: Command) -> None:
    at_end = arkdev("debug", "--steps", "2", "--json").document["forecast"]
    assert arkdev("forecast", "--json").document["forecast"] == at_end


def test_lines_fit_a_narrow_terminal(mixed, arkdev: Command, monkeypatch) -> None:
    arkdev("debug", "--steps", "2")
    monkeypatch.setenv("COLUMNS", "80")
    told = arkdev("forecast")
    assert told.exit_code == 0
    assert max(map(len, told.out.splitlines())) <= 80
    assert "useful groups of 1,000 samples" in told.out


def test_cost_by_the_workspaces_table(mixed, arkdev: Command) -> None:
    mixed.write(
        "arkworkspace.toml",
        """
        [prices]
        currency = "CNY"
        [prices.models.scripted]
        input_per_million = 1000
        output_per_million = 0
        """,
    )
    arkdev("debug", "--steps", "2")
    document: dict[str, Any] = arkdev("forecast", "--json").document["forecast"]
    tokens = document["tokens"]["prompt_total"]["value"]
    assert document["cost"]["tokens_total"]["value"] == pytest.approx(tokens / 1000)
    assert "tokens in all, CNY" in arkdev("forecast").out


def test_a_test_of_plugins_with_one_rollout_each_says_what_is_not_known(
    mixed, arkdev: Command
) -> None:
    arkdev("test", "plugin")
    told = arkdev("forecast")
    assert "signal not known: groups of one do not tell which prompts vary" in told.out
    assert "pass@1" in told.out


def test_a_replay_is_refused_and_is_not_the_latest_run(mixed, arkdev: Command) -> None:
    test = arkdev("test", "plugin", "--json").document["run"]
    replay = arkdev("replay", "latest", "--json").document["run"]
    assert arkdev("forecast", "latest", "--json").document["run"] == test
    told = arkdev("forecast", replay)
    assert told.exit_code == 2
    assert "a forecast needs a debug run or a test" in told.err
