"""`arkdev debug`: what a training job would run, step by step, except for the weights."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Any

import pytest

from arkdev.errors import ExitCode
from arkdev.runs.records import Verdict
from tests.integration.debugging import TWO_GRADERS, Quiet, numbered, rehearse, write_job
from tests.integration.loopback import listening
from tests.integration.workspace import Command, Workspace

ECHO_CONTEXT = """
    from arkdev import RolloutResult, rollout

    @rollout
    def answer(context, proxy, sample):
        client = proxy.rollout_client()
        client.chat.completions.create(model="m", messages=sample.model_dump()["messages"])
        return RolloutResult(extra=context.model_dump())
"""
BY_INDEX = """
    from arkdev import PluginStatus, RolloutResult, rollout

    @rollout
    def answer(context, proxy, sample):
        client = proxy.rollout_client()
        client.chat.completions.create(model="m", messages=sample.model_dump()["messages"])
        if sample.extra["index"] in {chosen}:
            return RolloutResult(status=PluginStatus.{status}, error="not this one")
"""
ANSWER = {
    "id": "a",
    "object": "chat.completion",
    "created": 1,
    "model": "m",
    "choices": [
        {"index": 0, "message": {"role": "assistant", "content": "hi"}, "finish_reason": "stop"}
    ],
    "usage": {"prompt_tokens": 3, "completion_tokens": 1, "total_tokens": 4},
}


@pytest.fixture
def job(workspace: Workspace) -> Workspace:
    """Six samples: three steps of two, with two rollouts each; rewards tell sample and member."""
    numbered(workspace, 6)
    workspace.write("plugins/grader.py", TWO_GRADERS)
    write_job(workspace, graders=[GRADERS[0], GRADERS[1]])
    return workspace


GRADERS = (
    {"plugin": "plugins.grader:index", "weight": 10},
    {"plugin": "plugins.grader:member", "weight": 1},
)


def test_each_step_takes_its_batch_and_every_sample_has_its_turn_once_in_an_epoch(job):
    run = rehearse(job)
    assert run.exit_code is ExitCode.OK
    assert [(step.step, step.num_groups) for step in run.outcome.steps] == [(0, 2), (1, 2), (2, 2)]
    assert sorted(group.sample_index for group in run.groups) == list(range(6))
    assert [group.step for group in run.groups] == [0, 0, 1, 1, 2, 2]
    assert len(run.trajectories) == 12


def test_a_steps_rewards_are_the_weighted_sums_and_its_advantages_those_of_grpo(job, arkdev):
    """OBS-12, ADV-05: two rewards that differ by 1 have ±1/√2 (but for 1e-6)."""
    run = rehearse(job, steps=1)
    for group in run.groups:
        assert group.rewards == (10.0 * group.sample_index, 10.0 * group.sample_index + 1)
    shown = arkdev("show", "latest", "--step", "0", "--json").document
    for group in shown["groups"]:
        assert group["advantages"] == pytest.approx([-math.sqrt(0.5), math.sqrt(0.5)], abs=1e-5)


def test_metrics_have_the_documented_names_and_one_line_for_each_step(job):
    run = rehearse(job)
    assert [line["step"] for line in run.metrics] == [0, 1, 2]
    for line, step in zip(run.metrics, run.outcome.steps, strict=True):
        rewards = [r for g in run.groups if g.step == step.step for r in g.rewards]
        assert line["train/reward->final_reward.mean"] == pytest.approx(sum(rewards) / 4)
        assert line["train/reward->final_reward.max"] == max(rewards)
        assert line["train/reward->final_reward.min"] == min(rewards)
        assert line["train/grader->member.mean"] == 0.5


def test_plugins_are_told_of_the_job_its_step_and_its_phase(job):
    """CTX-01..07, DBG-01."""
    job.write("plugins/rollout.py", ECHO_CONTEXT)
    numbered(job, 2, name="held.jsonl")
    write_job(
        job,
        graders=list(GRADERS),
        data={
            "training_set": {"local_files": ["data.jsonl"]},
            "validation_set": {"local_files": ["held.jsonl"]},
        },
        hyperparameters={"test_every_n_steps": 2, "test_num_generations": 3},
    )
    run = rehearse(job)
    told = {name: record.extra for name, record in run.trajectories.items()}
    assert {extra["model_customization_job_id"] for extra in told.values()} == {run.outcome.job_id}
    assert {extra["customization_type"] for extra in told.values()} == {"GRPO"}
    names = {(e["foundation_model_name"], e["foundation_model_version"]) for e in told.values()}
    assert names == {("m", "1")}
    assert not any(extra["is_mock"] for extra in told.values())
    for name, extra in told.items():
        where = name.partition("/")[0]
        assert extra["phase"] == ("test" if where.startswith("test") else "train")
        assert extra["current_training_step"] == int(where.removeprefix("test"))


def test_validation_comes_every_n_steps_and_after_the_last(job):
    """OBS-11: its reward is a metric of its own, and no part of the report on training."""
    numbered(job, 2, name="held.jsonl")
    write_job(
        job,
        graders=list(GRADERS),
        data={
            "training_set": {"local_files": ["data.jsonl"]},
            "validation_set": {"local_files": ["held.jsonl"]},
        },
        hyperparameters={"test_every_n_steps": 2, "test_num_generations": 3},
    )
    run = rehearse(job)
    rounds = [step for step in run.outcome.steps if step.phase == "test"]
    assert [step.step for step in rounds] == [1, 2]
    assert [step.metrics["test/reward->final_reward.mean"] for step in rounds] == [6.0, 6.0]
    assert run.outcome.summary.num_rollouts == 12
    assert run.outcome.validation.num_rollouts == 2 * 2 * 3
    assert {"test1/0.0", "test1/0.2", "test2/1.1"} <= run.trajectories.keys()
    assert rehearse(job, validation_limit=0).outcome.validation is None


def test_a_percentage_is_held_back_for_validation_and_never_trained_on(job):
    data = {"training_set": {"local_files": ["data.jsonl"]}, "validation_percentage": 34}
    write_job(job, graders=list(GRADERS), data=data)
    run = rehearse(job)
    asked = {
        phase: {
            record.messages[0]["content"]
            for record in run.trajectories.values()
            if record.phase == phase
        }
        for phase in ("train", "test")
    }
    assert (len(asked["train"]), len(asked["test"])) == (4, 2)
    assert not asked["train"] & asked["test"]


def test_a_sample_has_other_answers_in_the_next_epoch_and_the_same_when_it_is_run_again(job):
    job.lines([{"messages": [{"role": "user", "content": "What is 7 plus 5?"}]}])
    job.write(
        "plugins/grader.py",
        """
        from arkdev import single_grader

        @single_grader
        def one(context, sample, trajectory):
            return float("12" in trajectory.messages[-1].content)
        """,
    )
    write_job(job, hyperparameters={"num_generations": 16, "num_steps": 3})
    first, again = rehearse(job, skill=0.5), rehearse(job, skill=0.5)
    by_step = {group.step: group.rewards for group in first.groups}
    assert len({tuple(rewards) for rewards in by_step.values()}) == 3
    assert by_step == {group.step: group.rewards for group in again.groups}


def test_field_case_3_3_a_discarded_group_leaves_whole_and_the_others_are_as_without_it(job):
    whole = {group.sample_index: group.rewards for group in rehearse(job).groups}
    job.write("plugins/picky.py", BY_INDEX.format(chosen={3}, status="DISCARD"))
    write_job(job, graders=list(GRADERS), pipeline={"rollout": {"plugin": "plugins.picky:answer"}})
    run = rehearse(job)
    assert run.exit_code is ExitCode.OK
    left = {group.sample_index: group.rewards for group in run.groups}
    assert set(left.pop(3)) == {None}
    assert left == {n: r for n, r in whole.items() if n != 3}
    (smaller,) = [step for step in run.outcome.steps if step.dropped]
    assert (smaller.num_groups, smaller.num_kept) == (2, 1)
    assert smaller.message == (
        f"step {smaller.step} is smaller: 1 of its 2 groups left (1 discarded)"
    )


def test_field_case_3_3_a_step_that_loses_all_its_groups_is_skipped(job):
    job.write("plugins/rollout.py", BY_INDEX.format(chosen=set(range(6)), status="DISCARD"))
    run = rehearse(job, steps=1)
    (step,) = run.outcome.steps
    assert "step 0 is skipped: none of its 2 groups is left" in step.message
    assert not any("reward" in name or "advantages" in name for name in step.metrics)
    assert run.exit_code is ExitCode.OK


def test_a_step_with_nothing_to_learn_says_so(workspace):
    numbered(workspace, 2)
    write_job(workspace)
    (step,) = rehearse(workspace).outcome.steps
    assert (step.num_kept, step.num_without_signal) == (2, 2)
    assert "step 0 has nothing to learn from" in step.message


def test_field_case_3_6_a_failure_ends_the_job_at_its_step_and_says_where(job):
    """Decision 1: FAILURE used up means that the job fails."""
    job.write(
        "plugins/rollout.py",
        """
        from arkdev import rollout

        @rollout
        def answer(context, proxy, sample):
            if context.current_training_step == 1:
                raise ValueError("broken")
        """,
    )
    run = rehearse(job)
    assert run.exit_code is ExitCode.JOB_FAILED
    assert [step.step for step in run.outcome.steps] == [0]
    assert "step 1: rollout 1/" in run.failure and "in each of 4 attempts" in run.failure
    assert "broken" in run.failure and "plugins/rollout.py:7" in run.failure
    assert run.reader.manifest.status == "failed"
    going_on = rehearse(job, keep_going=True)
    assert going_on.exit_code is ExitCode.JOB_FAILED
    assert [step.step for step in going_on.outcome.steps] == [0, 1, 2]
    assert "step 1" in going_on.failure and going_on.reader.manifest.status == "finished"


@pytest.mark.parametrize("reward", ["math.nan", "math.inf", "None"])
def test_field_case_3_1_a_reward_that_is_no_number_ends_the_job(job, reward):
    """Grader, sample and index are named; no reward becomes 0."""
    job.write(
        "plugins/grader.py",
        f"""
        import math
        from arkdev import group_grader

        @group_grader
        def bad(context, sample, trajectories):
            rewards = [1.0] * len(trajectories)
            if sample.extra["index"] == 4:
                rewards[1] = {reward}
            return rewards
        """,
    )
    write_job(job, graders=["plugins.grader:bad"])
    run = rehearse(job)
    assert run.exit_code is ExitCode.JOB_FAILED
    for word in ("grader bad", "sample 4", "rewards[1]"):
        assert word in run.failure
    (bad,) = [group for group in run.groups if group.sample_index == 4]
    assert (bad.verdict, bad.rewards) == (Verdict.FAILURE, (None, None))


@pytest.mark.parametrize(
    ("returned", "words"),
    [
        ("[1.0]", ("1 rewards", "2 trajectories")),
        ("[1.0] * 3", ("3 rewards", "2 trajectories")),
        (
            "GroupGraderResult(rewards=[1, 1], seq_advantages=[1.0])",
            ("1 seq_advantages", "2 trajectories"),
        ),
        (
            "GroupGraderResult(rewards=[1, 1], seq_advantages=[1, 2], tok_advantages=[[1], [1]])",
            ("both seq_advantages and tok_advantages",),
        ),
    ],
)
def test_field_case_3_2_a_wrong_number_of_rewards_or_advantages_ends_the_job(job, returned, words):
    job.write(
        "plugins/grader.py",
        f"""
        from arkdev import GroupGraderResult, group_grader

        @group_grader
        def bad(context, sample, trajectories):
            return {returned}
        """,
    )
    write_job(job, graders=["plugins.grader:bad"])
    run = rehearse(job)
    assert run.exit_code is ExitCode.JOB_FAILED
    assert all(word in run.failure for word in ("bad", *words)), run.failure


def test_field_case_3_2_advantages_for_a_part_of_a_batch_end_the_job_at_its_step(job):
    """ADV-09."""
    job.write(
        "plugins/grader.py",
        """
        from arkdev import GroupGraderResult, group_grader

        @group_grader
        def half(context, sample, trajectories):
            own = [1.0, -1.0] if sample.extra["index"] == 0 else None
            return GroupGraderResult(rewards=[1, 0], seq_advantages=own)
        """,
    )
    write_job(job, graders=["plugins.grader:half"])
    run = rehearse(job, keep_going=True)
    assert run.exit_code is ExitCode.JOB_FAILED
    (bad,) = [step for step in run.outcome.steps if step.failure]
    assert "half gave advantages for 1 of 2 groups of a batch" in bad.failure


def test_field_case_3_7_a_grader_that_gives_up_is_ungraded_and_never_0(job):
    job.write(
        "plugins/grader.py",
        """
        from arkdev import single_grader

        @single_grader
        def judge(context, sample, trajectory):
            if sample.extra["index"] == 2:
                raise ConnectionError("503")
            return 1.0
        """,
    )
    write_job(job, graders=["plugins.grader:judge"])
    run = rehearse(job, keep_going=True)
    assert run.exit_code is ExitCode.JOB_FAILED and "sample 2" in run.failure
    assert (run.outcome.summary.num_graded, run.outcome.summary.num_ungraded) == (10, 2)
    assert run.outcome.summary.reward.mean == 1.0
    assert all(line["train/reward->final_reward.min"] == 1.0 for line in run.metrics)


def test_a_grader_of_weight_0_never_poisons_a_step(job):
    job.write(
        "plugins/grader.py",
        TWO_GRADERS
        + """
    @single_grader
    def watch(context, sample, trajectory):
        raise RuntimeError("only looking")
""",
    )
    watch = {"plugin": "plugins.grader:watch", "weight": 0}
    write_job(job, graders=[*GRADERS, watch])
    run = rehearse(job, steps=1)
    assert run.outcome.failure is None
    assert all(None not in group.rewards for group in run.groups)


def test_a_group_rollout_makes_the_group_of_each_sample(job):
    """GROUP-02, GROUP-04: n_sample is the job's num_generations."""
    job.write(
        "plugins/rollout.py",
        """
        from arkdev import GroupRolloutResult, SingleResponse, group_rollout

        @group_rollout
        async def answer(context, proxy, sample, n_sample=1):
            client = proxy.async_rollout_client()
            made = [
                await client.responses.create(model="m", input=sample.messages[0].content)
                for _ in range(n_sample)
            ]
            return GroupRolloutResult(responses=[SingleResponse(id=one.id) for one in made])
        """,
    )
    run = rehearse(job, steps=2)
    assert run.exit_code is ExitCode.OK
    assert {len(group.rewards) for group in run.groups} == {2}
    assert {name.partition("/")[0] for name in run.trajectories} == {"0", "1"}


def test_a_run_that_was_cut_short_goes_on_and_ends_as_if_it_had_not_been(job):
    class Interrupts(Quiet):
        num_groups = 0

        def on_group(self, record: Any) -> None:
            self.num_groups += 1
            if self.num_groups == 3:
                raise OSError("the display is gone")

    whole = rehearse(job, out=job.root / "whole")
    with pytest.raises(BaseExceptionGroup):
        rehearse(job, Interrupts(), out=job.root / "cut")
    run = rehearse(job, resume=str(job.root / "cut"))

    def told(rehearsal: Any) -> Any:
        groups = {(g.step, g.sample_index): g.rewards for g in rehearsal.groups}
        metrics = [
            {name: value for name, value in line.items() if name != "at"}
            for line in rehearsal.metrics
        ]
        steps = [(s.step, s.num_kept, s.metrics) for s in rehearsal.outcome.steps]
        return groups, metrics, steps, rehearsal.outcome.summary.num_rollouts

    assert told(run) == told(whole)
    assert run.reader.manifest.status == "finished"


def test_a_failed_job_fails_again_when_it_is_gone_on_with(job):
    job.write(
        "plugins/grader.py",
        """
        from arkdev import single_grader

        @single_grader
        def judge(context, sample, trajectory):
            raise ConnectionError("503")
        """,
    )
    write_job(job, graders=["plugins.grader:judge"])
    first = rehearse(job, out=job.root / "failed")
    again = rehearse(job, resume=str(first.outcome.folder))
    assert again.exit_code is ExitCode.JOB_FAILED
    on = rehearse(job, resume=str(first.outcome.folder), keep_going=True)
    assert len(on.outcome.steps) == 3 and on.exit_code is ExitCode.JOB_FAILED


def test_the_endpoint_and_the_key_of_debug_config_are_used_and_never_shown(
    job, arkdev: Command, monkeypatch
):
    """DBG-02..04: the endpoint's model need not be the trained one."""
    write_job(
        job,
        graders=list(GRADERS),
        debug_config={"apikey": "key-of-the-debug-endpoint", "endpoint_id": "ep-2026"},
    )
    with listening(lambda number, body: (200, ANSWER)) as server:
        monkeypatch.setenv("ARK_BASE_URL", f"{server.url}/api/v3")
        told = arkdev("debug", "--steps", "1", "--json")
    assert told.exit_code == 0, told.err
    assert {path for path, _, _ in server.requests} == {"/api/v3/chat/completions"}
    assert {key for _, key, _ in server.requests} == {"Bearer key-of-the-debug-endpoint"}
    assert {body["model"] for _, _, body in server.requests} == {"ep-2026"}
    assert told.document["settings"]["endpoint"]["model"] == "ep-2026"
    files = [path for path in (job.root / "runs").rglob("*") if path.is_file()]
    written = "".join(path.read_text("utf-8") for path in files)
    assert "key-of-the-debug-endpoint" not in told.out + told.err + written


def test_a_named_endpoint_takes_the_place_of_debug_config(job, arkdev: Command):
    write_job(job, graders=list(GRADERS), debug_config={"apikey": "k" * 20, "endpoint_id": "ep"})
    told = arkdev("debug", "--steps", "1", "--endpoint", "scripted")
    assert told.exit_code == 0
    assert "--endpoint scripted takes the place of the job's debug_config" in told.err


def test_instruments_of_a_test_work_here_too(job, arkdev: Command):
    told = arkdev(
        *[
            "debug",
            "--steps",
            "2",
            "--inject",
            "500=30%",
            "--trace",
            "--requests-per-minute",
            "60000",
        ],
        "--json",
    )
    assert told.exit_code in (0, 5), told.err
    assert told.document["summary"]["failures"]["num_injected"] > 0
    shown = arkdev("show", "--step", "0", "--json").document
    name = shown["groups"][0]["trajectory_ids"][0]
    spans = arkdev("show", "latest", name, "--trace", "--json").document["spans"]
    assert spans and spans[0]["trajectory_ids"] == [name]


def test_a_threshold_that_is_missed_is_3(job, arkdev: Command):
    assert arkdev("debug", "--steps", "1", "--min-reward-mean", "1000").exit_code == 3


def test_the_report_has_the_steps_and_the_run_is_shown_again(job, arkdev: Command):
    told = arkdev("debug", "--steps", "2")
    assert told.exit_code == 0
    for text in ("Steps", "train/reward->final_reward", "run to its end", "report.html"):
        assert text in told.out, text
    rows = [line.split() for line in told.err.splitlines() if line[:1].isdigit()]
    assert [row[0] for row in rows] == ["0", "1"]
    shown = arkdev("show", "latest")
    assert "Steps" in shown.out and shown.exit_code == 0
    assert arkdev("runs", "--json").document["runs"][0]["kind"] == "debug"
    name = next(iter(rehearse(job, steps=1).trajectories))
    assert "sample" in arkdev("show", "latest", name).out
    told = arkdev("show", "latest", "--step", "7")
    assert (told.exit_code, "has no step 7" in told.err) == (2, True)
    assert arkdev("replay", "latest").exit_code == 2


def test_ungraded_settings_of_a_job_are_said_and_unknown_ones_refused(workspace, arkdev: Command):
    numbered(workspace, 2)
    told = arkdev("debug", "--steps", "1")
    assert "gives no num_generations" in told.err and "scripted model answers" in told.err
    write_job(workspace, hyperparameters={"num_steps": 1, "test_every_n_steps": 1})
    told = arkdev("debug")
    assert (told.exit_code, "test_every_n_steps has no effect on debug" in told.err) == (2, True)
    write_job(workspace, hyperparameters={"warp_factor": 9})
    told = arkdev("debug")
    assert (told.exit_code, "warp_factor" in told.err) == (2, True)


def test_a_script_submits_a_debug_job_and_gets_its_id_and_report(job, arkdev: Command):
    """JOB-37..39."""
    job.write(
        "submit.py",
        """
        from arkdev.job.models import ModelCustomizationJob
        from plugins.rollout import answer
        from plugins.grader import member

        mcj = ModelCustomizationJob.model_validate({
            "model_reference": {"foundation_model": {"name": "m", "model_version": "1"}},
            "data": {"training_set": {"local_files": ["data.jsonl"]}},
            "custom_rl_pipeline": {"rollout": answer, "graders": [member]},
            "hyperparameters": {"batch_size": 2, "num_generations": 2, "num_steps": 1},
            "debug_config": {"apikey": "unused-key-of-ark", "endpoint_id": "ep"},
        })
        mcj.submit(debug=True)
        print("ID", mcj.id, "URL", mcj.url, "PHASE", mcj.phase)
        """,
    )
    told = arkdev("run", "submit.py", "--endpoint", "scripted")
    assert told.exit_code == 0, told.err
    line = next(line for line in told.out.splitlines() if line.startswith("ID"))
    _, job_id, _, url, _, phase = line.split()
    assert job_id.startswith("mcj-") and phase == "Completed"
    page = url.removeprefix("file://")
    text = Path(page).read_text("utf-8")
    assert job_id in text


def test_a_training_job_cannot_be_submitted_yet_and_says_what_can(job, arkdev: Command):
    job.write(
        "submit.py",
        """
        from arkdev.job.models import ModelCustomizationJob
        ModelCustomizationJob.model_validate({
            "model_reference": {"foundation_model": {"name": "m", "model_version": "1"}},
            "data": {"training_set": {"local_files": ["data.jsonl"]}},
            "custom_rl_pipeline": {"graders": ["plugins.grader:member"]},
        }).submit()
        """,
    )
    told = arkdev("run", "submit.py")
    assert told.exit_code == 2 and "not built yet" in told.err
    told = arkdev("create", "mcj", "-f", "job.yaml")
    assert told.exit_code == 2 and "--debug" in told.err


def test_the_documented_spelling_runs_the_same_debug_job(job, arkdev: Command):
    """`ark create mcj --file job.yaml --debug`."""
    ours = arkdev("debug", "--json").document
    documented = arkdev("create", "mcj", "--file", "job.yaml", "--debug", "--json").document
    assert [s["metrics"] for s in documented["steps"]] == [s["metrics"] for s in ours["steps"]]


def test_the_page_is_one_file_that_asks_for_nothing_and_escapes_what_models_say(job, arkdev):
    job.lines(
        [
            {
                "messages": [{"role": "user", "content": "<script>alert(1)</script> & more"}],
                "extra": {"index": n},
            }
            for n in range(2)
        ]
    )
    document = arkdev("debug", "--json").document
    page = Path(document["report"]).read_text("utf-8")
    assert "&lt;script&gt;alert(1)&lt;/script&gt; &amp; more" in page
    for forbidden in ("<script", "http://", "https://", "src=", "<link", "@import"):
        assert forbidden not in page, forbidden
    assert document["job_id"] in page


def test_tok_advantages_without_token_ids_say_what_was_not_checked(job, arkdev: Command):
    job.write(
        "plugins/grader.py",
        """
        from arkdev import GroupGraderResult, group_grader

        @group_grader
        def own(context, sample, trajectories):
            return GroupGraderResult(rewards=[1, 0], tok_advantages=[[0.5, 0.5], [-0.5]])
        """,
    )
    write_job(job, graders=["plugins.grader:own"])
    run = rehearse(job, steps=1)
    (warning,) = [text for text in run.outcome.warnings if "tok_advantages" in text]
    assert "was not checked" in warning and "finite numbers" in warning


def test_a_debug_run_is_not_graded_again_and_the_nearest_command_is_named(job, arkdev: Command):
    run = rehearse(job, steps=1)
    told = arkdev("replay", str(run.outcome.folder))
    assert told.exit_code == 2
    assert "is a debug run: its graders were told of each step" in told.err
    assert "arkdev test plugin --n-sample 2`, then `arkdev replay latest`" in told.err.replace(
        "\n", " "
    )
    assert arkdev("test", "plugin", "--n-sample", "2").exit_code == 0
    assert arkdev("replay", "latest").exit_code == 0


def test_the_jobs_envs_are_in_the_environment_of_its_plugins(job):
    """PIPE-05: of rollout and graders, at either level."""
    job.write(
        "plugins/rollout.py",
        """
        import os
        from arkdev import RolloutResult, rollout

        @rollout
        def answer(context, proxy, sample):
            client = proxy.rollout_client()
            client.chat.completions.create(model="m", messages=sample.model_dump()["messages"])
            return RolloutResult(extra={name: os.environ[name] for name in ("OF_ROLLOUT", "FOO")})
        """,
    )
    job.write(
        "plugins/grader.py",
        """
        import os
        from arkdev import single_grader

        @single_grader
        def reads(context, sample, trajectory):
            return float(os.environ["OF_GRADER"])
        """,
    )
    rollout = {
        "plugin": {"python_func": "plugins.rollout:answer", "envs": {"OF_ROLLOUT": "yes"}},
        "envs": {"FOO": "bar"},
    }
    grader = {"plugin": "plugins.grader:reads", "envs": {"OF_GRADER": "0.75"}}
    write_job(job, graders=[grader], pipeline={"rollout": rollout})
    run = rehearse(job, steps=1)
    assert {group.rewards for group in run.groups} == {(0.75, 0.75)}
    assert [record.extra for record in run.trajectories.values()] == [
        {"OF_ROLLOUT": "yes", "FOO": "bar"}
    ] * 4
    assert "OF_GRADER" not in os.environ
