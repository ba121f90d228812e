"""Group rollouts through the command: what is printed, counted and kept; retries by layer (5.5)."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from arkdev.flows.init_workspace import create_workspace
from arkdev.runs.records import Verdict
from tests.integration.workspace import Command, Workspace, job_yaml

BRANCHES = """
    from arkdev import GroupRolloutResult, SingleResponse, group_rollout

    @group_rollout
    async def answer(context, proxy, sample, n_sample):
        client = proxy.async_rollout_client()
        question = sample.messages[0].content
        plan = await client.responses.create(
            model="m", input=[{"role": "user", "content": f"plan: {question}"}]
        )
        if question == "broken":
            raise ValueError("no plan")
        if question == "dull":
            return GroupRolloutResult(status="discard", error="nothing to learn")
        if question == "late" and not hasattr(answer, "tried"):
            answer.tried = True
            raise ValueError("once")
        responses = []
        for number in range(n_sample):
            response = await client.responses.create(
                model="m",
                input=[{"role": "user", "content": f"act {number}"}],
                previous_response_id=plan.id,
            )
            responses.append(SingleResponse(id=response.id, extra={"number": number}))
        return GroupRolloutResult(responses=responses)
"""
BY_NUMBER = """
    from arkdev import single_grader

    @single_grader
    def one(context, sample, trajectory):
        return float(trajectory.extra["number"] % 2)
"""


@pytest.fixture
def grouped(workspace: Workspace) -> Workspace:
    """A workspace whose rollout makes groups of four."""
    workspace.write("plugins/rollout.py", BRANCHES)
    workspace.write("plugins/grader.py", BY_NUMBER)
    settings = {"batch_size": 8, "num_generations": 4}
    workspace.write("job.yaml", job_yaml(hyperparameters=settings))
    return workspace


def test_num_generations_of_the_job_is_n_sample(grouped: Workspace) -> None:
    run = grouped.run()
    assert run.rewards == [(0.0, 1.0, 0.0, 1.0)]
    assert [record.call_size for record in run.trajectories] == [4] * 4
    assert run.exit_code == 0


def test_shared_turns_are_counted_once(grouped: Workspace) -> None:
    grouped.samples("a", "b")
    summary = grouped.run().summary
    assert (summary.num_rollouts, summary.num_graded) == (8, 8)
    assert (summary.num_model_calls, summary.num_shared_turns) == (10, 6)
    assert summary.model_call_latency is not None
    assert summary.rollout_latency is not None
    assert (summary.model_call_latency.count, summary.rollout_latency.count) == (10, 2)
    assert summary.turns is not None
    assert (summary.turns.mean, summary.turns.total) == (2, 16)


def test_a_call_that_did_not_succeed_counts_for_all_its_trajectories(grouped: Workspace) -> None:
    grouped.samples("a", "broken", "dull")
    run = grouped.run()
    summary = run.summary
    assert summary.verdicts == {"success": 4, "failure": 4, "discard": 4}
    assert summary.num_rollouts == 12
    assert summary.attempts == {"1": 8, "4": 4}
    assert summary.groups is not None
    assert summary.groups.verdicts == {"success": 1, "failure": 1, "discard": 1}
    assert summary.groups.num_incomplete == 2
    assert [(e.message, e.count, e.num_final) for e in summary.errors] == [
        ("ValueError: no plan", 4, 1),
        ("nothing to learn", 1, 1),
    ]
    assert summary.first_failure in ("1.0", "2.0")
    ids = [record.trajectory_id for record in run.trajectories]
    assert ids == ["0.0", "0.1", "0.2", "0.3", "1.0", "2.0"]
    assert run.exit_code == 1


def test_an_attempt_made_good_is_one_failed_attempt(grouped: Workspace) -> None:
    grouped.samples("late")
    summary = grouped.run().summary
    assert (summary.verdicts, summary.attempts) == ({"success": 4}, {"2": 4})
    assert (summary.num_recovered, summary.num_reruns) == (4, 1)
    assert [(error.count, error.num_final) for error in summary.errors] == [(1, 0)]


def test_the_report_and_show_say_the_same_of_groups(grouped: Workspace, arkdev: Command) -> None:
    grouped.samples("a", "broken", "dull")
    told = arkdev("test", "plugin")
    assert told.exit_code == 1
    assert "on 3 samples × 4, 3 at once" in told.err
    assert "4 of 12 rollouts graded" in told.out
    assert re.search(r"outcome +4 succeeded 33% +· +4 failed 33% +· +4 discarded 33%", told.out)
    assert "7 model calls; 3 turns shared with another trajectory" in told.out
    assert re.search(r"repeated +3 attempts", told.out)
    shown = arkdev("show", "latest")
    assert shown.out.splitlines()[:12] == told.out.splitlines()[:12]


def test_show_prints_one_branch_as_its_whole_path(grouped: Workspace, arkdev: Command) -> None:
    grouped.samples("a", "broken")
    arkdev("test", "plugin")
    branch = arkdev("show", "latest", "0.3", "--json").document
    said = [m["content"] for m in branch["trajectory"]["messages"] if m["role"] == "user"]
    assert said == ["plan: a", "act 3"]
    shown = arkdev("show", "latest", "0.3").out
    assert "act 3" in shown and "act 2" not in shown
    failed = arkdev("show", "latest", "1.0")
    assert failed.exit_code == 0
    assert "no plan" in failed.out and "plan: broken" in failed.out


def test_one_sample_is_shown_branch_by_branch(grouped: Workspace, arkdev: Command) -> None:
    told = arkdev("test", "plugin", "--sample", "0", "--n-sample", "2")
    assert told.exit_code == 0
    first, second = told.out.split("trajectory 0.1")
    assert "trajectory 0.0" in first
    assert "act 0" in first and "act 1" not in first
    assert "act 1" in second and "act 0" not in second
    for part in (first, second):
        assert "plan: hello" in part
        assert len(re.findall(r"^assistant +·", part, flags=re.MULTILINE)) == 2


def test_a_group_call_that_fails_is_shown_once(grouped: Workspace, arkdev: Command) -> None:
    sample = json.dumps({"messages": [{"role": "user", "content": "broken"}]})
    told = arkdev("test", "plugin", "--sample", sample)
    assert told.exit_code == 1
    assert told.out.count("attempt ") == 4
    assert [line for line in told.out.splitlines() if line.startswith("user")] == ["user"]


INSERTS = """
    from arkdev import GroupRolloutResult, SingleResponse, group_rollout

    @group_rollout
    async def answer(context, proxy, sample, n_sample):
        client = proxy.async_rollout_client()
        first = await client.responses.create(
            model="m", instructions="be brief", input=[{"role": "user", "content": "q1"}]
        )
        given = [{"role": "user", "content": "q2"}, {"role": "assistant", "content": "given"}]
        new = proxy.update_state_from_messages(given, previous_response_id=first.id)
        last = await client.responses.create(
            model="m", input=[{"role": "user", "content": "q3"}], previous_response_id=new
        )
        return GroupRolloutResult(responses=[SingleResponse(id=new), SingleResponse(id=last.id)])
"""


def test_only_answers_of_the_model_are_shown_as_turns(
    workspace: Workspace, arkdev: Command
) -> None:
    workspace.write("plugins/rollout.py", INSERTS)
    told = arkdev("test", "plugin", "--sample", "0", "--n-sample", "2")
    assert told.exit_code == 0
    for name, expected in (("0.0", [True, False]), ("0.1", [True, False, True])):
        shown = arkdev("show", "latest", name).out
        heads = [line for line in shown.splitlines() if line.startswith("assistant")]
        assert ["turn" in head for head in heads] == expected


RESPONSES_ALONE = """
    from arkdev import rollout

    @rollout
    def answer(context, proxy, sample):
        client = proxy.rollout_client()
        first = client.responses.create(model="m", input=[{"role": "user", "content": "one"}])
        client.responses.create(
            model="m",
            input=[{"role": "user", "content": "two"}],
            previous_response_id=first.id,
        )
"""


def test_a_single_rollout_with_responses_is_shown_turn_by_turn(
    workspace: Workspace, arkdev: Command
) -> None:
    workspace.write("plugins/rollout.py", RESPONSES_ALONE)
    script = workspace.script({"turn": 0, "content": "ONE"}, {"turn": 1, "content": "TWO"})
    told = arkdev("test", "plugin", "--sample", "0", "--script", str(script))
    assert told.exit_code == 0
    said = [
        line.strip()
        for line in told.out.splitlines()
        if line.strip() in ("one", "ONE", "two", "TWO")
    ]
    assert said == ["one", "ONE", "two", "TWO"]


def test_the_same_seed_gives_the_same_branches_again(grouped: Workspace) -> None:
    grouped.samples("2 + 3 = ?", "4 + 5 = ?")
    messages: list[list[Any]] = []
    for concurrency in (1, 2):
        run = grouped.run(skill=0.5, seed=7, concurrency=concurrency)
        messages.append([record.messages for record in run.trajectories])
    assert messages[0] == messages[1]


BUSY = {"error": {"status": 429, "code": "RateLimit", "message": "slow down."}}
OWN_CLIENT = """
    import openai
    from arkdev import rollout, wrap_client_inplace

    @rollout
    def answer(context, proxy, sample):
        with openai.OpenAI(base_url=proxy.url, api_key=proxy.jwt_token, max_retries=5) as client:
            wrap_client_inplace(client, proxy)
            client.chat.completions.create(model="m", messages=sample.model_dump()["messages"])
"""


@pytest.mark.parametrize("way", ["direct", "own"])
def test_the_report_says_once_who_sent_what_again(
    workspace: Workspace, arkdev: Command, way: str
) -> None:
    if way == "own":
        workspace.write("plugins/rollout.py", OWN_CLIENT)
    script = workspace.script(BUSY)
    run = workspace.run(script=script)
    (trajectory,) = run.trajectories
    assert trajectory.verdict is Verdict.FAILURE
    assert (run.summary.num_model_call_retries, run.summary.num_reruns) == (8, 3)
    told = arkdev("show", str(run.outcome.folder))
    assert re.search(r"repeated +8 model calls +· +3 attempts", told.out)
    who = "model calls up to 2 by arkdev; plugin attempts up to 3 more; clients inside plugins 0"
    assert " ".join(told.out.split()).count(who) == 1


def test_the_template_s_group_rollout_runs_on_the_scripted_model(tmp_path: Path) -> None:
    workspace = Workspace.__new__(Workspace)
    workspace.root = tmp_path / "weather"
    create_workspace(workspace.root, template="rl_demo")
    run = workspace.run(rollout="plugins.group_weather_rollout:demo_rollout", limit=6)
    assert run.exit_code == 0
    assert (run.summary.num_rollouts, run.summary.num_graded) == (48, 48)  # num_generations is 8
    assert run.summary.num_model_calls == 6 * (1 + 8)
    assert run.summary.reward is not None
    assert run.summary.reward.min < run.summary.reward.max
