"""Metrics of a step under their documented names (OBS-08, OBS-10..12, CRIT-06)."""

import pytest

from arkdev.harness.steps import StepContent, StepRecord, step_metrics
from arkdev.runs.records import GraderRecord, GroupRecord, Verdict


def grader(name="one", rewards=(1.0,), weight=1.0, calls=(), metrics=None):
    return GraderRecord(
        name,
        weight=weight,
        verdict=Verdict.SUCCESS,
        rewards=tuple(rewards),
        metrics=metrics or {},
        call_metrics=tuple(calls),
    )


def group(sample, rewards, *graders):
    ids = tuple(f"0/{sample}.{member}" for member in range(len(rewards)))
    return GroupRecord(sample, Verdict.SUCCESS, ids, tuple(rewards), graders=graders)


def metrics(*groups, phase="train", **more):
    return step_metrics(StepContent(groups=list(groups)), phase=phase, **more)


def test_the_final_reward_has_its_documented_names_in_each_phase():
    groups = [group(0, (1.0, 0.0)), group(1, (0.5, None))]
    assert metrics(*groups)["train/reward->final_reward.mean"] == 0.5
    assert metrics(*groups, phase="test")["test/reward->final_reward.mean"] == 0.5
    assert not any(name.startswith("test/") for name in metrics(*groups))


def test_what_has_no_reward_is_left_out_and_no_zero():
    assert "train/reward->final_reward.mean" not in metrics(group(0, (None, None)))
    assert metrics(group(0, (None, 2.0)))["train/reward->final_reward.min"] == 2.0


def test_custom_metrics_have_mean_max_and_min_by_key_over_all_calls():
    found = metrics(
        group(0, (1.0, 1.0), grader(calls=({"length": 4.0}, {"length": 8.0, "odd": 1.0}))),
        group(1, (1.0,), grader(metrics={"length": 0.0})),
    )
    of_length = {name: value for name, value in found.items() if "length" in name}
    assert of_length == {
        "train/reward->length.mean": 4.0,
        "train/reward->length.max": 8.0,
        "train/reward->length.min": 0.0,
    }
    assert found["train/reward->odd.mean"] == 1.0


def test_a_metric_called_final_reward_does_not_hide_the_reward():
    found = metrics(group(0, (1.0,), grader(metrics={"final_reward": -5.0})))
    assert found["train/reward->final_reward.mean"] == 1.0
    assert found["train/metrics->final_reward.mean"] == -5.0


def test_graders_are_seen_one_by_one_those_of_weight_0_too():
    found = metrics(
        group(0, (1.0,), grader("a", (2.0,), 0.5), grader("watch", (9.0,), 0.0)),
    )
    assert found["train/grader->a.mean"] == 2.0
    assert found["train/grader->watch.mean"] == 9.0


def test_the_critics_tokens_are_there_when_there_is_a_critic():
    content = StepContent(num_critic_tokens=12)
    name = "train/critic/context/n_tokens_injected"
    assert step_metrics(content, phase="train", has_critic=True)[name] == 12.0
    assert name not in step_metrics(content, phase="train")


def test_advantages_of_tokens_and_of_trajectories_are_spread_alike():
    found = metrics(group(0, (1.0,)), advantages=[1.0, (-3.0, 2.0)])
    assert found["train/advantages.mean"] == pytest.approx(0.0)
    assert (found["train/advantages.min"], found["train/advantages.max"]) == (-3.0, 2.0)


def test_a_step_reads_back_as_it_was_written():
    record = StepRecord(
        3, "train", 0, 4, 3, 1, {"discarded": 1}, 0.5, {"x": 1.0}, "m", estimated=("x",)
    )
    document = {**record.to_json(), "kind": "step", "at": "now"}
    document["estimated"] = list(document["estimated"])
    assert StepRecord.from_json(document) == record
