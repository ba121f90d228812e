"""The failure report of an injected run equals a table that was worked out by hand."""

from __future__ import annotations

import json
from hashlib import blake2b
from typing import Any

import pytest

from arkdev.harness.summary import FailureRow
from tests.integration.test_resume import cut_short
from tests.integration.workspace import Command, Workspace, job_yaml

ASK = """
    import openai
    from arkdev import RolloutResult, rollout

    @rollout
    async def answer(context, proxy, sample):
        \"\"\"A question that begins with "hide" hides errors behind a reward of 0.\"\"\"
        messages = sample.model_dump()["messages"]
        try:
            await proxy.async_rollout_client().chat.completions.create(model="m", messages=messages)
        except openai.APIError:
            if messages[0]["content"] != "hide":
                raise
            return RolloutResult(extra={"reward": 0.0})
        return RolloutResult(extra={"reward": 1.0})
"""
GRADE = """
    from arkdev import group_grader

    @group_grader
    def fair(context, sample, trajectories):
        rewards = [trajectory.extra["reward"] for trajectory in trajectories]
        return [1.0, 0.0, 1.0, 0.0] if sample.messages[0].content == "uneven" else rewards
"""
INJECT = "model.429=10%,model.404=10%,grader.raise=10%"
SEED = 10300

# Of the draws of docs/faults.md with this seed, these are below 20 % (10 % for graders):
#
#   place                                    percent
#   model, 0.0, attempt 1, call 1, send 1    404: the rollout hides it, reward 0
#   model, 0.3, attempt 1, call 1, send 1    429: sent again
#   model, 1.3, attempt 1, call 1, send 1    404: the rollout raises, a second attempt is fine
#   model, 2.2, attempt 1, call 1, send 1    429: sent again
#   grader of sample 2, attempt 1            raise: graded again
STRUCK = {("0.0", "404"), ("0.3", "429"), ("1.3", "404"), ("2.2", "429"), ("sample 2", "raise")}

# Sample 0, rewards 0 1 1 1: mean 0.75, std 0.5, advantages -1.5 0.5 0.5 0.5.
#   Without 0.0 all are equal, advantages 0: moved by 0.5, three times.
#   Without 0.3: mean 2/3, std 0.57735, advantages -1.15470 0.57735 0.57735:
#   moved by -0.34530, -0.07735, -0.07735.
# Sample 1, rewards 1 1 1 1: no signal, so 1.3 moves nobody.
# Sample 2, rewards 1 0 1 0: mean 0.5, std 0.57735, advantages 0.86603 -0.86603 0.86603 -0.86603.
#   Without 2.2: mean 1/3, std 0.57735, advantages 1.15470 -0.57735 -0.57735:
#   moved by 0.28868, three times.
# So the two 429 moved six siblings by (0.34530 + 2 · 0.07735 + 3 · 0.28868) / 6 = 0.22767.
#
#        side, kind, plugin, handling: count, attempts, fates, (siblings, mean, largest, of)
FAULTS: list[tuple[Any, ...]] = [
    ("model", "429", "rollout", "resent", 2, {"1": 2}, {"trained": 2}),
    ("grader", "raise", "grader", "repeated", 1, {"2": 1}, {"trained": 1}),
    ("model", "404", "rollout", "plugin", 1, {"1": 1}, {"trained": 1}),
    ("model", "404", "rollout", "repeated", 1, {"2": 1}, {"no_signal": 1}),
]
SHIFTS = [(6, 0.22767, 0.34530, "0.3"), None, (3, 0.5, 0.5, "0.0"), None]
FAILED_ATTEMPTS: list[tuple[Any, ...]] = [
    ("grader", "exception", "grader", "repeated", 1, {"2": 1}, {"trained": 1}),
    ("rollout", "exception", "rollout", "repeated", 1, {"2": 1}, {"no_signal": 1}),
]


def told(row: FailureRow) -> tuple[Any, ...]:
    assert row.verdicts == {"success": row.count}
    return row.side, row.kind, row.plugin, row.handling, row.count, row.attempts, row.fates


@pytest.fixture
def injected(workspace: Workspace) -> Workspace:
    workspace.write("plugins/rollout.py", ASK)
    workspace.write("plugins/grader.py", GRADE)
    workspace.write("job.yaml", job_yaml(grader="plugins.grader:fair", grader_name="fair"))
    workspace.samples("hide", "raise", "uneven")
    return workspace


def drawn(side: str, name: str, *, call: str) -> float:
    place = json.dumps([SEED, side, name, 1, call, 1])
    return int.from_bytes(blake2b(place.encode(), digest_size=8).digest(), "big") / 2**64


def test_the_faults_are_what_the_documented_draw_gives() -> None:
    found = set()
    for sample in range(3):
        names = [f"{sample}.{generation}" for generation in range(4)]
        for name in names:
            share = drawn("model", name, call="1")
            if share < 0.2:
                found.add((name, "429" if share < 0.1 else "404"))
        if drawn("grader", f"{'+'.join(names)} fair", call="") < 0.1:
            found.add((f"sample {sample}", "raise"))
    assert found == STRUCK


@pytest.mark.parametrize("concurrency", [1, 12])
def test_the_report_equals_the_table(injected: Workspace, concurrency: int) -> None:
    run = injected.run(inject=INJECT, seed=SEED, num_generations=4, concurrency=concurrency)
    assert run.rewards == [(0.0, 1.0, 1.0, 1.0), (1.0,) * 4, (1.0, 0.0, 1.0, 0.0)]
    failures = run.summary.failures
    assert failures is not None
    assert [told(row) for row in failures.faults] == FAULTS
    assert [told(row) for row in failures.failed_attempts] == FAILED_ATTEMPTS
    assert (failures.num_faults, failures.num_injected, failures.num_failed_attempts) == (5, 5, 2)
    for row, expected in zip(failures.faults, SHIFTS, strict=True):
        if expected is None:
            assert row.shift is None
            continue
        assert row.shift is not None
        num_siblings, mean, largest, largest_of = expected
        assert (row.shift.num_siblings, row.shift.largest_of) == (num_siblings, largest_of)
        assert row.shift.mean == pytest.approx(mean, abs=1e-5)
        assert row.shift.largest == pytest.approx(largest, abs=1e-5)
        assert row.shift.num_sign_changes == 0
    (suspicion,) = failures.suspicions
    assert (suspicion.code, suspicion.count) == ("low_reward_after_error", 1)
    (suspect,) = suspicion.examples
    assert (suspect.trajectory_id, suspect.reward, suspect.cause) == ("0.0", 0.0, "model 404")


def test_read_again_from_disk_the_report_is_the_same(injected: Workspace, arkdev: Command) -> None:
    run = injected.run(inject=INJECT, seed=SEED, num_generations=4)
    shown = arkdev("show", "latest", "--json").document["run"]["summary"]["failures"]
    assert shown == run.summary.to_json()["failures"]
    text = " ".join(arkdev("show", "latest").out.split())
    assert "0.0: reward 0 after model 404: is that meant?" in text
    assert "1 × model 404, injected: made good by another attempt" in text


def test_a_resumed_run_tells_the_same(injected: Workspace) -> None:
    whole = injected.run(inject=INJECT, seed=SEED, num_generations=4, concurrency=1)
    folder = cut_short(whole.outcome.folder, num_groups=1)
    again = injected.run(resume=folder.name)
    assert again.summary.failures == whole.summary.failures
