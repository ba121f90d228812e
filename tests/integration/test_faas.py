"""``--faas``: plugins in instances that are child processes."""

from __future__ import annotations

import itertools
import json
import os
import signal
import time
from datetime import datetime

import jsonschema
import pytest

from arkdev.cli.documents import json_schema
from arkdev.errors import ExitCode, PluginLoadError, UsageError
from arkdev.faas_emulator.requirement_files.requirements import RequirementsError
from arkdev.flows.test_plan import plan_test
from arkdev.flows.test_request import PluginTestRequest
from arkdev.runs.reader import RunReader
from arkdev.runs.records import Verdict
from tests.integration.debugging import rehearse
from tests.integration.faas_runs import OPENAI, in_both, logged, records
from tests.integration.workspace import job_yaml

ROLLOUT = """
    import logging
    from arkdev import RolloutResult, rollout

    log = logging.getLogger("plugins.rollout")

    @rollout
    async def answer(context, proxy, sample):
        client = proxy.async_rollout_client()
        messages = [message.model_dump() for message in sample.messages]
        print("asking", sample.extra["number"], "é")
        for _ in range(2):
            completion = await client.chat.completions.create(model="m", messages=messages)
            messages.append(completion.choices[0].message.model_dump(exclude_none=True))
            messages.append({"role": "user", "content": "are you sure?"})
        log.info("asked %s", sample.extra["number"])
        if sample.extra["number"] == 3:
            raise ValueError("no such town")
        return RolloutResult(extra={"phase": context.phase, "text": messages[-2]["content"]})
"""
GRADER = """
    from arkdev import SingleGraderResult, single_grader

    @single_grader
    def one(context, sample, trajectory):
        print("grading", len(trajectory.messages))
        if sample.extra["number"] == 2:
            return {"reward": "much"}
        size = len(trajectory.extra["text"])
        return SingleGraderResult(reward=size % 5 / 4, metrics={"size": size})
"""

RETURNS_AT_ONCE = """
    from arkdev import RolloutResult, rollout

    @rollout
    async def answer(context, proxy, sample):
        return RolloutResult(extra={"text": ""})
"""


@pytest.fixture
def workspace(workspace):
    """Four samples through an asynchronous rollout and a synchronous grader."""
    workspace.write("requirements.txt", OPENAI)
    workspace.write("plugins/rollout.py", ROLLOUT)
    workspace.write("plugins/grader.py", GRADER)
    number_samples(workspace, 4)
    return workspace


def number_samples(workspace, count):
    workspace.lines(
        {"messages": [{"role": "user", "content": f"hello {n}"}], "extra": {"number": n}}
        for n in range(count)
    )


def request(workspace, **more):
    return PluginTestRequest(start=workspace.root, faas=True, faas_engine="process", **more)


def test_the_records_of_a_run_are_those_of_the_run_in_process_but_for_times(workspace):
    here, apart = in_both(workspace, num_generations=2, seed=5)
    assert records(apart.outcome.folder) == records(here.outcome.folder)
    assert [t.verdict for t in apart.trajectories][-2:] == [Verdict.FAILURE] * 2
    assert apart.exit_code == here.exit_code == ExitCode.SOME_FAILED
    assert apart.rewards == here.rewards and apart.rewards[2] == (None, None)
    assert logged(apart) == logged(here)


def test_plugins_that_a_job_py_names_by_function_run_in_instances_too(workspace):
    workspace.write(
        "job.py",
        """
        from ark_sdk.resources.model_customization_job import ModelCustomizationJob
        from ark_sdk.resources.pipeline_plugin import GRPOPipeline
        from ark_sdk.types.model_customization_job import CustomizationType
        from plugins.grader import one
        from plugins.rollout import answer

        job = ModelCustomizationJob(
            customization_type=CustomizationType.GRPO,
            model_reference={"foundation_model": {"name": "m", "model_version": "1"}},
            data={"training_set": {"local_files": ["data.jsonl"]}},
            custom_rl_pipeline=GRPOPipeline(rollout=answer, graders=[one]),
        )
        """,
    )
    ran = workspace.run(
        faas=True, faas_engine="process", job=workspace.root / "job.py", num_generations=1
    )
    assert {call.function for call in ran.reader.invocations()} == {"answer", "one"}


def test_calls_and_instances_are_written_down_and_summed_up(workspace):
    run = workspace.run(faas=True, faas_engine="process", concurrency=2)
    calls, instances = list(run.reader.invocations()), list(run.reader.instances())
    assert {call.function for call in calls} == {"answer", "one"}
    rollouts = [call for call in calls if call.grader is None]
    assert {(call.trajectory_ids, call.attempt) for call in rollouts} >= {
        (("0.0",), 0),
        (("3.0",), 3),
    }
    assert {call.grader for call in calls} == {None, "one"}
    assert {instance.ending for instance in instances} == {"closed"}
    answer, one = run.summary.functions
    assert (answer.name, answer.instance, one.name) == ("answer", "process", "one")
    assert answer.num_calls == len(rollouts) == 7  # the one that fails has four attempts
    assert answer.statuses == {} and answer.endings == {}
    assert answer.max_instances == answer.num_instances == 1
    assert answer.service.p50_s > 0
    assert answer.queue.max_s < 1 + max(call.cold_start_s for call in rollouts)
    assert answer.memory_peak_mb > 10 and answer.cpu_s > 0
    assert "services" not in {call.function for call in calls} and run.summary.services == ()


def test_runtime_knobs_are_real(workspace):
    workspace.write(
        "plugins/rollout.py",
        f"""
        import asyncio, os
        from pathlib import Path
        from arkdev import RolloutResult, Runtime, rollout

        SEEN = Path({str(workspace.root / "seen")!r})
        running = most = 0

        @rollout(runtime=Runtime(max_concurrency=2, min_replicas=1, max_replicas=2))
        async def answer(context, proxy, sample):
            global running, most
            running += 1
            most = max(most, running)
            (SEEN / str(os.getpid())).touch()
            while len(os.listdir(SEEN)) < 2:  # until the other instance has come up
                await asyncio.sleep(0.05)
            await asyncio.sleep(0.4)
            running -= 1
            return RolloutResult(extra={{"text": "", "most": most, "pid": os.getpid()}})
        """,
    )
    (workspace.root / "seen").mkdir()
    number_samples(workspace, 12)
    run = workspace.run(faas=True, faas_engine="process", concurrency=12)
    extras = [trajectory.extra for trajectory in run.trajectories]
    assert max(extra["most"] for extra in extras) == 2
    assert len({extra["pid"] for extra in extras}) == 2
    answer = run.summary.functions[0]
    assert (answer.max_instances, answer.max_replicas, answer.max_concurrency) == (2, 2, 2)
    assert answer.queue.max_s > 0.4  # at most four at once
    calls = [call for call in run.reader.invocations() if call.function == "answer"]
    assert max(call.num_concurrent for call in calls) == 2


def test_a_grader_has_no_more_calls_under_way_than_its_request_concurrency(workspace):
    workspace.write("plugins/rollout.py", RETURNS_AT_ONCE)
    workspace.write(
        "plugins/grader.py",
        """
        import time
        from arkdev import Runtime, single_grader

        @single_grader(runtime=Runtime(request_concurrency=2))
        def one(context, sample, trajectory):
            time.sleep(0.1)
            return 1.0
        """,
    )
    number_samples(workspace, 8)
    run = workspace.run(faas=True, faas_engine="process")
    changes = []
    for call in run.reader.invocations():
        if call.function == "one":
            begun = datetime.fromisoformat(call.at).timestamp()
            changes += [(begun, 1), (begun + call.queued_s + call.service_s, -1)]
    under_way = [*itertools.accumulate(change for _, change in sorted(changes))]
    assert max(under_way) == 2


def test_a_rollout_that_ends_its_process_fails_with_the_cause_and_others_go_on(workspace):
    workspace.write(
        "plugins/rollout.py",
        """
        import os
        from arkdev import RolloutResult, Runtime, rollout

        @rollout(runtime=Runtime(max_concurrency=1, max_replicas=2))
        async def answer(context, proxy, sample):
            if sample.extra["number"] == 1:
                os._exit(3)
            return RolloutResult(extra={"text": ""})
        """,
    )
    run = workspace.run(faas=True, faas_engine="process")
    verdicts = [trajectory.verdict for trajectory in run.trajectories]
    assert verdicts == [Verdict.SUCCESS, Verdict.FAILURE, Verdict.SUCCESS, Verdict.SUCCESS]
    failed = run.trajectories[1].attempts
    assert len(failed) == 4
    assert "InstanceError: the instance of answer crashed: exit code 3" in failed[0].error
    assert failed[0].where.endswith("plugins/rollout.py:5")
    answer = run.summary.functions[0]
    assert answer.statuses == {"crashed": 4}
    assert answer.endings == {"crashed (exit code 3)": 4}


def test_a_call_that_takes_too_long_ends_its_instance_and_leaves_others_alone(workspace):
    workspace.write(
        "plugins/rollout.py",
        """
        import os, time
        from arkdev import RolloutResult, Runtime, rollout

        @rollout(runtime=Runtime(max_concurrency=1, max_replicas=2, timeout=2))
        def answer(context, proxy, sample):
            while sample.extra["number"] == 1:
                time.sleep(0.05)
            return RolloutResult(extra={"text": "", "pid": os.getpid()})
        """,
    )
    run = workspace.run(faas=True, faas_engine="process")
    attempts = run.trajectories[1].attempts
    assert "PluginTimeoutError: answer took longer than 2 s" in attempts[0].error
    answer = run.summary.functions[0]
    assert answer.statuses == {"timeout": 4} and answer.endings == {"timeout": 4}
    assert run.summary.limits.num_timed_out == 4 and run.summary.limits.num_left_running == 0
    ended = {each.instance_id: each for each in run.reader.instances()}
    lost = [call for call in run.reader.invocations() if call.status == "timeout"]
    assert {ended[call.instance_id].ending for call in lost} == {"timeout"}
    others = [call for call in run.reader.invocations() if call.function == "answer"]
    assert [call.status for call in others].count("ok") == 3


def test_a_plugin_that_cannot_be_imported_is_told_once_before_anything_runs(workspace, arkdev):
    workspace.write("plugins/grader.py", "import numpy\n" + GRADER.replace("\n    ", "\n"))
    told = arkdev("test", "plugin", "--faas", "--faas-engine", "process")
    assert told.exit_code == ExitCode.USAGE
    assert told.err.count("No module named 'numpy'") == 1
    assert "plugins/grader.py:1" in told.err
    (folder,) = (workspace.root / "runs").iterdir()
    assert not (folder / "invocations.jsonl").exists()


def test_each_function_has_its_own_variables_and_nothing_of_this_machine(workspace, monkeypatch):
    monkeypatch.setenv("ARKDEV_TEST_HOST_VARIABLE", "from the host")
    job = json.loads(job_yaml())
    pipeline = job["custom_rl_pipeline"]
    pipeline["rollout"]["plugin"]["envs"] = {"TOWN_KEY": "secret-of-rollout"}
    pipeline["graders"][0]["plugin"]["envs"] = {"TOWN_KEY": "secret-of-grader"}
    workspace.write("job.yaml", json.dumps(job))
    read = 'print("has", os.environ.get("TOWN_KEY"), "ARKDEV_TEST_HOST_VARIABLE" in os.environ)'
    workspace.write(
        "plugins/rollout.py",
        f"""
        import os
        from arkdev import RolloutResult, rollout

        @rollout
        async def answer(context, proxy, sample):
            {read}
            return RolloutResult(extra={{"size": len(os.environ["TOWN_KEY"])}})
        """,
    )
    workspace.write(
        "plugins/grader.py",
        f"""
        import os
        from arkdev import single_grader

        @single_grader
        def one(context, sample, trajectory):
            {read}
            return len(os.environ["TOWN_KEY"]) - trajectory.extra["size"]
        """,
    )
    run = workspace.run(faas=True, faas_engine="process")
    assert run.rewards == [(-1.0,)] * 4
    assert {line.text for line in run.reader.logs()} == {"has *** False"}
    for path in run.outcome.folder.rglob("*.json*"):
        assert "secret-of" not in path.read_text(encoding="utf-8")


def test_graders_reach_the_scripted_judge_as_in_process(workspace):
    workspace.write(
        "plugins/grader.py",
        """
        import os
        from openai import OpenAI
        from arkdev import single_grader

        ARK = "https://ark.cn-beijing.volces.com/api/v3"
        named = OpenAI(base_url=ARK, api_key="k")

        @single_grader
        def one(context, sample, trajectory):
            url = os.getenv("ARK_BASE_URL", ARK)
            own = OpenAI(base_url=url, api_key=os.getenv("ARK_API_KEY"))
            asked = [{"role": "user", "content": "Rate the answer from 0 to 1."}]
            texts = [
                client.chat.completions.create(model="judge", messages=asked)
                .choices[0]
                .message.content
                for client in (own, named)
            ]
            return float(len(texts[0]) + len(texts[1]))
        """,
    )
    here, apart = in_both(workspace, limit=2)
    assert apart.rewards == here.rewards and apart.rewards[0][0] > 0
    assert apart.outcome.judge_calls == here.outcome.judge_calls == 4


def test_group_rollouts_and_group_graders_run_in_instances(workspace):
    workspace.write(
        "plugins/rollout.py",
        """
        from arkdev import GroupRolloutResult, SingleResponse, group_rollout

        @group_rollout
        async def answer(context, proxy, sample, n_sample):
            client = proxy.async_rollout_client()
            first = await client.responses.create(model="m", input=sample.messages[0].content)
            responses = []
            for number in range(n_sample):
                last = await client.responses.create(
                    model="m", input=f"more {number}", previous_response_id=first.id
                )
                responses.append(SingleResponse(id=last.id, extra={"number": number}))
            return GroupRolloutResult(responses=responses)
        """,
    )
    workspace.write(
        "plugins/grader.py",
        """
        from arkdev import group_grader

        @group_grader
        async def one(context, sample, trajectories):
            return [len(t.messages) + t.extra["number"] for t in trajectories]
        """,
    )
    here, apart = in_both(workspace, num_generations=3, limit=2)
    assert records(apart.outcome.folder) == records(here.outcome.folder)
    assert len(apart.rewards[0]) == 3 and None not in apart.rewards[0]


def test_raw_and_synchronous_clients_reach_their_session(workspace):
    workspace.write(
        "plugins/rollout.py",
        """
        from openai import OpenAI
        from arkdev import RolloutResult, rollout

        @rollout
        def answer(context, proxy, sample):
            messages = [message.model_dump() for message in sample.messages]
            client = proxy.rollout_client()
            client.chat.completions.create(model="m", messages=messages)
            raw = OpenAI(base_url=proxy.url, api_key=proxy.jwt_token)
            proxy.update_state_from_messages(messages)
            completion = raw.chat.completions.create(
                model="m", messages=messages, extra_body=proxy.get_extra_body()
            )
            proxy.process_completion(completion)
            usage = proxy.usage.model_dump()
            return RolloutResult(extra={"text": proxy.messages[-1].content, "usage": usage})
        """,
    )
    here, apart = in_both(workspace, limit=2)
    expected = records(here.outcome.folder)
    for trajectory in expected["trajectories.jsonl"].values():
        trajectory["warnings"].remove("client_built_per_rollout: OpenAI")  # seen here alone
    assert records(apart.outcome.folder) == expected
    assert {turn.via for t in apart.trajectories for turn in t.turns} == {"wrapped", "raw"}


def test_faults_of_models_rollouts_and_graders_are_injected_alike(workspace):
    inject = "model.429=20%,rollout.raise=20%,grader.timeout=20%"
    here, apart = in_both(workspace, num_generations=4, seed=3, inject=inject)
    assert apart.summary.failures.num_injected == here.summary.failures.num_injected > 0
    assert apart.rewards == here.rewards


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ({"record": "tape.jsonl"}, "--record sees"),
        ({"inject": "tool.503=10%"}, "HTTP calls of plugins"),
        ({"stall_threshold_s": 0.2}, "--stall-threshold"),
        ({"uses_real_ark_sdk": True}, "--real-ark-sdk"),
    ],
)
def test_what_needs_the_plugins_in_this_process_is_refused(workspace, flags, words):
    if "record" in flags:
        flags = {"record": workspace.root / "tape.jsonl"}
    with pytest.raises(UsageError, match=words):
        plan_test(request(workspace, **flags))
    assert not (workspace.root / "runs").exists()


def test_flags_of_functions_without_faas_are_refused(workspace, arkdev):
    for flag, value in (("--faas-engine", "process"), ("--network", "open")):
        told = arkdev("test", "plugin", flag, value)
        assert told.exit_code == ExitCode.USAGE and f"{flag} is for functions" in told.err
    told = arkdev("test", "plugin", "--faas", "--replay", "tape.jsonl")
    assert told.exit_code == ExitCode.USAGE and "--replay runs" in told.err


def test_processes_cannot_hold_a_network_policy_and_say_so(workspace, arkdev):
    told = arkdev("test", "plugin", "--faas", "--faas-engine", "process", "--network", "host-only")
    assert told.exit_code == ExitCode.USAGE and "--faas-engine container" in told.err


def test_limits_of_tools_are_said_to_have_no_effect(workspace):
    workspace.write("arkworkspace.toml", '[tools."api.example.com"]\nmax_in_flight = 2\n')
    notes = plan_test(request(workspace)).notes
    assert any("api.example.com" in note and "no effect" in note for note in notes)


def test_lines_that_no_function_can_install_are_refused_before_anything(workspace):
    workspace.write("requirements.txt", "-e ./lib\n")
    with pytest.raises(RequirementsError, match="requirements"):
        plan_test(request(workspace))


def test_an_engine_that_is_asked_for_and_does_not_answer_is_an_error(
    workspace, arkdev, monkeypatch
):
    monkeypatch.setenv("DOCKER_HOST", f"unix://{workspace.root}/none.sock")
    told = arkdev("test", "plugin", "--faas", "--faas-engine", "container")
    assert told.exit_code == ExitCode.UNREACHABLE
    assert not (workspace.root / "runs").exists()


def test_without_an_engine_instances_are_processes_and_it_is_said(workspace, arkdev, monkeypatch):
    monkeypatch.setenv("DOCKER_HOST", f"unix://{workspace.root}/none.sock")
    told = arkdev("test", "plugin", "--faas", "--limit", "2")
    assert told.exit_code == ExitCode.OK
    assert "no containers: " in told.err and "instances are child processes" in told.err


def test_the_report_and_the_document_have_a_section_of_functions(workspace, arkdev):
    told = arkdev("test", "plugin", "--faas", "--faas-engine", "process", "--json", "--limit", "2")
    jsonschema.validate(told.document, json_schema("test"))
    functions = told.document["summary"]["functions"]
    assert [function["name"] for function in functions] == ["answer", "one"]
    shown = arkdev("show", "latest")
    assert "FaaS" in shown.out and "waited for a cold start" in shown.out
    again = arkdev("show", "latest", "--json").document["run"]["summary"]["functions"]
    assert again == functions


def test_an_interrupted_run_leaves_nothing_and_goes_on_where_it_was(workspace):
    workspace.write(
        "plugins/rollout.py",
        f"""
        import asyncio, os
        from pathlib import Path
        from arkdev import RolloutResult, rollout

        IS_RESUMED = Path({str(workspace.root / "resumed")!r})

        @rollout
        async def answer(context, proxy, sample):
            print("pid", os.getpid())
            while sample.extra["number"] >= 2 and not IS_RESUMED.exists():
                await asyncio.sleep(0.05)
            return RolloutResult(extra={{"text": "abc"}})
        """,
    )
    run = workspace.start("test", "plugin", "--faas", "--faas-engine", "process", "--out", "r")
    log = workspace.root / "r" / "logs" / "plugin.jsonl"
    groups = workspace.root / "r" / "groups.jsonl"
    limit = time.monotonic() + 60
    while not (log.exists() and groups.exists()) and time.monotonic() < limit:
        time.sleep(0.05)
    run.send_signal(signal.SIGINT)
    run.communicate(timeout=300)
    assert run.returncode == ExitCode.INTERRUPTED
    printed = RunReader(workspace.root / "r").logs()
    pids = {int(line.text.split()[1]) for line in printed if line.text.startswith("pid")}
    assert pids
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
    (workspace.root / "resumed").touch()
    resumed = workspace.run(resume=str(workspace.root / "r"))
    assert resumed.exit_code == ExitCode.SOME_FAILED  # the grader refuses sample 2
    assert [function.name for function in resumed.summary.functions] == ["answer", "one"]
    assert len(resumed.trajectories) == 4
    kept = [call for call in resumed.reader.invocations() if call.grader is None]
    assert sorted(call.trajectory_ids[0] for call in kept) == ["0.0", "1.0", "2.0", "3.0"]


def test_a_rehearsal_in_instances_has_the_records_of_one_in_process(workspace):
    number_samples(workspace, 2)
    job = {"customization_type": "GRPO", "hyperparameters": {"batch_size": 2, "num_steps": 2}}
    workspace.write("job.yaml", job_yaml(**job))
    here = rehearse(workspace, num_generations=2)
    apart = rehearse(workspace, num_generations=2, faas=True, faas_engine="process")
    assert records(apart.outcome.folder) == records(here.outcome.folder)
    assert [s.name for s in apart.outcome.summary.functions] == ["answer", "one"]


def test_the_built_in_rollout_runs_here_and_its_graders_apart(workspace):
    job = json.loads(job_yaml())
    del job["custom_rl_pipeline"]["rollout"]
    workspace.write("job.yaml", json.dumps(job))
    workspace.write(
        "plugins/grader.py",
        """
        from arkdev import single_grader

        @single_grader
        def one(context, sample, trajectory):
            return float(len(trajectory.messages[-1].content))
        """,
    )
    here, apart = in_both(workspace)
    assert records(apart.outcome.folder) == records(here.outcome.folder)
    assert [function.name for function in apart.summary.functions] == ["one"]


def test_a_plugin_load_error_names_the_function(workspace):
    workspace.write("plugins/grader.py", "raise OSError('no disk')\n")
    with pytest.raises(PluginLoadError):
        plan_test(request(workspace))
