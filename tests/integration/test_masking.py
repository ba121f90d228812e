"""A key that finds its way into an answer, a metric or a result shows nowhere."""

from __future__ import annotations

import pytest

from tests.integration.workspace import Command, Workspace, job_yaml

KEY = "sk-live-0123456789abcdef"

LEAKS = """
    import os
    from arkdev import RolloutResult, SingleGraderResult, rollout, single_grader

    @rollout
    def answer(context, proxy, sample):
        KEY = os.environ["LEAKED"]
        client = proxy.rollout_client()
        messages = [*sample.model_dump()["messages"], {"role": "user", "content": KEY}]
        client.chat.completions.create(model="m", messages=messages)
        return RolloutResult(extra={"note": KEY})

    @single_grader
    def one(context, sample, trajectory):
        return SingleGraderResult(reward=1.0, metrics={os.environ["LEAKED"]: 1.0})
"""


@pytest.mark.parametrize("arguments", [(), ("--json",), ("--sample", "0")])
def test_the_key_shows_nowhere(
    workspace: Workspace,
    arkdev: Command,
    arguments: tuple[str, ...],
) -> None:
    workspace.write("plugins/rollout.py", LEAKS)
    plugins = {
        "rollout": {"plugin": "plugins.rollout:answer", "envs": {"LEAKED": KEY}},
        "graders": ["plugins.rollout:one"],
    }
    workspace.write("job.yaml", job_yaml(custom_rl_pipeline=plugins))
    told = arkdev("test", "plugin", *arguments)
    assert told.exit_code == 0, told.err
    assert KEY not in told.out + told.err
    assert "***" in told.out
    told = arkdev("test", "plugin", "--sample", "0", "--json")
    assert KEY not in told.out
    assert told.document["trajectories"][0]["extra"] == {"note": "***"}
