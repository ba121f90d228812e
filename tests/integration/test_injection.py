"""`--inject`: the faults of a run are those that the documented draw gives, and nothing is lost."""

from __future__ import annotations

import json
from hashlib import blake2b
from typing import Any

import pytest

from arkdev.errors import ExitCode
from arkdev.runs.reader import RunReader
from arkdev.runs.records import Verdict
from tests.integration.test_resume import cut_short
from tests.integration.workspace import Command, Run, Workspace

ASK_TWICE = """
    from arkdev import rollout

    @rollout
    async def answer(context, proxy, sample):
        client = proxy.async_rollout_client()
        for _ in range(2):
            await client.chat.completions.create(
                model="m", messages=sample.model_dump()["messages"]
            )
"""
INJECT = "model.429=30%,model.garbage=10%,model.slow=10%:1ms,grader.raise=30%"
SEED = 2

# What the draw of docs/faults.md gives with seed 2, in percent, for every place that is reached. A
# model call under 30 is a 429, under 40 garbage, under 50 slow; a grader under 30 raises.
#
#   trajectory  attempt  call 1: sends   call 2: sends   grader
#   0.0         1        39              95              40
#   0.1         1        83              22 46           96
#   1.0         1        98              2 53            62
#   1.1         1        15 36           74              56
#   2.0         1        90              98              28, again 84
#   2.1         1        26 7 10                         (the call has failed: a second attempt)
#   2.1         2        93              39              76
DRAWN = {
    ("model", "0.0", 1, "1", 1): 39,
    ("model", "0.0", 1, "2", 1): 95,
    ("model", "0.1", 1, "1", 1): 83,
    ("model", "0.1", 1, "2", 1): 22,
    ("model", "0.1", 1, "2", 2): 46,
    ("model", "1.0", 1, "1", 1): 98,
    ("model", "1.0", 1, "2", 1): 2,
    ("model", "1.0", 1, "2", 2): 53,
    ("model", "1.1", 1, "1", 1): 15,
    ("model", "1.1", 1, "1", 2): 36,
    ("model", "1.1", 1, "2", 1): 74,
    ("model", "2.0", 1, "1", 1): 90,
    ("model", "2.0", 1, "2", 1): 98,
    ("model", "2.1", 1, "1", 1): 26,
    ("model", "2.1", 1, "1", 2): 7,
    ("model", "2.1", 1, "1", 3): 10,
    ("model", "2.1", 2, "1", 1): 93,
    ("model", "2.1", 2, "2", 1): 39,
    ("grader", "0.0 one", 1, "", 1): 40,
    ("grader", "0.1 one", 1, "", 1): 96,
    ("grader", "1.0 one", 1, "", 1): 62,
    ("grader", "1.1 one", 1, "", 1): 56,
    ("grader", "2.0 one", 1, "", 1): 28,
    ("grader", "2.0 one", 2, "", 1): 84,
    ("grader", "2.1 one", 1, "", 1): 76,
}
FAULTS = {
    "0.0": [[("garbage", "call 1", "plugin")]],
    "0.1": [[("429", "call 2", "harness"), ("slow", "call 2", "plugin")]],
    "1.0": [[("429", "call 2", "harness")]],
    "1.1": [[("429", "call 1", "harness"), ("garbage", "call 1", "plugin")]],
    "2.0": [[]],
    "2.1": [[("429", "call 1", "nobody")] * 3, [("garbage", "call 2", "plugin")]],
}
"""Of each attempt of each trajectory: kind, target, who handled it."""
GRADER_FAULTS = {0: [], 1: [], 2: [("raise", "one", "nobody")]}


def injected(run: Run) -> tuple[dict[str, Any], dict[int, Any]]:
    """What the run folder says of faults, in the form of the tables."""
    rollouts = {
        record.trajectory_id: [
            [(f.kind, f.target, f.handled_by.value) for f in attempt.faults]
            for attempt in record.attempts
        ]
        for record in run.trajectories
    }
    graders = {
        group.sample_index: [
            (f.kind, f.target, f.handled_by.value)
            for grader in group.graders
            for f in grader.faults
        ]
        for group in run.groups
    }
    return rollouts, graders


@pytest.fixture
def asking(workspace: Workspace) -> Workspace:
    workspace.write("plugins/rollout.py", ASK_TWICE)
    workspace.samples("one", "two", "three")
    return workspace


def test_the_table_is_what_the_documented_draw_gives() -> None:
    for place, percent in DRAWN.items():
        digest = blake2b(json.dumps([SEED, *place]).encode("ascii"), digest_size=8).digest()
        assert round(int.from_bytes(digest, "big") / 2**64 * 100) == percent, place


@pytest.mark.parametrize("concurrency", [1, 16])
def test_an_injected_run_equals_the_table_at_any_concurrency(
    asking: Workspace, concurrency: int
) -> None:
    run = asking.run(inject=INJECT, seed=SEED, num_generations=2, concurrency=concurrency)
    assert injected(run) == (FAULTS, GRADER_FAULTS)
    assert run.rewards == [(1.0, 1.0)] * 3
    everything = [f for r in run.trajectories for a in r.attempts for f in a.faults]
    assert all(fault.is_injected for fault in everything)
    assert run.summary.num_model_call_retries == 3 + 2
    assert run.exit_code == ExitCode.OK


def test_another_seed_injects_other_faults(asking: Workspace) -> None:
    run = asking.run(inject=INJECT, seed=SEED + 1, num_generations=2)
    assert injected(run) != (FAULTS, GRADER_FAULTS)


def test_a_resumed_run_injects_what_an_uninterrupted_one_does(asking: Workspace) -> None:
    asking.samples(*(f"question {number}" for number in range(12)))
    whole = asking.run(inject=INJECT, seed=7, num_generations=2)
    expected = injected(whole)
    folder = cut_short(whole.outcome.folder, num_groups=5)
    again = asking.run(resume=folder.name)
    assert injected(again) == expected
    assert RunReader(folder).manifest.settings["inject"] == INJECT


def test_a_resumed_run_may_not_inject_something_else(asking: Workspace, arkdev: Command) -> None:
    run = asking.run(inject=INJECT, seed=7, num_generations=2)
    folder = cut_short(run.outcome.folder, num_groups=1)
    told = arkdev("test", "plugin", "--resume", folder.name, "--inject", "model.429=1%")
    assert told.exit_code == ExitCode.USAGE
    assert f"inject was {INJECT}, is model.429=1%" in told.err


@pytest.mark.parametrize("kind", ["raise", "timeout", "401", "404"])
def test_injected_faults_do_not_stop_a_run_as_an_endpoint_that_is_gone_would(
    asking: Workspace, kind: str
) -> None:
    asking.samples(*(str(number) for number in range(20)))
    run = asking.run(inject=f"model.{kind}=100%")
    assert run.summary.verdicts == {"failure": 20}
    assert run.reader.status == "finished"
    assert run.exit_code == ExitCode.SOME_FAILED
    assert f"injected {kind}" in run.summary.errors[0].message


def test_a_rollout_that_hides_an_injected_error_is_told_so(workspace: Workspace) -> None:
    workspace.write(
        "plugins/rollout.py",
        """
        import openai
        from arkdev import rollout

        @rollout
        def answer(context, proxy, sample):
            client = proxy.rollout_client()
            try:
                client.chat.completions.create(model="m", messages=sample.model_dump()["messages"])
            except openai.APIError:
                pass
        """,
    )
    run = workspace.run(inject="model.timeout=100%")
    (trajectory,) = run.trajectories
    assert trajectory.verdict is Verdict.SUCCESS
    (warning,) = [w for w in trajectory.warnings if w.startswith("exception_swallowed")]
    assert "injected timeout" in warning
    assert {fault.handled_by.value for fault in trajectory.attempts[0].faults} == {"plugin"}


def test_the_command_says_what_it_injects_and_keeps_it(asking: Workspace, arkdev: Command) -> None:
    told = arkdev(
        *("test", "plugin", "--seed", "2", "--n-sample", "2"),
        *("--inject", "model.garbage=10%,grader.raise=30%,slow=1%:5ms", "--json"),
    )
    said = "faults are injected: model: garbage 10%, slow 1% (0.005 s); tool: slow 1% (0.005 s)"
    assert f"note: {said}" in " ".join(told.err.split())
    assert told.document["settings"]["inject"] == "model.garbage=10%,grader.raise=30%,slow=1%:5ms"
    assert told.document["settings"]["flags"]["inject"]
    assert any(said in warning for warning in told.document["warnings"])


def test_faults_of_a_side_that_nothing_called_are_told_after_the_run(
    asking: Workspace, arkdev: Command
) -> None:
    told = arkdev("test", "plugin", "--inject", "tool.429=10%,garbage=1%")
    assert "the faults of the side tool had no effect: no plugin made an HTTP call" in " ".join(
        told.err.split()
    )
    assert "note: --inject" not in arkdev("test", "plugin", "--inject", "garbage=1%").err


def test_a_flag_that_is_wrong_ends_with_2_before_anything_runs(
    asking: Workspace, arkdev: Command
) -> None:
    told = arkdev("test", "plugin", "--inject", "timeot=5%")
    assert told.exit_code == ExitCode.USAGE
    assert "did you mean 'timeout'?" in told.err
    assert not (asking.root / "runs").exists()
