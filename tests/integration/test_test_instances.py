"""`get_or_create_pipeline_plugin_test_instance` in scripts that ``arkdev run`` runs."""

import subprocess
import sys

import pytest

from tests.integration.faas_runs import OPENAI

ONLINE_TEST = """
    from ark_sdk.core.plugin.rollout.proxy import InferenceProxy, Mode
    from ark_sdk.resources.pipeline_plugin.test_instance import (
        get_or_create_pipeline_plugin_test_instance,
    )
    from ark_sdk.types.pipeline_plugin.rollout import ChatCompletionSample
    from plugins.rollout import answer

    if __name__ == "__main__":
        instance = get_or_create_pipeline_plugin_test_instance(answer)
        base_url = "https://ark.cn-beijing.volces.com/api/v3"
        sample = ChatCompletionSample(
            **{"messages": [{"role": "user", "content": "2 + 3 = ?"}], "extra": {}}
        )
        proxy = InferenceProxy(sample, url=base_url, jwt_token="your_apikey", mode=Mode.Inference)
        proxy.headers = {"test-header": "value"}
        response = instance.request(
            {"context": {}, "proxy": proxy, "sample": sample},
            sync=False,
        )
        print(response.status.value, bool(response.extra["text"]), response.extra["header"])
"""
ROLLOUT = """
    from ark_sdk.resources.pipeline_plugin import rollout
    from ark_sdk.types.pipeline_plugin.rollout import RolloutResult

    @rollout
    async def answer(context, proxy, sample):
        client = proxy.async_rollout_client()
        messages = sample.model_dump()["messages"]
        await client.chat.completions.create(model="m", messages=messages)
        text = proxy.messages[-1].content
        return RolloutResult(extra={"text": text, "header": proxy.headers.get("test-header")})
"""
GRADES = """
    from arkdev import Trajectory, ChatCompletionSample
    from arkdev.plugin.test_instance import get_or_create_pipeline_plugin_test_instance
    from plugins.grader import one
    from pathlib import Path

    sample = ChatCompletionSample(messages=[{"role": "user", "content": "?"}])
    instance = get_or_create_pipeline_plugin_test_instance(one)
    request = {"sample": sample, "trajectory": Trajectory(messages=[])}
    print(instance.request(request).reward)
    source = Path("plugins/grader.py")
    source.write_text(source.read_text().replace("1.0", "2.0"))
    print(instance.request(request, sync=False).reward, instance.request(request, sync=True).reward)
    source.write_text(source.read_text().replace("2.0", "3.0"))
    instance.sync()
    print(instance.request(request).reward)
    source.write_text(source.read_text().replace("return 3.0", "raise KeyError('town')"))
    instance.stop()
    try:
        instance.request(request)
    except Exception as error:
        print(type(error).__name__, error)
    try:
        instance.request({"sample": object()})
    except Exception as error:
        print(error)
"""

WAITS = """
    import time
    from pathlib import Path
    from arkdev import single_grader

    @single_grader
    def one(context, sample, trajectory):
        Path(sample.extra["started"]).touch()
        time.sleep(60)
        return 1.0
"""
STOPS = """
    import threading
    import time
    from arkdev.plugin.test_instance import get_or_create_pipeline_plugin_test_instance
    from pathlib import Path
    from plugins.grader import one

    started = Path("started").absolute()
    sample = {"messages": [], "extra": {"started": str(started)}}
    instance = get_or_create_pipeline_plugin_test_instance(one)

    def ask():
        try:
            instance.request({"sample": sample, "trajectory": {"messages": []}})
        except Exception as error:
            print(type(error).__name__, error)

    asking = threading.Thread(target=ask)
    asking.start()
    while not started.exists():
        time.sleep(0.05)
    instance.stop()
    asking.join()
"""


def test_the_documents_own_script_runs_unchanged_against_the_scripted_model(workspace, arkdev):
    workspace.write("requirements.txt", OPENAI)
    workspace.write("plugins/rollout.py", ROLLOUT)
    workspace.write("test_faas.py", ONLINE_TEST)
    told = arkdev("run", "test_faas.py", "--endpoint", "scripted")
    assert (told.exit_code, told.out) == (0, "success True value\n"), told.err


def test_code_is_updated_by_sync_and_forgotten_by_stop(workspace, arkdev, monkeypatch):
    monkeypatch.setenv("DOCKER_HOST", "unix:///nowhere/docker.sock")
    workspace.write("grades.py", GRADES)
    told = arkdev("run", "grades.py")
    assert told.exit_code == 0, told.err
    first, second, third, fourth, fifth = told.out.splitlines()
    assert (first, second, third) == ("1.0", "1.0 2.0", "3.0")
    assert fourth == "RaisedElsewhere KeyError: 'town'"
    assert "cannot be sent as JSON: object is not JSON" in fifth
    assert "plugins/grader.py changed" in told.err


def test_a_call_whose_instance_is_stopped_says_so(workspace, arkdev, monkeypatch):
    monkeypatch.setenv("DOCKER_HOST", "unix:///nowhere/docker.sock")
    workspace.write("plugins/grader.py", WAITS)
    workspace.write("stops.py", STOPS)
    told = arkdev("run", "stops.py")
    assert told.exit_code == 0, told.err
    assert told.out.startswith("InstanceError ")
    assert "the instance of one was stopped during the call, by stop() or for newer" in told.out


@pytest.mark.parametrize("kind", ["undecorated", "outside"])
def test_what_cannot_be_deployed_is_an_error_with_its_place(workspace, arkdev, kind):
    function = "def other(context, sample, trajectory): ...\n"
    if kind == "outside":
        outside = workspace.root.parent / "elsewhere.py"
        outside.write_text("from arkdev import single_grader\n@single_grader\n" + function)
        workspace.write("conftest.py", "")
    head = "import sys\nsys.path.append('..')\nfrom elsewhere import other\n"
    script = (head if kind == "outside" else function) + (
        "from arkdev.plugin.test_instance import get_or_create_pipeline_plugin_test_instance as g\n"
        "g(other)\n"
    )
    (workspace.root / "script.py").write_text(script, encoding="utf-8")
    told = arkdev("run", "script.py")
    assert (told.exit_code, told.out) == (2, "")
    assert ("has no decorator" if kind == "undecorated" else "no function of the workspace") in (
        told.err
    )


def test_plain_python_is_told_to_use_arkdev_run(workspace):
    workspace.write(
        "test_faas.py",
        """
        from arkdev.plugin import ark_sdk

        ark_sdk.install()
        from ark_sdk.resources.pipeline_plugin.test_instance import (
            get_or_create_pipeline_plugin_test_instance,
        )
        from plugins.grader import one

        get_or_create_pipeline_plugin_test_instance(one)
        """,
    )
    done = subprocess.run(
        [sys.executable, "test_faas.py"],
        cwd=workspace.root,
        env=workspace.environment(),
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 1
    assert "a script that arkdev runs: `arkdev run FILE`" in done.stderr
