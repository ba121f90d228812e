"""`arkdev run FILE`: users' scripts as they wrote them, and where their calls to Ark go."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from tests.integration.loopback import Loopback, listening
from tests.integration.workspace import Command, Workspace
from tests.running import answer

PROBE = """
    # -*- coding: utf-8 -*-
    import json, os, sys
    sys.path  # as it is at the start
    print(json.dumps({
        "argv": sys.argv, "file": __file__, "name": __name__, "path": sys.path[:2],
        "main": sys.modules["__main__"].__file__, "stdin": sys.stdin.read(),
        "beside": __import__("beside").HERE, "root": __import__("plugins.grader").__name__,
        "doc": __doc__}))
    print("你好", "é")
    print("到 stderr", file=sys.stderr)
    with open("relative.txt", "w") as file:
        file.write(os.getcwd())
"""
PUBLIC = "https://ark.cn-beijing.volces.com/api/v3"
ASK = 'create(model="theirs", messages=[{"role": "user", "content": "What is 12 plus 7?"}])'


def python(workspace: Workspace, *arguments: str, stdin: str = "", **changes: str) -> Any:
    """Run a Python command line in the workspace, with its root on PYTHONPATH."""
    changes = {"PYTHONPATH": str(workspace.root), **changes}
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=workspace.root,
        env=workspace.environment(**changes),
        input=stdin.encode(),
        capture_output=True,
        timeout=300,
        check=False,
    )


def arkdev_run(workspace: Workspace, *arguments: str, stdin: str = "", **changes: str) -> Any:
    paths = workspace.environment()["PYTHONPATH"]
    run = ("-m", "arkdev", "run", *arguments)
    return python(workspace, *run, stdin=stdin, PYTHONPATH=paths, **changes)


@pytest.mark.parametrize("locale", ["C.UTF-8", "C"])
def test_a_script_sees_what_python_would_show_it(workspace: Workspace, locale: str) -> None:
    workspace.write("plugins/probe.py", PROBE)
    workspace.write("plugins/beside.py", "HERE = 'beside'")
    arguments = ("plugins/probe.py", "--endpoint-of-mine", "x", "--help", "-v", "--", "é", "")
    expected = python(workspace, *arguments, stdin="typed 输入", LC_ALL=locale)
    told = arkdev_run(workspace, *arguments, stdin="typed 输入", LC_ALL=locale)
    assert expected.returncode == 0, expected.stderr
    assert (told.returncode, told.stdout, told.stderr) == (0, expected.stdout, expected.stderr)
    assert (workspace.root / "relative.txt").read_text() == str(workspace.root)


FAILURES = {
    "an exception": """
        def inner():
            return {}["no such key"]

        def outer():
            try:
                inner()
            except KeyError as error:
                raise ValueError("said\\nin two lines") from error

        outer()
    """,
    "one while another was handled": """
        try:
            raise OSError("first")
        except OSError:
            [][1]
    """,
    "a group": """
        def fail(n):
            raise ValueError(n)

        errors = []
        for n in range(2):
            try:
                fail(n)
            except ValueError as error:
                errors.append(error)
        raise ExceptionGroup("several", errors)
    """,
    "wrong syntax": "x = (1,\n",
    "in another module": "import json\njson.loads('{')\n",
    "standard input at its end": "input()\n",
    "an exit with a text": "raise SystemExit('没有密钥')\n",
    "an exit with a code": "import sys\nsys.exit(7)\n",
    "an exit with True": "raise SystemExit(True)\n",
    "an exit with nothing": "raise SystemExit\n",
}


@pytest.mark.parametrize("what", FAILURES)
def test_what_leaves_a_script_is_told_as_python_tells_it(
    workspace: Workspace, arkdev: Command, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    script = workspace.write("script.py", FAILURES[what])
    expected = python(workspace, str(script))
    with open("/dev/null", encoding="utf-8") as nothing:
        monkeypatch.setattr(sys, "stdin", nothing)
        told = arkdev("run", str(script))
    assert told.exit_code == expected.returncode
    assert told.err == expected.stderr.decode()
    assert told.out == expected.stdout.decode()


def test_an_error_of_the_contract_has_no_frames_of_arkdev(
    workspace: Workspace, arkdev: Command
) -> None:
    workspace.write(
        "script.py",
        """
        from ark_sdk.core.plugin.rollout.proxy import InferenceProxy
        proxy = InferenceProxy({"messages": []}, url="http://127.0.0.1:9", jwt_token="k")
        proxy.rollout_client().chat.completions.create(model="m", messages=[], temperature=0)
        """,
    )
    told = arkdev("run", "script.py")
    assert told.exit_code == 1
    frames = [line for line in told.err.splitlines() if line.strip().startswith("File")]
    assert frames == [f'  File "{workspace.root / "script.py"}", line 4, in <module>']
    assert "SamplingParameterError" in told.err


def test_a_file_that_is_not_there_is_a_usage_error(workspace: Workspace, arkdev: Command) -> None:
    assert arkdev("run", "nothing.py").exit_code == 2
    assert "plugins is a folder, not a file" in arkdev("run", "plugins").err


ARGUMENTS = "import json, sys\nprint(json.dumps(sys.argv[1:]))\n"


@pytest.mark.parametrize(
    ("line", "seen"),
    [
        (("script.py", "--endpoint", "scripted", "a"), ["a"]),
        (("script.py", "--endpoint=scripted", "--model", "m", "--model", "x"), []),
        (("--endpoint", "scripted", "script.py", "--model", "theirs"), ["--model", "theirs"]),
        (("script.py", "a", "--endpoint", "theirs"), ["a", "--endpoint", "theirs"]),
        (("script.py", "--model", "theirs"), ["--model", "theirs"]),
        (("script.py", "--", "--endpoint", "theirs"), ["--endpoint", "theirs"]),
        (("script.py", "--", "--"), ["--"]),
    ],
)
def test_what_follows_the_file_is_the_script_s_but_for_an_endpoint(
    workspace: Workspace, arkdev: Command, line: tuple[str, ...], seen: list[str]
) -> None:
    workspace.write("script.py", ARGUMENTS)
    told = arkdev("run", *line)
    assert (told.exit_code, json.loads(told.out)) == (0, seen)


def test_an_option_without_its_value_or_its_endpoint_is_refused(
    workspace: Workspace, arkdev: Command
) -> None:
    workspace.write("script.py", ARGUMENTS)
    assert "--endpoint needs a value" in arkdev("run", "script.py", "--endpoint").err
    assert "belong to an --endpoint" in arkdev("run", "--model", "m", "script.py").err
    assert "no endpoint 'nowhere'" in arkdev("run", "--endpoint", "nowhere", "script.py").err


WAYS = {
    "OpenAI": f"""
        from openai import OpenAI
        with OpenAI(base_url="{PUBLIC}", api_key="their key") as client:
            print(client.chat.completions.{ASK}.choices[0].message.content)
    """,
    "AsyncOpenAI, late import": f"""
        import asyncio

        async def main():
            from openai import AsyncOpenAI
            async with AsyncOpenAI(base_url="{PUBLIC}/", api_key="their key") as client:
                answer = await client.chat.completions.{ASK}
            print(answer.choices[0].message.content)

        asyncio.run(main())
    """,
    "Ark": f"""
        from volcenginesdkarkruntime import Ark
        with Ark() as client:
            print(client.chat.completions.{ASK}.choices[0].message.content)
    """,
    "AsyncArk": f"""
        import asyncio
        from volcenginesdkarkruntime import AsyncArk

        async def main():
            async with AsyncArk(ak="a", sk="s") as client:
                answer = await client.chat.completions.{ASK}
            print(answer.choices[0].message.content)

        asyncio.run(main())
    """,
    "a variable": f"""
        import os
        from openai import OpenAI
        url, key = os.environ["ARK_BASE_URL"], os.environ["ARK_API_KEY"]
        with OpenAI(base_url=url, api_key=key) as client:
            print(client.chat.completions.{ASK}.choices[0].message.content)
    """,
    "a proxy": f"""
        from ark_sdk.core.plugin.rollout.proxy import InferenceProxy, Mode
        sample = {{"messages": [{{"role": "user", "content": "?"}}]}}
        proxy = InferenceProxy(sample, url="{PUBLIC}", jwt_token="k", mode=Mode.Inference)
        print(proxy.rollout_client().chat.completions.{ASK}.choices[0].message.content)
    """,
    "a proxy's URL left empty": f"""
        import json, urllib.request
        from ark_sdk.core.plugin.rollout.proxy import InferenceProxy
        proxy = InferenceProxy({{"messages": []}}, url="", jwt_token="")
        request = urllib.request.Request(
            proxy.url + "/chat/completions",
            json.dumps(dict({ASK[len("create(") : -1]})).encode(),
            {{"Authorization": "Bearer " + proxy.jwt_token, **proxy.headers}},
        )
        with urllib.request.urlopen(request) as response:
            body = json.load(response)
        print(body["choices"][0]["message"]["content"])
    """,
}
ARK_CLIENTS = ("Ark", "AsyncArk")


@pytest.mark.parametrize("way", WAYS)
def test_calls_to_ark_s_public_url_are_answered_offline(
    workspace: Workspace, arkdev: Command, way: str
) -> None:
    if way in ARK_CLIENTS:
        pytest.importorskip("volcenginesdkarkruntime")
    workspace.write("script.py", WAYS[way])
    told = arkdev("run", "script.py", "--endpoint", "scripted")
    assert told.exit_code == 0, told.err
    assert any(number in told.out for number in "0123456789"), told.out
    assert told.err == "arkdev: calls to Ark go to the endpoint scripted\n"


@pytest.fixture
def server() -> Iterator[Loopback]:
    with listening(lambda count, body: (200, answer("19"))) as loopback:
        yield loopback


@pytest.mark.parametrize("way", WAYS)
def test_calls_to_ark_go_to_an_endpoint_with_its_key_and_model(
    workspace: Workspace,
    arkdev: Command,
    monkeypatch: pytest.MonkeyPatch,
    server: Loopback,
    way: str,
) -> None:
    if way in ARK_CLIENTS:
        pytest.importorskip("volcenginesdkarkruntime")
    monkeypatch.setenv("THE_KEY", "key-of-the-endpoint")
    workspace.write(
        "arkworkspace.toml",
        f"""
        [endpoints.mine]
        base_url = "{server.url}/v1"
        model = "my-model"
        api_key_env = "THE_KEY"
        """,
    )
    workspace.write("script.py", WAYS[way])
    told = arkdev("run", "script.py", "--endpoint", "mine")
    assert (told.exit_code, told.out) == (0, "19\n")
    assert told.err == "arkdev: calls to Ark go to the endpoint mine (my-model)\n"
    ((path, authorization, body),) = server.requests
    assert path == "/v1/chat/completions"
    assert authorization == "Bearer key-of-the-endpoint"
    assert (body["model"], body["messages"][0]["content"]) == ("my-model", "What is 12 plus 7?")


def test_other_hosts_and_later_processes_are_left_alone(
    workspace: Workspace, arkdev: Command, server: Loopback, monkeypatch: pytest.MonkeyPatch
) -> None:
    import openai

    before = openai.OpenAI.__init__
    workspace.write(
        "script.py",
        f"""
        from openai import OpenAI
        with OpenAI(base_url="{server.url}/other", api_key="their key") as client:
            print(client.chat.completions.{ASK}.choices[0].message.content)
        print(OpenAI(api_key="k").base_url)
        """,
    )
    told = arkdev("run", "script.py", "--endpoint", "scripted")
    assert told.out.splitlines() == ["19", "https://api.openai.com/v1/"]
    ((path, authorization, body),) = server.requests
    assert (path, authorization) == ("/other/chat/completions", "Bearer their key")
    assert body["model"] == "theirs"
    assert openai.OpenAI.__init__ is before


def test_without_an_endpoint_nothing_is_redirected(workspace: Workspace, arkdev: Command) -> None:
    workspace.write(
        "script.py",
        f"""
        import os
        from openai import OpenAI
        print(OpenAI(base_url="{PUBLIC}", api_key="k").base_url, "ARK_BASE_URL" in os.environ)
        """,
    )
    told = arkdev("run", "script.py")
    assert (told.out, told.err) == (f"{PUBLIC}/ False\n", "")


def test_an_endpoint_where_nothing_listens_is_told_before_the_script_begins(
    workspace: Workspace, arkdev: Command
) -> None:
    workspace.write("script.py", "print('begun')")
    told = arkdev("run", "--endpoint", "http://127.0.0.1:9/v1", "--model", "m", "script.py")
    assert (told.exit_code, told.out) == (4, "")


def test_what_a_call_sets_and_the_endpoint_does_not_get_is_told(
    workspace: Workspace, arkdev: Command, server: Loopback
) -> None:
    more = ASK[:-1] + ", n=2, seed=5, temperature=0.25)"
    workspace.write("script.py", WAYS["OpenAI"].replace(ASK, more))
    endpoint = ("--endpoint", f"{server.url}/v1", "--model", "m")
    told = arkdev("run", *endpoint, "script.py")
    assert "a call set n (one answer came)" in told.err
    assert "a call set seed (not used)" in told.err
    assert server.requests[0][2]["temperature"] == 0.25


def test_threads_that_outlive_the_script_s_end_are_served_too(workspace: Workspace) -> None:
    workspace.write(
        "script.py",
        f"""
        import threading, time
        from openai import OpenAI

        def later():
            time.sleep(0.3)
            client = OpenAI(base_url="{PUBLIC}", api_key="k")
            print(client.chat.completions.{ASK}.choices[0].message.content)

        threading.Thread(target=later).start()
        """,
    )
    told = arkdev_run(workspace, "script.py", "--endpoint", "scripted")
    assert (told.returncode, b"Traceback" in told.stderr) == (0, False), told.stderr
    assert told.stdout.strip()


JUDGE = """
    from arkdev import group_grader
    {imports}
    judge = {judge}

    @group_grader
    async def one(context, sample, trajectories):
        rewards = []
        for trajectory in trajectories:
            answer = await judge.chat.completions.create(
                model="judge", messages=[{{"role": "user", "content": "What is 1 plus 1?"}}]
            )
            rewards.append(float("2" in answer.choices[0].message.content))
        return rewards
"""


@pytest.mark.parametrize(
    ("imports", "judge"),
    [
        ("from volcenginesdkarkruntime import AsyncArk", "AsyncArk()"),
        (
            "import os\n    from openai import AsyncOpenAI",
            f'AsyncOpenAI(base_url="{PUBLIC}", api_key=os.environ.get("ARK_API_KEY"))',
        ),
    ],
    ids=["AsyncArk", "AsyncOpenAI"],
)
def test_a_judge_made_when_its_module_is_imported_is_answered_offline(
    workspace: Workspace, imports: str, judge: str
) -> None:
    library = imports.split()[-3]
    pytest.importorskip(library)
    workspace.write("plugins/grader.py", JUDGE.format(imports=imports, judge=judge))
    told, said = workspace.start("test", "plugin", "--json").communicate(timeout=300)
    document = json.loads(told)
    assert document["summary"]["reward"]["mean"] == 1.0, said
    assert document["judge_calls"] == 1


def test_a_judge_of_a_test_on_another_endpoint_is_not_redirected(
    workspace: Workspace, server: Loopback, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace.write(
        "plugins/grader.py",
        f"""
        from arkdev import single_grader
        from openai import OpenAI

        @single_grader
        def one(context, sample, trajectory):
            return float(str(OpenAI(base_url="{PUBLIC}", api_key="k").base_url) == "{PUBLIC}/")
        """,
    )
    assert workspace.run(endpoint=f"{server.url}/v1", model="m").rewards == [(1.0,)]
    monkeypatch.setenv("ARK_BASE_URL", PUBLIC)
    assert workspace.run().rewards == [(1.0,)]
