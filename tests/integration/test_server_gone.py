"""A server that dies in the middle of a run: the run stops and says so."""

from __future__ import annotations

from typing import Any

import pytest

from arkdev.errors import EndpointUnreachableError, ExitCode
from arkdev.runs.reader import RunReader, list_runs
from tests.integration.loopback import listening
from tests.integration.workspace import Workspace
from tests.running import answer


def gone_after(num_good: int, *, back_at: int | None = None) -> Any:
    """A policy: hangs up without an answer from one request on, perhaps until another."""

    def policy(number: int, _body: dict[str, Any]) -> tuple[int, Any]:
        if num_good < number and (back_at is None or number < back_at):
            return 0, None
        return 200, answer("fine")

    return policy


def test_the_run_stops_when_nothing_answers_any_more(workspace: Workspace) -> None:
    workspace.samples(*[f"question {number}" for number in range(200)])
    with (
        listening(gone_after(10)) as server,
        pytest.raises(EndpointUnreachableError) as caught,
    ):
        workspace.run(endpoint=f"{server.url}/v1", model="m", concurrency=4)
    assert "model calls in a row got no answer, so the run was stopped" in caught.value.message
    assert caught.value.exit_code == ExitCode.UNREACHABLE
    assert len(server.requests) < 10 + 3 * (16 + 2 * 4)
    (run,) = list_runs(workspace.root / "runs")
    assert run.status == "stopped"
    assert sum(1 for _ in RunReader(run.folder).groups()) >= 9


def test_a_server_that_comes_back_stops_nothing(workspace: Workspace) -> None:
    workspace.samples(*[f"question {number}" for number in range(40)])
    with listening(gone_after(10, back_at=40)) as server:
        run = workspace.run(endpoint=f"{server.url}/v1", model="m", concurrency=4)
    assert run.reader.status == "finished"
    assert run.summary.verdicts["success"] >= 30
