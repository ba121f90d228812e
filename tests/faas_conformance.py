"""What every kind of instance keeps to (`arkdev.faas_emulator.instances.InstanceLauncher`).

A test module of one kind takes all of it with ``from tests.faas_conformance import *`` and has one
fixture of its own, `new_launcher`: it takes the folder of a workspace and the functions, and
returns a launcher of them.

What differs from kind to kind is not here: how limits are enforced, what a function sees of the
machine. Instances of kinds that cannot limit memory skip that test.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import re
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent
from typing import Any

import aiohttp
import pytest

from arkdev.errors import InstanceError, PluginResultError
from arkdev.faas_emulator.functions import FunctionSpec
from arkdev.faas_emulator.instances import Instance, InstanceLauncher
from arkdev.faas_emulator.records import InvocationStatus
from arkdev.faas_emulator.worker.answers import answer_of
from arkdev.faas_emulator.worker.log_wire import MAX_LINE_BYTES, OutputLine
from arkdev.plugin.decorators import Plugin, PluginKind
from arkdev.plugin.runtime import PluginInstance, Runtime
from arkdev.plugin.source import RaisedElsewhere

SAMPLE = {"messages": [{"role": "user", "content": "how is it?"}], "extra": {"answer": "fine"}}
TRAJECTORY = {"messages": [*SAMPLE["messages"], {"role": "assistant", "content": "fine"}]}
GRADING = {"context": {}, "sample": SAMPLE, "trajectory": TRAJECTORY}

NewLauncher = Callable[[Path, list[FunctionSpec]], InstanceLauncher]

PLUGINS = '''
    import asyncio
    import logging
    import os
    import subprocess
    import sys
    import threading
    import time

    from arkdev import (
        GroupRolloutResult,
        PluginStatus,
        RolloutResult,
        group_grader,
        group_rollout,
        rollout,
        single_grader,
        single_rollout,
    )

    hoard = []


    @rollout
    def older(context, proxy, sample):
        return RolloutResult(extra={"context": context.phase, "url": proxy.url,
                                    "key": proxy.jwt_token, "headers": proxy.headers,
                                    "set": sorted(sample.model_fields_set),
                                    "asked": sample.messages[0].content, "nan": float("nan")})


    @single_rollout
    async def newer(context, proxy, sample):
        return {"status": "retry", "error": "later", "extra": {"top_p": sample.top_p}}


    @group_rollout
    async def many(context, proxy, sample, n_sample):
        first = proxy.update_state_from_messages(sample.messages)
        return GroupRolloutResult(responses=[{"id": first, "extra": {"i": i}}
                                             for i in range(n_sample)])


    @single_grader
    def one(context, sample, trajectory):
        return float(trajectory.messages[-1].content == sample.extra["answer"])


    @group_grader
    async def all_of_them(context, sample, trajectories):
        return {"rewards": [0.25] * len(trajectories), "metrics": {"count": len(trajectories)}}


    @single_grader
    def do(context, sample, trajectory):
        """Do what the sample asks for, in a thread."""
        return DO[sample.extra["do"]](sample.extra)


    @single_grader
    async def do_async(context, sample, trajectory):
        result = DO[sample.extra["do"]](sample.extra)
        return await result if asyncio.iscoroutine(result) else result


    def fail(extra):
        raise LookupError("no such town")


    def prints(extra):
        name = extra["name"]
        print(f"{name} out")
        print(f"{name} err", file=sys.stderr)
        logging.getLogger("towns").warning("%s logs", name)
        thread = threading.Thread(target=print, args=(f"{name} thread",))
        thread.start()
        thread.join()
        data = f"{name} caf\\u00e9\\n".encode()
        sys.stdout.buffer.write(data[:-2])
        sys.stdout.buffer.flush()
        sys.stdout.buffer.write(data[-2:])
        return 1.0


    def print_and_wait(extra):
        prints(extra)
        time.sleep(extra["s"])
        prints(extra)
        return 1.0


    def child_prints(extra):
        subprocess.run([sys.executable, "-c", "import os; os.write(1, b'of a child \\\\xff\\\\n')"],
                       check=True)
        os.system("echo of a shell >&2")
        return 1.0


    def environment(extra):
        print(sorted(os.environ))
        print(os.environ.get("DECLARED"))
        return 1.0


    def hoards(extra):
        for _ in range(1000):
            hoard.append(bytearray(os.urandom(1) * 2**20))
            time.sleep(0.01)
        return 1.0


    def closes_streams(extra):
        sys.stdout.close()
        os.close(1)
        print("still here")
        return 1.0


    def forks(extra):
        pid = os.fork()
        if pid == 0:
            print("of a fork")
            os._exit(0)
        os.waitpid(pid, 0)
        return 1.0


    def leaves_behind(extra):
        subprocess.Popen(["sleep", "600"], start_new_session=True)
        subprocess.Popen(["sleep", "600"])
        threading.Thread(target=time.sleep, args=(600,)).start()
        return 1.0


    def raises_the_worst(extra):
        raise KeyboardInterrupt("not to be stopped by this")


    def not_json(extra):
        return {"reward": 1.0, "metrics": {"x": "y"}}


    async def sleeps(extra):
        await asyncio.sleep(extra["s"])
        return 1.0


    DO = {
        "fail": fail, "prints": prints, "print_and_wait": print_and_wait,
        "child_prints": child_prints, "environment": environment, "hoards": hoards,
        "closes_streams": closes_streams, "forks": forks, "leaves_behind": leaves_behind,
        "raises_the_worst": raises_the_worst, "not_json": not_json, "sleeps": sleeps,
        "exit": lambda extra: sys.exit(3), "os_exit": lambda extra: os._exit(4),
        "kill": lambda extra: os.kill(os.getpid(), 9),
        "block": lambda extra: time.sleep(extra["s"]) or 1.0, "grade": lambda extra: 1.0,
    }
'''


@dataclass(frozen=True)
class SmallFunction(FunctionSpec):
    """Smaller than what `Runtime.instance` offers: a test must not fill gigabytes."""

    @property
    def memory_mb(self) -> int:
        return 192


@dataclass
class Answered:
    """What an instance answered."""

    status: int
    document: Any
    request_id: str


class Served:
    """One instance, called as the platform does."""

    def __init__(self, instance: Instance, function: FunctionSpec, client: aiohttp.ClientSession):
        self.instance = instance
        self.function = function
        self.lines: list[OutputLine] = []
        self._client = client
        self._ids = itertools.count()

    async def post(self, body: Any, *, request_id: str | None = None) -> Answered:
        name = request_id or f"request-{next(self._ids)}"
        async with self._client.post(
            self.instance.url, json=body, headers={"X-Faas-Request-Id": name}
        ) as response:
            return Answered(
                response.status,
                json.loads(await response.read()),
                response.headers["X-Faas-Request-Id"],
            )

    async def do(self, what: str, *, request_id: str | None = None, **extra: Any) -> Answered:
        """Call a plugin that does what it is asked for."""
        sample = {**SAMPLE, "extra": {"do": what, **extra}}
        return await self.post({**GRADING, "sample": sample}, request_id=request_id)

    def read(self, answered: Answered) -> Any:
        """What the caller of the plugin gets; raises what it raised."""
        plugin = Plugin(kind=self.function.kind, name=self.function.name)
        return answer_of(answered.document, plugin=plugin, root=self.function.root)

    async def said(self, request_id: str, count: int) -> list[OutputLine]:
        """The lines of a request, once there are `count`."""
        return await self.said_where(lambda line: line.request_id == request_id, count)

    async def said_where(self, which: Callable[[OutputLine], bool], count: int) -> list[OutputLine]:
        for _ in range(3000):
            found = [line for line in self.lines if which(line)]
            if len(found) >= count:
                return found
            await asyncio.sleep(0.02)
        raise AssertionError(f"{count} lines wanted of {self.lines}")

    async def end(self) -> Any:
        """Why it ended by itself."""
        for _ in range(1200):
            if (end := await self.instance.ended()) is not None:
                return end
            await asyncio.sleep(0.05)
        raise AssertionError("it goes on")


class Deployment:
    """A workspace whose plugins are served."""

    def __init__(self, root: Path, new_launcher: NewLauncher, client: aiohttp.ClientSession):
        self.root = root
        self.client = client
        self._new_launcher = new_launcher
        self._launcher: InstanceLauncher | None = None
        self.write("plugins/fn.py", PLUGINS)

    def write(self, name: str, text: str) -> None:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(dedent(text), encoding="utf-8")

    def function(
        self,
        reference: str = "plugins.fn:do",
        kind: PluginKind = PluginKind.SINGLE_GRADER,
        *,
        envs: Mapping[str, str] | None = None,
        instance: PluginInstance = PluginInstance.CPU1MEM2,
    ) -> FunctionSpec:
        return SmallFunction(
            name=reference.partition(":")[2],
            reference=reference,
            root=self.root,
            kind=kind,
            runtime=Runtime(instance=instance, timeout=60),
            place=f"{self.root}/plugins/fn.py:1",
            envs=envs or {},
        )

    def launcher(self, *functions: FunctionSpec) -> InstanceLauncher:
        if self._launcher is None:
            self._launcher = self._new_launcher(self.root, list(functions))
        return self._launcher

    async def start(self, reference: str = "plugins.fn:do", *args: Any, **kwargs: Any) -> Served:
        function = self.function(reference, *args, **kwargs)
        served: list[Served] = []
        early: list[OutputLine] = []

        def on_log(line: OutputLine) -> None:
            (served[0].lines if served else early).append(line)

        launcher = self.launcher(function)
        await launcher.prepare()
        instance = await launcher.start(function, on_log=on_log)
        served.append(Served(instance, function, self.client))
        served[0].lines[:0] = early
        return served[0]

    async def close(self) -> None:
        if self._launcher is not None:
            await self._launcher.close()


@pytest.fixture
async def deployment(tmp_path: Path, new_launcher: NewLauncher) -> AsyncIterator[Deployment]:
    root = tmp_path / "workspace"
    async with aiohttp.ClientSession() as client:
        made = Deployment(root, new_launcher, client)
        try:
            yield made
        finally:
            await made.close()


async def test_an_instance_is_ready_when_start_returns_and_says_what_the_import_took(deployment):
    deployment.write("plugins/slow.py", "import time\ntime.sleep(0.3)\nfrom .fn import one\n")
    served = await deployment.start("plugins.slow:one")
    async with deployment.client.get(served.instance.url) as response:
        assert response.status == 200
    assert 0.3 <= served.instance.import_s <= served.instance.ready_s
    usage = await served.instance.usage()
    assert usage.memory_peak_mb is None or 5 < usage.memory_peak_mb < 1000


async def test_an_import_that_fails_is_the_starts_error_with_its_place_in_the_workspace(deployment):
    deployment.write("plugins/broken.py", "x = 1\nprint('on my way')\nx.y()\n")
    with pytest.raises(InstanceError, match="AttributeError: 'int' object") as raised:
        await deployment.start("plugins.broken:one")
    assert raised.value.where == f"{deployment.root}/plugins/broken.py:3"


async def test_a_plugin_that_ends_the_process_while_it_is_imported_is_told(deployment):
    deployment.write("plugins/ends.py", "import os\nprint('bye')\nos._exit(7)\n")
    with pytest.raises(InstanceError, match="exit code 7") as raised:
        await deployment.start("plugins.ends:one")
    assert "bye" in raised.value.hint


@pytest.mark.parametrize(
    "ending",
    [
        "raise ValueError('bad key ' + key)",
        "print('key', key); os._exit(7)",
        "os.write(2, b'key ' + key.encode()); os._exit(7)",
    ],
)
async def test_why_a_start_failed_is_told_without_the_values_of_variables(deployment, ending):
    deployment.write("plugins/tells.py", f"import os\nkey = os.environ['KEY']\n{ending}\n")
    with pytest.raises(InstanceError) as raised:
        await deployment.start("plugins.tells:one", envs={"KEY": "sentinel-1234"})
    told = f"{raised.value.message} {raised.value.hint}"
    assert "key ***" in told and "sentinel" not in told


async def test_a_value_is_masked_where_a_line_is_too_long_to_be_kept_in_one(deployment):
    deployment.write(
        "plugins/long.py",
        f"""
        import os
        from arkdev import single_grader

        @single_grader
        def one(context, sample, trajectory):
            print("x" * {MAX_LINE_BYTES - 6} + os.environ["KEY"])
            return 1.0
        """,
    )
    served = await deployment.start("plugins.long:one", envs={"KEY": "sentinel-1234"})
    await served.post({"context": {}, "sample": SAMPLE, "trajectory": TRAJECTORY}, request_id="r")
    lines = await served.said("r", 2)
    assert lines[-1].data.endswith(b"xxx***")
    assert not [line for line in lines if b"1234" in line.data or b"sent" in line.data]


async def test_a_rollout_is_given_context_proxy_and_sample(deployment):
    served = await deployment.start("plugins.fn:older", PluginKind.SINGLE_ROLLOUT)
    answered = await served.post(
        {
            "context": {"phase": "test", "unknown": 1},
            "proxy": {"url": "http://h/v", "jwt_token": "k", "mode": "inference",
                      "headers": {"a": "b"}, "state": "x"},
            "sample": {**SAMPLE, "top_p": 0.5, "unknown": [1]},
            "unknown": {},
        },
        request_id="mine-1",
    )  # fmt: skip
    assert (answered.status, answered.request_id) == (200, "mine-1")
    extra = served.read(answered).extra
    assert extra.pop("nan") != 0  # not a number came through
    assert extra == {
        "context": "test",
        "url": "http://h/v",
        "key": "k",
        "headers": {"a": "b"},
        "set": ["extra", "messages", "top_p", "unknown"],
        "asked": "how is it?",
    }


async def test_a_single_rollout_may_return_a_status(deployment):
    served = await deployment.start("plugins.fn:newer", PluginKind.SINGLE_ROLLOUT)
    result = served.read(await served.post({"context": {}, "proxy": {}, "sample": SAMPLE}))
    assert (result.status.value, result.error, result.extra) == ("retry", "later", {"top_p": 1.0})


async def test_a_group_rollout_is_given_its_number_of_trajectories(deployment):
    served = await deployment.start("plugins.fn:many", PluginKind.GROUP_ROLLOUT)
    body = {"context": {}, "proxy": {"url": "http://h"}, "sample": SAMPLE}
    result = served.read(await served.post({**body, "n_sample": 3}))
    assert [response.extra for response in result.responses] == [{"i": 0}, {"i": 1}, {"i": 2}]
    assert (await served.post(body)).status == 400


async def test_a_single_grader_knows_its_trajectory_by_the_older_name_too(deployment):
    served = await deployment.start("plugins.fn:one")
    new = await served.post(GRADING)
    old = await served.post({"context": {}, "sample": SAMPLE, "completion": TRAJECTORY})
    assert new.document == old.document == {"result": {"reward": 1.0, "status": "success"}}
    assert served.read(new).reward == 1.0


async def test_a_group_grader_is_given_all_trajectories(deployment):
    served = await deployment.start("plugins.fn:all_of_them", PluginKind.GROUP_GRADER)
    body = {"context": {}, "sample": SAMPLE, "trajectories": [TRAJECTORY] * 2}
    result = served.read(await served.post(body))
    assert (result.rewards, result.metrics) == ([0.25, 0.25], {"count": 2.0})


@pytest.mark.parametrize(
    "body", ["x", [], {}, {"sample": SAMPLE}, {**GRADING, "sample": {"messages": 3}}]
)
async def test_what_is_no_request_is_answered_with_400_and_the_clouds_envelope(deployment, body):
    served = await deployment.start("plugins.fn:one")
    answered = await served.post(body)
    assert answered.status == 400
    assert answered.document["error"]["code"] == "InvalidParameter"
    assert answered.request_id in answered.document["error"]["message"]
    async with deployment.client.post(f"{served.instance.url}/other", json={}) as response:
        assert response.status == 404


async def test_what_a_plugin_raises_is_the_answer_with_its_place_and_traceback(deployment):
    served = await deployment.start()
    answered = await served.do("fail")
    assert answered.status == 500
    error = answered.document["error"]
    assert (error["type"], error["message"]) == ("LookupError", "no such town")
    assert re.fullmatch(r"plugins/fn\.py:\d+", error["where"])
    with pytest.raises(RaisedElsewhere, match="LookupError: no such town") as raised:
        served.read(answered)
    assert raised.value.where == f"{deployment.root}/{error['where']}"
    assert f'File "{deployment.root}/plugins/fn.py", line' in raised.value.traceback


async def test_a_result_that_the_contract_does_not_allow_is_the_answer(deployment):
    served = await deployment.start()
    with pytest.raises(PluginResultError, match=r"metrics\.x='y'") as raised:
        served.read(await served.do("not_json"))
    assert raised.value.where.startswith(f"{deployment.root}/plugins/fn.py:")


@pytest.mark.parametrize("reference", ["plugins.fn:do", "plugins.fn:do_async"])
async def test_a_plugin_that_tries_to_end_the_process_fails_alone(deployment, reference):
    served = await deployment.start(reference)
    worst, exited, good = await asyncio.gather(
        served.do("raises_the_worst"), served.do("exit"), served.do("grade")
    )
    assert "raised KeyboardInterrupt" in worst.document["error"]["message"]
    assert "called sys.exit(3)" in exited.document["error"]["message"]
    assert good.document == {"result": {"reward": 1.0, "status": "success"}}
    assert (await served.do("grade")).status == 200


async def test_calls_run_side_by_side_and_do_not_wait_for_each_other(deployment):
    served = await deployment.start()
    loop = asyncio.get_running_loop()
    began = loop.time()
    slow = [asyncio.ensure_future(served.do("block", s=3.0)) for _ in range(8)]
    await asyncio.sleep(0.1)
    assert (await served.do("grade")).status == 200
    assert loop.time() - began < 3.0
    assert {answered.status for answered in await asyncio.gather(*slow)} == {200}
    assert loop.time() - began < 20.0  # one after the other they take 24 s


async def test_lines_are_attributed_to_their_requests_byte_for_byte(deployment):
    served = await deployment.start()
    names = ["a", "b", "c"]
    await asyncio.gather(
        *(served.do("print_and_wait", name=name, s=0.2, request_id=f"id-{name}") for name in names)
    )
    for name in names:
        lines = await served.said(f"id-{name}", 10)
        out = [line.data for line in lines if line.stream == "stdout"]
        assert out == 2 * [f"{name} {what}".encode() for what in ("out", "thread", "café")]
        err = [(line.level, line.logger, line.text) for line in lines if line.stream == "stderr"]
        both = [("PRINT", "", f"{name} err"), ("WARNING", "towns", f"{name} logs")]
        assert err == 2 * both


async def test_output_past_python_belongs_to_the_request_that_is_alone(deployment):
    served = await deployment.start()
    await served.do("child_prints", request_id="alone")
    lines = await served.said("alone", 2)
    assert sorted((line.stream, line.data) for line in lines) == [
        ("stderr", b"of a shell"),
        ("stdout", b"of a child \xff"),
    ]


async def test_a_function_has_its_declared_variables_and_none_of_the_host(deployment, monkeypatch):
    monkeypatch.setenv("OF_THE_HOST", "1")
    served = await deployment.start(envs={"DECLARED": "yes, ü"})
    await served.do("environment", request_id="env")
    names, declared = [line.text for line in await served.said("env", 2)]
    assert declared == "yes, ü"
    assert "'DECLARED'" in names
    assert "OF_THE_HOST" not in names
    for name in ("_FAAS_RUNTIME_PORT", "_FAAS_FUNC_TIMEOUT", "ARKDEV_FUNCTION"):
        assert f"'{name}'" in names


async def test_a_plugin_that_closes_its_streams_or_forks_takes_nothing_from_others(deployment):
    served = await deployment.start()
    assert (await served.do("closes_streams", request_id="closes")).status == 200
    assert (await served.do("forks", request_id="forks")).status == 200
    assert [line.text for line in await served.said("closes", 1)] == ["still here"]
    assert [line.text for line in await served.said("forks", 1)] == ["of a fork"]
    assert (await served.do("prints", name="x", request_id="after")).status == 200
    assert len(await served.said("after", 5)) == 5


async def test_an_instance_that_is_stopped_leaves_its_neighbours_alone(deployment):
    stuck = await deployment.start("plugins.fn:do_async")
    neighbour = await deployment.start("plugins.fn:do_async")
    blocked = asyncio.ensure_future(stuck.do("block", s=600.0))
    beside = asyncio.ensure_future(neighbour.do("sleeps", s=0.5))
    await asyncio.sleep(0.2)
    async with asyncio.timeout(60):
        await asyncio.gather(stuck.instance.stop(), stuck.instance.stop())
    with contextlib.suppress(aiohttp.ClientError):
        await blocked
        raise AssertionError("it answered")
    assert (await beside).status == 200
    assert await stuck.instance.ended() is None
    assert await neighbour.instance.ended() is None


async def test_a_call_that_its_caller_gives_up_leaves_the_others_of_the_instance_alone(deployment):
    served = await deployment.start("plugins.fn:do_async")
    given_up = asyncio.ensure_future(served.do("sleeps", s=600.0))
    beside = asyncio.ensure_future(served.do("sleeps", s=0.5))
    await asyncio.sleep(0.2)
    given_up.cancel()
    assert (await beside).status == 200
    assert (await served.do("grade")).status == 200


@pytest.mark.parametrize(
    ("what", "detail"), [("os_exit", "exit code 4"), ("kill", "killed by SIGKILL")]
)
async def test_a_crash_is_told_with_its_cause_and_the_function_starts_again(
    deployment, what, detail
):
    served = await deployment.start()
    with pytest.raises(aiohttp.ClientError):
        await served.do(what)
    end = await served.end()
    assert end.detail == detail or (what == "kill" and "137" in end.detail)
    assert end.status is InvocationStatus.CRASHED
    await served.instance.stop()
    again = await deployment.start()
    assert (await again.do("grade")).status == 200


async def test_an_instance_over_its_memory_ends_with_that_cause(deployment):
    function = deployment.function()
    if deployment.launcher(function).limits(function).memory_mb is None:
        pytest.skip("memory is not limited here")
    served = await deployment.start()
    neighbour = await deployment.start()
    with pytest.raises(aiohttp.ClientError):
        await served.do("hoards")
    end = await served.end()
    assert end.status is InvocationStatus.OUT_OF_MEMORY
    assert "192 MiB" in end.detail
    usage = await served.instance.usage()
    assert usage.memory_peak_mb is None or usage.memory_peak_mb > 150
    assert (await neighbour.do("grade")).status == 200


async def test_after_a_stop_nothing_answers_and_no_line_comes(deployment):
    served = await deployment.start()
    assert (await served.do("leaves_behind")).status == 200
    url = served.instance.url
    await served.instance.stop()
    with pytest.raises(aiohttp.ClientError):
        await served.do("grade")
    again = await deployment.start()
    assert again.instance.url != url or again.instance.id != served.instance.id
