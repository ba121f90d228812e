"""Where spans are sent: OTLP collectors, ARK Tracing, CozeLoop; and what goes wrong on the way."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from arkdev.flows import tracing
from tests.integration.loopback import listening
from tests.integration.otlp_server import collector
from tests.integration.workspace import Command, Run, Workspace, job_yaml

OBSERVED = """
    import os, time
    from arkdev import rollout
    from arkdev.observe.tracing import coze_monitor, observe

    @observe(span_type="tool")
    def tool(key):
        return {"used": key}

    @rollout
    @coze_monitor
    def answer(context, proxy, sample):
        tool(os.environ.get("SEARCH_KEY", "none"))
        client = proxy.rollout_client()
        client.chat.completions.create(model="m", messages=sample.model_dump()["messages"])
"""
SPANS_OF_A_ROLLOUT = 4
"""The attempt, its tool, its model call, its grader."""
KEY = "sk-search-0123456789"


@pytest.fixture(autouse=True)
def no_exporters(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OTEL_EXPORTER_OTLP_ENDPOINT", "COZELOOP_WORKSPACE_ID", "ARK_TRACE_AK"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def observed(workspace: Workspace) -> Workspace:
    workspace.write("plugins/rollout.py", OBSERVED)
    pipeline = {
        "rollout": {"plugin": "plugins.rollout:answer", "envs": {"SEARCH_KEY": KEY}},
        "graders": ["plugins.grader:one"],
    }
    workspace.write("job.yaml", job_yaml(custom_rl_pipeline=pipeline))
    return workspace


def test_spans_reach_an_otlp_collector_with_their_ids_and_without_secrets(
    observed: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    observed.samples(*(f"hello {number}" for number in range(64)))
    with collector() as server:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", server.url)
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-api-key=otlp-key-123456")
        monkeypatch.setenv("OTEL_SERVICE_NAME", "weather-team")
        run = observed.run(trace=True, num_generations=4, concurrency=128)
        spans, headers = server.told()["spans"], server.told()["headers"]
    assert len(spans) == 64 * 4 * SPANS_OF_A_ROLLOUT
    assert headers and all(each == {"x-api-key": "otlp-key-123456"} for each in headers)
    assert KEY not in json.dumps(spans)
    assert tracing_counts(run) == [(len(spans), 0, "")]
    written = {s.span_id: s for name in ids(run) for s in run.reader.spans(name)}
    for span in spans:
        kept = written[span["span_id"]]
        assert (span["trace_id"], span["name"]) == (kept.trace_id, kept.name)
        assert span["parent_span_id"] == (kept.parent_span_id or "")
        assert span["duration_s"] == pytest.approx(kept.duration_s, abs=1e-5)
        assert span["resource"]["service.name"] == "weather-team"
        assert span["attributes"]["arkdev.trajectory_id"] == kept.trajectory_ids[0]
    call = next(span for span in spans if span["name"] == "chat scripted")
    assert call["attributes"]["gen_ai.operation.name"] == "chat"
    assert call["attributes"]["gen_ai.usage.input_tokens"] > 0
    messages = json.loads(call["attributes"]["gen_ai.input.messages"])
    assert messages[0]["parts"][0]["content"].startswith("hello")
    tool = next(span for span in spans if span["name"] == "tool")
    assert "***" in tool["attributes"]["gen_ai.tool.call.result"]


def ids(run: Run) -> list[str]:
    return [record.trajectory_id for record in run.trajectories]


def tracing_counts(run: Run) -> list[tuple[int, int, str]]:
    assert run.outcome.tracing is not None
    return [(c.num_sent, c.num_lost, c.reason) for c in run.outcome.tracing.counts]


def test_an_exporter_that_fails_at_first_sends_the_later_batches(
    observed: Workspace, monkeypatch: pytest.MonkeyPatch, arkdev: Command
) -> None:
    # field case 10.2
    monkeypatch.setattr("arkdev.observe.span_export.BATCH_SIZE", 8)
    monkeypatch.setattr("arkdev.observe.span_export.EVERY_S", 60.0)  # the first batch is a full one
    observed.samples(*(f"hello {number}" for number in range(16)))
    with collector("refuse", "1") as server:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", f"{server.url}/v1/traces")
        told = arkdev("test", "plugin", "--json")
        assert len(server.spans) == 16 * SPANS_OF_A_ROLLOUT - 8
    assert told.exit_code == 0
    [warning] = [line for line in told.err.splitlines() if line.startswith("warning")]
    assert f"8 of 64 spans did not reach {server.url}/v1/traces" in warning
    assert "400" in warning
    assert told.document["trace"]["receivers"][0]["num_lost"] == 8
    assert told.document["summary"]["reward"]["mean"] == 1.0


@pytest.mark.parametrize("fault", ["raises", "hangs", "is gone"])
def test_a_broken_collector_changes_neither_results_nor_time(
    observed: Workspace, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    # field case 10.2
    monkeypatch.setattr("arkdev.flows.tracing.CLOSE_S", 0.2)
    observed.write("plugins/rollout.py", OBSERVED.replace("tool(os", "time.sleep(0.4); tool(os"))
    observed.samples(*(f"hello {number}" for number in range(32)))
    plain = shortest_s(observed.run(concurrency=16))
    with collector(*(["hang"] if fault == "hangs" else [])) as server:
        url = "http://127.0.0.1:1" if fault == "is gone" else server.url
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", url)
        if fault == "raises":
            monkeypatch.setattr("arkdev.observe.otlp.OtlpReceiver.send", raises)
        run = observed.run(concurrency=16)
    assert run.rewards == [(1.0,)] * 32
    [(num_sent, num_lost, reason)] = tracing_counts(run)
    assert (num_sent, num_lost) == (0, 32 * SPANS_OF_A_ROLLOUT)
    assert reason
    assert run.outcome.tracing is not None
    assert len(run.outcome.tracing.warnings) == 1
    assert shortest_s(run) < plain * 1.05 + 0.01


def raises(*_: object) -> str:
    raise RuntimeError("the exporter is broken")


def shortest_s(run: Run) -> float:
    """What a rollout takes; other work on the machine can only lengthen it."""
    return min(record.duration_s for record in run.trajectories)


def test_the_end_does_not_wait_for_a_collector_that_hangs(
    observed: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    # field case 10.2: the whole process, its exit included
    with collector("hang") as server:
        process = observed.start("test", "plugin", OTEL_EXPORTER_OTLP_ENDPOINT=server.url)
        _, err = process.communicate(timeout=60)
    assert process.returncode == 0
    assert b"warning: 4 of 4 spans did not reach" in err
    assert err.count(b"warning") == 1


def test_ctrl_c_with_a_collector_that_hangs_blames_no_plugin_and_says_what_is_lost(
    observed: Workspace,
) -> None:
    observed.write(
        "plugins/rollout.py",
        """
        import asyncio
        from arkdev import rollout
        from arkdev.observe.tracing import observe

        @observe
        def tool():
            print("asleep")

        @rollout
        async def answer(context, proxy, sample):
            tool()
            await asyncio.sleep(600)
        """,
    )
    with collector("hang") as server:
        process = observed.start("test", "plugin", OTEL_EXPORTER_OTLP_ENDPOINT=server.url)
        wait_until(lambda: any("asleep" in path.read_text("utf-8") for path in logs_of(observed)))
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert b"blocks the event loop" not in err
    assert b"warning: 2 of 2 spans did not reach" in err


def logs_of(workspace: Workspace) -> list[Path]:
    return list(workspace.root.glob("runs/*/logs/plugin.jsonl"))


def wait_until(holds: Callable[[], bool]) -> None:
    ends_at = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < ends_at
        time.sleep(0.05)


def test_a_collector_that_cannot_be_reached_costs_little_and_the_reason_is_true(
    observed: Workspace, monkeypatch: pytest.MonkeyPatch, arkdev: Command
) -> None:
    for url, reason in (("http://user:pw-0123456@127.0.0.1:1", "refused"), ("503", "Unavailable")):
        with collector("refuse", "99", "503") as server:
            monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", server.url if url == "503" else url)
            told = arkdev("test", "plugin", "--json")
        [warning] = [line for line in told.err.splitlines() if line.startswith("warning")]
        assert reason in warning
        assert "pw-0123456" not in told.err + told.out
        assert told.exit_code == 0


def test_ark_tracing_gets_spans_by_the_log_services_otlp_interface(
    observed: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = {"ARK_TRACE_AK": "AKTP-0123456", "ARK_TRACE_SK": "sk-trace-0123456"}
    for name, value in keys.items():
        monkeypatch.setenv(name, value)
    with collector() as server:
        monkeypatch.setenv("ARKDEV_ARK_TRACE_ENDPOINT", f"{server.url}/v1/traces")
        monkeypatch.setenv("ARKDEV_ARK_TRACE_TOPIC", "topic-1")
        run = observed.run()
        told = server.told()
    assert tracing_counts(run) == [(SPANS_OF_A_ROLLOUT, 0, "")]
    assert told["headers"] == [
        {
            "x-tls-otel-tracetopic": "topic-1",
            "x-tls-otel-ak": keys["ARK_TRACE_AK"],
            "x-tls-otel-sk": keys["ARK_TRACE_SK"],
            "x-tls-otel-region": "cn-beijing",
        }
    ]
    assert {span["attributes"]["arkdev.trajectory_id"] for span in told["spans"]} == {"0.0"}


def test_ark_tracing_without_a_topic_sends_nothing_and_says_what_is_missing(
    observed: Workspace, monkeypatch: pytest.MonkeyPatch, arkdev: Command
) -> None:
    monkeypatch.setenv("ARK_TRACE_AK", "AKTP-0123456")
    monkeypatch.setenv("ARK_TRACE_SK", "sk-trace-0123456")
    told = arkdev("test", "plugin", "--json")
    assert told.document["trace"] is None
    [note] = [line for line in told.err.splitlines() if line.startswith("note")]
    assert "ARKDEV_ARK_TRACE_TOPIC" in note
    assert "sk-trace" not in told.err


def test_cozeloop_gets_spans_through_its_own_library(
    observed: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("cozeloop")
    with listening(lambda _number, _body: (200, {"code": 0, "msg": ""})) as server:
        monkeypatch.setenv("COZELOOP_API_BASE_URL", server.url)
        monkeypatch.setenv("COZELOOP_WORKSPACE_ID", "workspace-1")
        monkeypatch.setenv("COZELOOP_API_TOKEN", "pat-0123456789")
        run = observed.run()
        requests = list(server.requests)
    spans = [span for _, _, body in requests for span in body["spans"]]
    assert tracing_counts(run) == [(SPANS_OF_A_ROLLOUT, 0, "")]
    assert {(path, key) for path, key, _ in requests} == {
        ("/v1/loop/traces/ingest", "Bearer pat-0123456789")
    }
    by_name = {span["span_name"]: span for span in spans}
    root = by_name["invoke_agent answer"]
    assert set(by_name) == {"invoke_agent answer", "tool", "chat scripted", "grade one"}
    assert {span["trace_id"] for span in spans} == {root["trace_id"]}
    assert root["parent_id"] == "0"
    for name in ("tool", "chat scripted", "grade one"):
        assert by_name[name]["parent_id"] == root["span_id"]
    assert (by_name["tool"]["span_type"], by_name["chat scripted"]["span_type"]) == (
        "tool",
        "model",
    )
    assert root["tags_string"]["user_id"] == "test_service"
    assert by_name["chat scripted"]["tags_long"]["tokens"] > 0
    assert "hello" in by_name["chat scripted"]["input"]
    assert KEY not in json.dumps(spans)
    assert "***" in by_name["tool"]["output"]


def test_cozeloop_that_refuses_is_counted(
    observed: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("cozeloop")
    with listening(lambda _number, _body: (500, {})) as server:
        monkeypatch.setenv("COZELOOP_API_BASE_URL", server.url)
        monkeypatch.setenv("COZELOOP_WORKSPACE_ID", "workspace-1")
        monkeypatch.setenv("COZELOOP_API_TOKEN", "pat-0123456789")
        run = observed.run()
    assert run.exit_code == 0
    [(num_sent, num_lost, reason)] = tracing_counts(run)
    assert (num_sent, num_lost) == (0, SPANS_OF_A_ROLLOUT)
    assert reason


def test_without_cozeloop_its_decorator_and_variables_do_nothing_and_say_nothing(
    observed: Workspace, monkeypatch: pytest.MonkeyPatch, arkdev: Command
) -> None:
    monkeypatch.setattr(tracing, "_has", lambda module: module != "cozeloop")
    monkeypatch.setenv("COZELOOP_WORKSPACE_ID", "workspace-1")
    monkeypatch.setenv("COZELOOP_API_TOKEN", "pat-0123456789")
    told = arkdev("test", "plugin", "--json")
    assert (told.exit_code, told.document["trace"]) == (0, None)
    assert "coze" not in told.err.lower()


def test_asking_for_traces_at_a_collector_without_the_extra_is_a_clear_error(
    observed: Workspace, monkeypatch: pytest.MonkeyPatch, arkdev: Command
) -> None:
    monkeypatch.setattr(tracing, "_has", lambda module: False)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
    told = arkdev("test", "plugin", "--trace")
    assert told.exit_code == 2
    assert 'pip install "arkdev[trace]"' in told.err
    told = arkdev("test", "plugin", "--json")  # nobody asked: nothing is traced, nothing said
    assert (told.exit_code, told.document["trace"]) == (0, None)
    assert "OpenTelemetry" not in told.err
