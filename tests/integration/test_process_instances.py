"""Instances that are child processes keep to what all instances keep to, and leave nothing."""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from arkdev.errors import InstanceError
from arkdev.faas_emulator.processes.process_instance import ProcessLauncher
from arkdev.faas_emulator.worker.confinement import end_processes_of
from arkdev.plugin.decorators import PluginKind
from arkdev.plugin.runtime import PluginInstance
from tests.faas_conformance import *  # noqa: F403
from tests.faas_conformance import SAMPLE, deployment  # noqa: F401
from tests.running import running


class Folder:
    """A package of all files in a folder."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def write_to(self, folder: Path) -> None:
        shutil.copytree(self._root, folder, dirs_exist_ok=True)


@pytest.fixture
def new_launcher(tmp_path, monkeypatch):
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    yield lambda root, functions: ProcessLauncher(Folder(root))
    assert list(temporary.iterdir()) == []


def processes_of(instance_id: str) -> list[int]:
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                environment = (folder / "environ").read_bytes()
            except OSError:
                continue
            if f"ARKDEV_INSTANCE={instance_id}".encode() in environment:
                found.append(int(folder.name))
    return found


def wait_until(holds: Callable[[], bool]) -> None:
    for _ in range(3000):
        if holds():
            return
        time.sleep(0.02)
    raise AssertionError("it never came to hold")


linux = pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")


@linux
async def test_what_a_plugin_left_behind_ends_with_its_instance(deployment):  # noqa: F811
    served = await deployment.start()
    await served.do("leaves_behind")
    wait_until(lambda: len(processes_of(served.instance.id)) == 3)
    await served.instance.stop()
    assert processes_of(served.instance.id) == []


@linux
async def test_a_crash_leaves_no_process_behind_either(deployment):  # noqa: F811
    served = await deployment.start()
    await served.do("leaves_behind")
    os.kill(min(processes_of(served.instance.id)), signal.SIGKILL)
    await served.end()
    assert processes_of(served.instance.id) == []


@linux
async def test_an_instance_is_bound_to_its_cores_and_the_limits_that_do_not_hold_are_told(
    deployment,  # noqa: F811
):
    cores = os.sched_getaffinity(0)
    served = await deployment.start()
    assert len(os.sched_getaffinity(min(processes_of(served.instance.id)))) == 1
    launcher = deployment.launcher()
    limits = launcher.limits(deployment.function(instance=PluginInstance.CPU16MEM128))
    assert limits.num_cpus == min(16, len(cores))
    notes = " ".join(limits.notes)
    assert "child processes" in notes
    assert "memory is looked at every" in notes
    assert ("asks for 16 CPUs" in notes) == (len(cores) < 16)


@linux
async def test_the_package_is_a_copy_that_is_not_written_to(deployment):  # noqa: F811
    deployment.write(
        "plugins/where.py",
        """
        import os
        from arkdev import single_grader

        @single_grader
        def where(context, sample, trajectory):
            print(os.getcwd())
            print(oct(os.stat("plugins/where.py").st_mode & 0o222))
            return 1.0
        """,
    )
    served = await deployment.start("plugins.where:where")
    await served.do("", request_id="where")
    folder, mode = [line.text for line in await served.said("where", 2)]
    assert Path(folder) != deployment.root
    assert mode == "0o0"
    assert not list(deployment.root.rglob("__pycache__"))


async def test_the_client_of_a_rollout_is_imported_before_it_is_ready(deployment):  # noqa: F811
    deployment.write(
        "plugins/early.py",
        """
        import sys
        from arkdev import rollout

        @rollout
        def early(context, proxy, sample):
            print("openai" in sys.modules)
        """,
    )
    served = await deployment.start("plugins.early:early", PluginKind.SINGLE_ROLLOUT)
    proxy = {"url": "http://127.0.0.1:5/api/v3", "jwt_token": "k"}
    await served.post({"context": {}, "proxy": proxy, "sample": SAMPLE}, request_id="early")
    (line,) = await served.said("early", 1)
    assert line.text == "True"


async def test_calls_to_arks_public_host_go_to_the_judge_of_the_run(deployment):  # noqa: F811
    deployment.write(
        "plugins/judged.py",
        """
        import openai
        from arkdev import single_grader

        early = openai.OpenAI(base_url="https://ark.cn-beijing.volces.com/api/v3", api_key="k")
        other = openai.OpenAI(base_url="https://elsewhere.example/v1", api_key="k")

        @single_grader
        def judged(context, sample, trajectory):
            print(early.base_url, early.api_key, other.base_url)
            return 1.0
        """,
    )
    url = "http://127.0.0.1:5/api/v3"
    envs = {"ARKDEV_ARK_URL": url, "ARK_API_KEY": "scripted"}
    served = await deployment.start("plugins.judged:judged", envs=envs)
    await served.do("", request_id="judged")
    (line,) = await served.said("judged", 1)
    assert line.text == f"{url}/ scripted https://elsewhere.example/v1/"


async def test_the_proxy_of_a_request_of_ones_own_talks_to_its_url(deployment):  # noqa: F811
    deployment.write(
        "plugins/alone.py",
        """
        from arkdev import rollout

        @rollout
        async def alone(context, proxy, sample):
            client = proxy.async_rollout_client()
            messages = sample.model_dump()["messages"]
            await client.chat.completions.create(model="m", messages=messages)
            return {"extra": {"said": proxy.messages[-1].content, "used": proxy.usage.total_tokens}}
        """,
    )
    async with running(["sunny"]) as run:
        session = run.session()
        proxy = {"url": session.url, "jwt_token": session.jwt_token}
        served = await deployment.start("plugins.alone:alone", PluginKind.SINGLE_ROLLOUT)
        answered = await served.post({"context": {}, "proxy": proxy, "sample": SAMPLE})
    assert served.read(answered).extra == {"said": "sunny", "used": 7}
    assert [turn.via for turn in session.turns] == ["raw"]  # no attempt of a run


@linux
def test_when_arkdev_is_killed_its_instances_end_and_the_next_one_removes_their_folder(tmp_path):
    (tmp_path / "ws" / "plugins").mkdir(parents=True)
    (tmp_path / "ws" / "plugins" / "fn.py").write_text(
        "import subprocess\nfrom arkdev import single_grader\n"
        "subprocess.Popen(['sleep', '600'], start_new_session=True)\n"
        "@single_grader\ndef one(context, sample, trajectory):\n    return 1.0\n",
        encoding="utf-8",
    )
    code = """
        import asyncio, sys
        from pathlib import Path
        from arkdev.faas_emulator.functions import FunctionSpec
        from arkdev.faas_emulator.processes.process_instance import ProcessLauncher
        from arkdev.plugin.decorators import PluginKind
        from arkdev.plugin.runtime import Runtime
        from tests.integration.test_process_instances import Folder

        async def main():
            root = Path(sys.argv[1])
            function = FunctionSpec("one", "plugins.fn:one", root, PluginKind.SINGLE_GRADER,
                                    Runtime(), "fn.py:1")
            launcher = ProcessLauncher(Folder(root))
            instance = await launcher.start(function, on_log=print)
            print(instance.id, flush=True)
            await asyncio.sleep(600)

        asyncio.run(main())
    """
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    command = [sys.executable, "-c", dedent(code), str(tmp_path / "ws")]
    folder = Path(__file__).parents[2]
    environment = {**os.environ, "TMPDIR": str(temporary), "PYTHONPATH": str(folder)}
    with subprocess.Popen(command, env=environment, cwd=folder, stdout=subprocess.PIPE) as arkdev:
        assert arkdev.stdout is not None
        instance_id = arkdev.stdout.readline().decode().strip()
        wait_until(lambda: len(processes_of(instance_id)) == 2)
        arkdev.kill()
    try:
        wait_until(lambda: processes_of(instance_id) == [])
    finally:
        end_processes_of(instance_id)
    assert len(list(temporary.iterdir())) == 1
    imported = "from arkdev.faas_emulator.processes.function_folder import FunctionFolder"
    nothing = "class Nothing:\n    def write_to(self, folder): pass"
    code = f"{imported}\n{nothing}\nFunctionFolder(Nothing()).remove()"
    subprocess.run([sys.executable, "-c", code], env=environment, cwd=folder, check=True)
    assert list(temporary.iterdir()) == []


async def test_a_launcher_that_is_cancelled_while_it_unpacks_the_package_leaves_nothing(
    tmp_path, monkeypatch
):
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    has_begun, may_go_on = threading.Event(), threading.Event()

    class Slow:
        def write_to(self, folder: Path) -> None:
            has_begun.set()
            may_go_on.wait(60)

    preparing = asyncio.ensure_future(ProcessLauncher(Slow()).prepare())
    assert await asyncio.to_thread(has_begun.wait, 60)
    preparing.cancel()
    await asyncio.sleep(0.05)
    may_go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await preparing
    assert list(temporary.iterdir()) == []


@pytest.mark.parametrize("refused", ["os.pipe", "pathlib.Path.mkdir"])
async def test_an_instance_for_which_the_system_has_no_room_says_so(
    deployment,  # noqa: F811
    monkeypatch,
    refused,
):
    await deployment.launcher().prepare()

    def refuse(*_: Any) -> Any:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr(refused, refuse)
    with pytest.raises(InstanceError, match="Too many open files"):
        await deployment.start()
