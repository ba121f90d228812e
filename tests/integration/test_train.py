"""`arkdev train`: loop, run folder and faults, with a policy of one number."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from arkdev.errors import ExitCode, JobError, PolicyEngineError, RunError, UsageError
from arkdev.flows.debug import run_debug
from arkdev.flows.debug_plan import plan_debug
from arkdev.flows.debug_request import DebugRequest
from arkdev.flows.plan_job import load_job, plan_job
from arkdev.job.capabilities import BackendName
from arkdev.runs.reader import RunReader
from arkdev.runs.resume import resume_run
from tests.integration.debugging import Quiet, numbered, write_job
from tests.integration.faas_runs import OPENAI
from tests.integration.training import GRADE_GOOD, Coin, CoinSaving, planned, trained
from tests.integration.workspace import Workspace


@pytest.fixture
def job(workspace: Workspace) -> Workspace:
    """Eight samples; steps of four with four rollouts each."""
    numbered(workspace, 8)
    workspace.write("plugins/grader.py", GRADE_GOOD)
    _write(workspace)
    return workspace


def _write(workspace: Workspace, *, hyperparameters: dict[str, Any] | None = None, **more: Any):
    values = {"batch_size": 4, "num_generations": 4, "num_steps": 6, "lr": 2.0}
    write_job(
        workspace,
        graders=["plugins.grader:good"],
        hyperparameters={**values, **(hyperparameters or {})},
        **more,
    )


def _with_validation(workspace: Workspace, **hyperparameters: Any) -> None:
    numbered(workspace, 2, name="held.jsonl")
    data = {
        "training_set": {"local_files": ["data.jsonl"]},
        "validation_set": {"local_files": ["held.jsonl"]},
    }
    _write(workspace, data=data, hyperparameters=hyperparameters)


def test_the_reward_rises_and_every_step_samples_with_the_weights_of_the_step_before(job):
    run = trained(job)
    assert run.exit_code is ExitCode.OK
    assert run.coin.learner.logit > 1  # from 0: an even chance
    assert run.reader.manifest.kind == "train"
    versions = {(t.step, t.policy_version) for t in run.reader.trajectories()}
    assert versions == {(step, step) for step in range(6)}
    assert {turn.policy_version for t in run.reader.trajectories() for turn in t.turns} == set(
        range(6)
    )


def test_metrics_of_rollouts_and_update_stand_in_one_line_for_each_step(job):
    """OBS-09, OBS-10."""
    run = trained(job)
    assert [line["step"] for line in run.metrics] == list(range(6))
    for line, reward in zip(run.metrics, run.rewards, strict=True):
        assert line["train/reward->final_reward.mean"] == reward
        assert line["train/rollout_off_policy_kl"] == pytest.approx(0, abs=1e-9)
        assert line["train/sync_gap_mean"] == 0
        assert line["time/rollout_s"] >= 0 and line["time/update_s"] >= 0


def test_validation_runs_with_the_weights_of_its_step_and_its_reward_is_what_models_are_saved_by(
    job,
):
    """OBS-11."""
    _with_validation(job, test_every_n_steps=2)
    run = trained(job)
    rounds = [step for step in run.outcome.steps if step.phase == "test"]
    assert [step.step for step in rounds] == [1, 3, 5]
    versions = {(t.step, t.policy_version) for t in run.reader.trajectories() if t.phase == "test"}
    assert versions == {(1, 2), (3, 4), (5, 6)}
    state = json.loads((run.outcome.folder / "coin.json").read_text("utf-8"))
    assert state["score"] == rounds[-1].metrics["test/reward->final_reward.mean"]


def test_debug_and_train_have_the_same_batch_and_the_same_advantages(job, arkdev):
    """The same seed and the same rollouts: one path."""
    run = trained(job, steps=1)
    shown = arkdev("show", "latest", "--step", "0", "--json").document["groups"]
    rehearsed = _debugged(job, steps=1)
    again = arkdev("show", rehearsed, "--step", "0", "--json").document["groups"]

    def by_sample(groups: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return sorted(groups, key=lambda group: group["sample_index"])

    assert by_sample(shown) == by_sample(again)
    advantages = {
        name: advantage
        for group in again
        for name, advantage in zip(group["trajectory_ids"], group["advantages"], strict=True)
    }
    shares = {
        name: share
        for group in again
        for name, share in zip(group["trajectory_ids"], group["loss_shares"], strict=True)
    }
    (batch,) = run.coin.learner.batches
    assert {s.trajectory_id for s in batch.sequences} == advantages.keys()
    for sequence in batch.sequences:
        trained_on = {
            a for a, mask in zip(sequence.advantages, sequence.loss_mask, strict=True) if mask
        }
        assert trained_on == {advantages[sequence.trajectory_id]}
        assert math.fsum(sequence.token_weights) == pytest.approx(shares[sequence.trajectory_id])


ASK = """
    from arkdev import RolloutResult, rollout

    @rollout
    async def answer(context, proxy, sample):
        client = proxy.async_rollout_client()
        messages = [message.model_dump() for message in sample.messages]
        await client.chat.completions.create(model="m", messages=messages)
        return RolloutResult()
"""


def test_a_training_with_functions_has_the_batches_of_one_in_process(job):
    job.write("requirements.txt", OPENAI)
    job.write("plugins/rollout.py", ASK)
    here = trained(job, steps=2)
    apart = trained(job, steps=2, faas=True, faas_engine="process")
    assert apart.exit_code is ExitCode.OK, apart.failure
    assert apart.rewards == here.rewards
    assert apart.coin.learner.logit == pytest.approx(here.coin.learner.logit)
    rows = [
        sorted((s.trajectory_id, s.token_ids, s.advantages) for s in batch.sequences)
        for run in (here, apart)
        for batch in run.coin.learner.batches
    ]
    assert len(rows) == 4 and rows[:2] == rows[2:]
    assert list(apart.outcome.folder.glob("invocations.jsonl"))


def _debugged(workspace: Workspace, **request: Any) -> str:
    """Rehearse with the same policy as its endpoint; return the run's id."""
    plan = plan_debug(DebugRequest(start=workspace.root, **request))
    outcome = asyncio.run(run_debug(plan, Quiet(), endpoint=Coin.with_lr(0).endpoint))
    return outcome.folder.name


def test_with_a_policy_lag_rollouts_go_on_with_older_weights_and_no_alarm(job):
    run = trained(job, policy_lag=1)
    lags = {t.step - t.policy_version for t in run.reader.trajectories()}
    assert 1 in lags and lags <= {0, 1}
    assert run.outcome.warnings == ()
    assert [line["step"] for line in run.metrics] == list(range(6))


def test_the_order_of_the_data_is_the_same_with_and_without_a_lag(job):
    def order(run: Any) -> list[tuple[int, int]]:
        return [
            (batch.step, [s.sample_index for s in batch.sequences])
            for batch in run.coin.learner.batches
        ]

    assert order(trained(job)) == order(trained(job, policy_lag=2))


def test_a_sampler_that_stays_on_old_weights_stops_the_training(job):
    """Field case 8.3: the sync is a no-op."""
    coin = Coin.with_lr(2.0)
    coin.engine.is_stuck = True
    with pytest.raises(PolicyEngineError, match="away"):
        trained(job, coin)
    assert len(coin.learner.batches) == 1
    (folder,) = (job.root / "runs").iterdir()
    assert RunReader(folder).status == "stopped"


def test_a_sampler_on_old_weights_that_passes_the_check_is_an_alarm_at_the_next_step(job):
    """Field case 8.3: stale caches answer, although a fresh request is right."""
    coin = Coin.with_lr(2.0)
    coin.engine.is_stuck, coin.learner.checks = True, False
    run = trained(job, coin)
    kls = [line["train/rollout_off_policy_kl"] for line in run.metrics]
    assert abs(kls[0]) < 1e-9 and max(kls[1:]) > 1e-2
    assert any("not on the weights that are trained" in text for text in run.outcome.warnings)
    assert {e["step"] for e in run.reader.events() if e["kind"] == "warning"} <= set(range(1, 6))


def test_a_trajectory_without_trainable_tokens_stops_the_job_before_any_update(job):
    """Field case 1.4."""
    coin = Coin.with_lr(2.0)
    coin.endpoint.change = lambda answer: {
        k: v for k, v in answer.items() if k != "prompt_token_ids"
    }
    run = trained(job, coin)
    assert run.exit_code is ExitCode.JOB_FAILED
    assert "no trainable tokens: trajectory 0/" in run.failure and "call 1: " in run.failure
    assert coin.learner.batches == [] and coin.learner.logit == 0
    assert run.reader.status == "failed"


def test_tokens_that_an_endpoint_leaves_out_are_told_with_both_numbers(job):
    """Field case 1.3, in training."""

    def cut(answer: dict[str, Any]) -> dict[str, Any]:
        answer["usage"]["completion_tokens"] = 20
        return answer

    coin = Coin.with_lr(2.0)
    coin.endpoint.change = cut
    assert "20 completion tokens and gave 2 token ids" in trained(job, coin).failure


def test_a_batch_with_nothing_to_learn_is_said_and_skipped(job):
    job.write("plugins/grader.py", GRADE_GOOD.replace('== "good"', "is not None"))
    run = trained(job)
    assert run.coin.learner.batches == []
    assert {t.policy_version for t in run.reader.trajectories()} == {0}
    for step in run.outcome.steps:
        assert step.message.startswith(f"step {step.step} has nothing to learn from")
        assert step.message.endswith("no update is made")
    assert run.exit_code is ExitCode.OK


def test_groups_of_equal_rewards_leave_the_batch_when_asked_to(job):
    plain = trained(job, steps=1).coin.learner.batches[0]
    kept = trained(job, steps=1, settings={"filter_zero_variance": "true"}).coin.learner.batches[0]
    with_signal = {s.sample_index for s in plain.sequences if any(s.advantages)}
    assert {s.sample_index for s in kept.sequences} == with_signal
    for batch in (plain, kept):
        assert math.fsum(w for s in batch.sequences for w in s.token_weights) == pytest.approx(1)


def test_answers_that_were_cut_leave_the_loss_when_asked_to_and_not_their_group(job):
    coin = Coin.with_lr(2.0)
    coin.engine.num_cut = 3
    run = trained(job, coin, steps=1, concurrency=1, settings={"mask_truncated": "true"})
    (batch,) = coin.learner.batches
    assert len(batch.sequences) == 16 - 3
    cut = [t for t in run.reader.trajectories() if t.turns[0].finish_reason == "length"]
    assert {t.trajectory_id for t in cut}.isdisjoint(s.trajectory_id for s in batch.sequences)
    whole = trained(job, steps=1, concurrency=1).coin.learner.batches[0]
    same = {s.trajectory_id: s.advantages for s in whole.sequences}
    assert all(same[s.trajectory_id] == s.advantages for s in batch.sequences)
    assert run.metrics[0]["train/truncated_ratio"] == 3 / 16


def test_a_failed_rollout_ends_the_job_and_keeps_what_was_saved(job):
    def at(answer: dict[str, Any]) -> dict[str, Any]:
        if answer["policy_version"] == 2:
            raise RuntimeError("down")
        return answer

    coin = Coin.with_lr(2.0)
    coin.endpoint.change = at
    run = trained(job, coin)
    assert run.exit_code is ExitCode.JOB_FAILED
    assert "step 2: rollout 2/" in run.failure
    assert json.loads((run.outcome.folder / "coin.json").read_text("utf-8"))["step"] == 2


def test_a_run_that_was_cut_short_goes_on_as_if_it_had_not_been(job):
    whole = trained(job)
    broken = Coin.with_lr(2.0)
    broken.every = 2
    broken.endpoint.change = _down_at(3)
    first = trained(job, broken)
    assert first.exit_code is ExitCode.JOB_FAILED
    again = Coin.with_lr(2.0)
    run = trained(job, again, resume=first.outcome.folder.name)
    assert run.exit_code is ExitCode.OK
    assert run.outcome.folder == first.outcome.folder
    assert [batch.step for batch in again.learner.batches] == [2, 3, 4, 5]
    assert again.learner.logit == pytest.approx(whole.coin.learner.logit, abs=1e-12)
    assert run.rewards == whole.rewards
    assert [line["step"] for line in run.metrics] == list(range(6))
    assert len(list(run.reader.trajectories())) == 6 * 16
    assert (run.outcome.folder / "dropped.txt").read_text("utf-8") == "2"


@dataclass
class TakenMeanwhile(Coin):
    """Another process goes on with the run while this one loads its model."""

    def saving(self, folder: Path, run_id: str, *, is_stop_asked: Callable[[], bool]) -> CoinSaving:
        self.other = resume_run(folder, from_step=2)
        return super().saving(folder, run_id, is_stop_asked=is_stop_asked)


def test_a_run_that_another_process_goes_on_with_meanwhile_is_left_as_it_is(job):
    broken = Coin.with_lr(2.0)
    broken.endpoint.change = _down_at(3)
    folder = trained(job, broken).outcome.folder
    with pytest.raises(RunError, match="still running"):
        trained(job, TakenMeanwhile.with_lr(2.0), resume=folder.name)
    assert not (folder / "dropped.txt").exists()


def _down_at(version: int):
    def at(answer: dict[str, Any]) -> dict[str, Any]:
        if answer["policy_version"] == version:
            raise RuntimeError("down")
        return answer

    return at


def test_a_job_of_a_billion_steps_is_planned_at_once(job):
    plan = planned(job, settings={"num_steps": "1e9", "lr_schedule": "cosine"})
    assert plan.update.num_steps == len(plan.steps) == 10**9


def test_hyperparameters_come_from_flags_then_the_workspace_then_the_job(job):
    job.write(
        "arkworkspace.toml",
        """
        [train.local]
        lr = 5e-4
        num_steps = 3
        policy_loss = "mis_pg"
        num_iterations_per_batch = 2
        """,
    )
    plan = planned(job, steps=2)
    assert plan.update.lr == 5e-4
    assert plan.update.policy_loss == "mis_pg"
    assert len(plan.steps) == 2
    assert any(
        note == "lr is 0.0005 here (arkworkspace.toml:3 [train.local]), 2.0 in the job"
        or "arkworkspace.toml:3 [train.local]), 2 in the job" in note
        for note in plan.notes
    )
    assert "num_steps is 2 here (--steps), 6 in the job" in plan.notes
    assert len(trained(job).outcome.steps) == 3


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ("lrr = 1.0", "arkworkspace.toml:2: unknown hyperparameter 'lrr'; did you mean 'lr'?"),
        ("lr = -1", "arkworkspace.toml:2: lr: -1 given"),
        ("lora_rank = 4", "lora_rank: GRPO does not take it"),
        ('kl_estimator = "k4"', "one of k1, k2, k3 is expected"),
        ('loss_agg_mode = "sum"', "arkdev knows token-mean"),
        ("test_top_p = 0.5", "no effect on local: the job has no validation set"),
        ("enable_routing_replay = true", "no model with experts"),
    ],
)
def test_what_the_table_cannot_mean_is_an_error_with_its_place(job, table, message):
    job.write("arkworkspace.toml", f"[train.local]\n{table}\n")
    with pytest.raises(JobError) as error:
        planned(job)
    assert message in f"{error.value}"


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        ({"lr": 1.0, "settings": {"lr": "2"}}, "set the same thing"),
        ({"settings": {"nothing": "2"}}, "unknown hyperparameter 'nothing'"),
        ({"settings": {"clip_ratio_low": "x"}}, "'x' is not a number"),
        ({"engine": "vllm", "deterministic": True}, "--deterministic goes with --engine torch"),
        ({"vllm_python": Path("python")}, "--vllm-python goes with --engine vllm"),
    ],
)
def test_what_a_flag_cannot_mean_is_a_usage_error(job, request_, message):
    with pytest.raises(UsageError, match=message):
        planned(job, **request_)


def test_methods_that_are_not_built_here_are_refused_by_name(job):
    pipeline = {"pipeline_type": "PPOPipeline"}
    _write(job, customization_type="PPO", pipeline=pipeline)
    with pytest.raises(JobError, match="this machine trains with GRPO so far"):
        planned(job)


def test_a_lag_without_a_correction_is_refused(job):
    with pytest.raises(JobError, match="policy_lag"):
        planned(job, policy_lag=1, settings={"correction": "none"})


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"kl_estimator": "k1"}, "kl_estimator has no effect on local: kl_coefficient is 0"),
        ({"kl_place": "reward"}, "kl_place has no effect on local: kl_coefficient is 0"),
        ({"correction": "none", "correction_cap": "3"}, "correction_cap has no effect"),
        ({"clip_ratio_low": "0.1"}, "num_iterations_per_batch is 1; set .* to 2 or more"),
        ({"policy_loss": "tis_pg"}, "policy_loss has no effect on local"),
    ],
)
def test_settings_of_a_part_of_the_loss_that_is_off_are_refused(job, settings, why):
    with pytest.raises(JobError, match=why):
        planned(job, settings=settings)
    on = {"kl_coefficient": "0.1", "correction": "masked", "num_iterations_per_batch": "2"}
    planned(job, settings={**settings, **on})


def test_what_of_the_job_has_no_effect_here_is_said(job):
    """It may have one on the platform, so that the job stays as it is."""
    _write(job, hyperparameters={"clip_ratio_high": 0.3})
    note = "clip_ratio_high of the job has no effect here: num_iterations_per_batch is 1"
    assert note in planned(job).notes
    assert note not in planned(job, settings={"num_iterations_per_batch": "2"}).notes


def test_a_seed_that_is_given_brings_the_mode_that_repeats_a_run(job):
    assert not planned(job).is_deterministic
    assert planned(job, seed=0).is_deterministic
    assert not planned(job, seed=0, engine="vllm").is_deterministic


def test_nothing_is_blamed_for_the_time_that_the_policy_takes_in_this_process(job):
    assert planned(job).stall_threshold_s == 0


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("temperature = 0", "temperature is 0"),
        ('kl_estimator = "k1"', "kl_estimator has no effect on local: kl_coefficient is 0"),
        ('loss_agg_mode = "mean"', "loss_agg_mode 'mean': arkdev knows token-mean"),
        ("correction_floor = 9.0", "correction_floor"),
    ],
)
def test_a_plan_refuses_what_the_training_refuses(job, line, said):
    job.write("arkworkspace.toml", f"[train.local]\n{line}\n")
    with pytest.raises(JobError) as refused:
        planned(job)
    assert said in refused.value.message
    loaded, workspace = load_job(job.root, None)
    plan = plan_job(loaded, BackendName.LOCAL, workspace=workspace)
    assert [problem.message for problem in plan.problems] == [refused.value.message]
    assert plan.problems[0].where == refused.value.where


def test_a_training_at_a_temperature_that_cannot_be_is_refused(job):
    with pytest.raises(JobError, match="temperature is 0"):
        trained(job, settings={"temperature": "0"})
    with pytest.raises(JobError, match=r"temperature is 1e-12: the sampler takes 0\.0001"):
        trained(job, settings={"temperature": "1e-12"})


def test_samples_of_another_temperature_are_refused_before_anything_starts(job):
    lines = [
        {"messages": [{"role": "user", "content": "x"}], "temperature": 0.5 + n} for n in range(2)
    ]
    job.lines(lines)
    with pytest.raises(JobError, match="a batch is trained at one temperature") as refused:
        planned(job)
    assert ":1" in refused.value.where or ":2" in refused.value.where
    assert trained(job, settings={"temperature": "0.5"}).exit_code is ExitCode.OK


def test_a_training_is_listed_and_shown_and_refused_as_a_forecast(job, arkdev):
    _with_validation(job, test_every_n_steps=3)
    run = trained(job)
    assert arkdev("runs", "--json").document["runs"][0]["kind"] == "train"
    shown = arkdev("show", "latest")
    for text in ("Reward by step", "5 test", "rollout"):
        assert text in shown.out
    part = arkdev("show", "latest", "--json").document["training"]
    assert part["job_id"] == run.outcome.job_id
    assert [step["phase"] for step in part["steps"]].count("test") == 2
    last = list(run.reader.trajectories())[-1]
    one = arkdev("show", "latest", last.trajectory_id, "--json").document["trajectory"]
    assert one["policy_version"] == last.policy_version == 6
    told = arkdev("forecast", "latest")
    assert told.exit_code == 2
    assert "of the kind train: a forecast needs a debug run or a test" in told.err
