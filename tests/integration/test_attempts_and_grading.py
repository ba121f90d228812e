"""Attempts, failures that stay apart, and rewards that are never made up (3.6, 3.7, 5.2, 10.3)."""

from __future__ import annotations

import asyncio

import pytest

from arkdev.flows.test_plan import plan_test
from arkdev.flows.test_plugin import run_test
from arkdev.flows.test_request import PluginTestRequest
from arkdev.runs.records import Verdict
from tests.integration.debugging import rehearse
from tests.integration.workspace import Command, Silent, Workspace, job_yaml

BY_QUESTION = '''
    import itertools
    from arkdev import PluginStatus, RolloutResult, RolloutRetryException, rollout

    tries = {}

    @rollout
    def answer(context, proxy, sample):
        """Ends as the question says: one word for each attempt, the last one for ever."""
        question = sample.messages[0].content
        number = tries.setdefault(question, itertools.count())
        words = question.split()
        word = words[min(next(number), len(words) - 1)]
        client = proxy.rollout_client()
        for _ in range(2 if word == "retry" else 1):
            client.chat.completions.create(model="m", messages=sample.model_dump()["messages"])
        if word == "none":
            return None
        if word == "raise":
            raise ValueError("坏")
        return RolloutResult(status=PluginStatus(word), error=f"said {word}")
'''


def test_every_status_has_its_own_end(workspace: Workspace) -> None:
    workspace.write("plugins/rollout.py", BY_QUESTION)
    workspace.samples("retry retry success", "retry", "failure", "discard", "none", "raise")
    run = workspace.run()
    ends = {
        record.messages[0]["content"]: (record.verdict.value, len(record.attempts))
        for record in run.trajectories
    }
    assert ends == {
        "retry retry success": ("success", 3),
        "retry": ("retry", 4),
        "failure": ("failure", 4),
        "discard": ("discard", 1),
        "none": ("success", 1),
        "raise": ("failure", 4),
    }
    assert run.rewards == [(1.0,), (None,), (None,), (None,), (1.0,), (None,)]
    assert run.summary.attempts == {"1": 2, "3": 1, "4": 3}
    assert run.summary.would_fail_job
    assert run.exit_code == 1


COUNTS_ITSELF = """
    import asyncio
    from arkdev import RolloutResult, Runtime, rollout

    under_way = most = 0

    @rollout(runtime=Runtime(request_concurrency=3))
    async def answer(context, proxy, sample):
        global under_way, most
        under_way += 1
        most = max(most, under_way)
        await asyncio.sleep(0.01)
        under_way -= 1
        return RolloutResult(extra={"most": most})
"""


@pytest.mark.parametrize("asked", [2, 8])
def test_a_rollout_has_no_more_calls_under_way_than_its_request_concurrency(
    workspace: Workspace, asked: int
) -> None:
    workspace.write("plugins/rollout.py", COUNTS_ITSELF)
    workspace.samples(*[f"question {number}" for number in range(12)])
    run = workspace.run(concurrency=asked)
    assert max(trajectory.extra["most"] for trajectory in run.trajectories) == min(asked, 3)
    notes = plan_test(PluginTestRequest(start=workspace.root, concurrency=asked)).notes
    told = [note for note in notes if "request_concurrency of answer" in note]
    assert told == [
        f"3 rollouts at once and not 8: that is the request_concurrency of answer ({place})"
        for place in [f"{workspace.root}/plugins/rollout.py:7"]
        if asked == 8
    ]


def test_a_debug_run_keeps_to_the_rollouts_request_concurrency(workspace: Workspace) -> None:
    workspace.write("plugins/rollout.py", COUNTS_ITSELF)
    workspace.samples(*[f"question {number}" for number in range(8)])
    workspace.write("job.yaml", job_yaml(hyperparameters={"batch_size": 8, "num_generations": 2}))
    run = rehearse(workspace)
    assert max(trajectory.extra["most"] for trajectory in run.reader.trajectories()) == 3


def test_a_success_keeps_the_turns_of_its_last_attempt_only(workspace: Workspace) -> None:
    workspace.write("plugins/rollout.py", BY_QUESTION)
    workspace.samples("retry retry success")
    (trajectory,) = workspace.run().trajectories
    assert [attempt.num_turns for attempt in trajectory.attempts] == [2, 2, 1]
    assert len(trajectory.turns) == 1
    assert [message["role"] for message in trajectory.messages] == ["user", "assistant"]


def test_a_discarded_group_leaves_whole_and_alone(workspace: Workspace) -> None:
    workspace.write("plugins/rollout.py", BY_QUESTION)
    workspace.samples("success", "discard", "success")
    run = workspace.run(num_generations=3)
    assert [group.verdict.value for group in run.groups] == ["success", "discard", "success"]
    assert [group.rewards for group in run.groups if group.verdict is Verdict.SUCCESS] == [
        (1.0, 1.0, 1.0)
    ] * 2
    assert set(run.groups[1].rewards) == {None}
    assert run.exit_code == 0


GRADERS = '''
    import time
    from arkdev import PluginStatus, Runtime, SingleGraderResult, single_grader

    @single_grader
    def one(context, sample, trajectory):
        return 1.0

    @single_grader
    def raises(context, sample, trajectory):
        if sample.messages[0].content == "odd":
            raise RuntimeError("judge said no")
        return 0.5

    @single_grader(runtime=Runtime(timeout=1))
    async def slow(context, sample, trajectory):
        if sample.messages[0].content == "odd":
            import asyncio
            await asyncio.sleep(30)
        return 0.5

    @single_grader
    async def judge(context, sample, trajectory):
        """Asks a judge over HTTP that always answers 503."""
        import os
        from openai import AsyncOpenAI
        async with AsyncOpenAI(
            base_url=os.environ["JUDGE_URL"], api_key="k", max_retries=0
        ) as client:
            await client.chat.completions.create(
                model="judge", messages=[{"role": "user", "content": "?"}]
            )
        return 1.0
'''


@pytest.mark.parametrize(("grader", "error"), [("raises", "judge said no"), ("slow", "than 1 s")])
def test_a_grader_that_fails_leaves_ungraded_and_never_zero(
    workspace: Workspace, grader: str, error: str
) -> None:
    workspace.write("plugins/grader.py", GRADERS)
    workspace.samples("even", "odd", "even")
    run = workspace.run(graders=(f"plugins.grader:{grader}",))
    assert run.rewards == [(0.5,), (None,), (0.5,)]
    assert run.groups[1].graders[0].rewards == (None,)
    assert error in (run.groups[1].error or "")
    assert run.summary.num_ungraded == 1
    assert run.summary.reward is not None and run.summary.reward.mean == 0.5
    assert run.exit_code == 1


async def test_a_judge_that_is_down_grades_nothing(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    from arkdev.endpoints.scripted.script import Script
    from arkdev.endpoints.scripted.server import ScriptedServer

    down = {"error": {"status": 503, "code": "Unavailable", "message": "judge is down."}}
    server = ScriptedServer(script=Script.model_validate({"answers": [down]}))
    monkeypatch.setenv("JUDGE_URL", await server.start("127.0.0.1", 0))
    workspace.write("plugins/grader.py", GRADERS)
    try:
        plan = plan_test(PluginTestRequest(start=workspace.root, graders=("plugins.grader:judge",)))
        outcome = await run_test(plan, Silent())
    finally:
        await server.stop()
    assert outcome.summary.reward is None
    assert outcome.summary.num_ungraded == 1
    (error,) = outcome.summary.errors
    assert error.source == "grader judge"
    assert "judge is down" in error.message


def test_the_report_puts_ungraded_beside_the_mean(workspace: Workspace, arkdev: Command) -> None:
    workspace.write("plugins/grader.py", GRADERS)
    workspace.samples("even", "odd", "even")
    told = arkdev("test", "plugin", "--grader", "plugins.grader:raises")
    assert told.exit_code == 1
    assert "2 of 3 rollouts graded, mean reward 0.50" in told.out
    assert "1 ungraded" in told.out
    assert "judge said no" in told.out
    assert "plugins/grader.py:12" in "".join(told.out.split())


def test_a_weighted_reward_needs_all_its_graders(workspace: Workspace) -> None:
    workspace.write("plugins/grader.py", GRADERS)
    workspace.samples("even", "odd")
    run = workspace.run(graders=("plugins.grader:one=0.5", "plugins.grader:raises=2"))
    assert run.rewards == [(1.5,), (None,)]
    assert run.groups[1].graders[0].rewards == (1.0,)


def test_one_exception_costs_its_own_sample_only(workspace: Workspace) -> None:
    workspace.write("plugins/rollout.py", BY_QUESTION)
    workspace.samples(*("raise" if number == 7 else "none " * (number + 1) for number in range(16)))

    async def tasks_left() -> int:
        plan = plan_test(PluginTestRequest(start=workspace.root, out=workspace.root / "out"))
        await run_test(plan, Silent())
        return len(asyncio.all_tasks()) - 1

    assert asyncio.run(tasks_left()) == 0
    run = workspace.run()
    assert run.summary.verdicts == {"success": 15, "failure": 1}
    failed = run.trajectories[7]
    last = failed.attempts[-1]
    assert last.error == "ValueError: 坏"
    assert "raise ValueError" in (last.traceback or "")
    assert "arkdev/" not in (last.traceback or "")
    assert (last.where or "").endswith("plugins/rollout.py:20")


TURNS = '''
    from arkdev import rollout

    @rollout
    def answer(context, proxy, sample):
        """As many model calls as the question says; none at all means failing."""
        messages = sample.model_dump()["messages"]
        num_turns = int(messages[0]["content"])
        if num_turns == 0:
            raise RuntimeError("no turn")
        client = proxy.rollout_client()
        for _ in range(num_turns):
            completion = client.chat.completions.create(model="m", messages=messages)
            messages.append(completion.choices[0].message.model_dump())
'''
SHORT_IS_GOOD = """
    from arkdev import single_grader

    @single_grader
    def one(context, sample, trajectory):
        return float(len(trajectory.messages) < 5)
"""


def test_the_mean_counts_rollouts_not_turns_and_leaves_failures_out(
    workspace: Workspace, arkdev: Command
) -> None:
    """Field case 10.3."""
    workspace.write("plugins/rollout.py", TURNS)
    workspace.write("plugins/grader.py", SHORT_IS_GOOD)
    workspace.samples("2", "8", "0")
    told = arkdev("test", "plugin")
    assert "2 of 3 rollouts graded, mean reward 0.50" in told.out
    assert "1 failed" in told.out
    again = arkdev("show", "latest", "--json")
    reward = again.document["run"]["summary"]["reward"]
    assert (reward["mean"], reward["num_graded"]) == (0.5, 2)


def test_a_job_with_two_graders_of_the_same_name_keeps_them_apart(workspace: Workspace) -> None:
    workspace.write("job.yaml", job_yaml())
    run = workspace.run(graders=("plugins.grader:one=0.5", "plugins.grader:one=0.5"))
    assert [grader.name for grader in run.summary.graders] == ["one", "one#2"]
    assert run.rewards == [(1.0,)]


def test_a_grader_that_gives_up_drops_the_group_and_is_no_success(workspace: Workspace) -> None:
    workspace.write(
        "plugins/grader.py",
        """
        from arkdev import PluginStatus, SingleGraderResult, single_grader

        @single_grader
        def busy(context, sample, trajectory):
            return SingleGraderResult(status=PluginStatus.RETRY, error="judge is busy")
        """,
    )
    run = workspace.run(graders=("plugins.grader:busy",))
    assert {group.verdict for group in run.groups} == {Verdict.RETRY}
    assert run.summary.reward is None
    assert run.exit_code == 1
