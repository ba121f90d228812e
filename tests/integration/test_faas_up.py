"""``arkdev faas up``, ``status``, ``logs`` and ``down``, with child processes as instances."""

import http.client
import json
import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import textwrap
import time
from contextlib import suppress
from urllib.parse import urlsplit

import pytest

GRADER = """
    import os
    from arkdev import single_grader

    @single_grader
    def one(context, sample, trajectory):
        print("grading", sample.extra, os.environ.get("WORD"), "é")
        return 0.5
"""
SAMPLE = {"messages": [{"role": "user", "content": "2 + 3 = ?"}]}
REQUEST = {"sample": SAMPLE, "trajectory": {"messages": SAMPLE["messages"]}}
UP = ("faas", "up", "--fn", "plugins.grader:one", "--faas-engine", "process")


@pytest.fixture
def workspace(workspace, arkdev, monkeypatch, tmp_path):
    """A grader; whatever is up at the end of a test is ended."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    workspace.write("plugins/grader.py", GRADER)
    yield workspace
    arkdev("faas", "down", "--all")
    assert list((tmp_path / "config/state/arkdev/faas").glob("*")) == []


def post(url, body, request_id="req-1"):
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=60)
    headers = {"X-Faas-Request-Id": request_id}
    connection.request("POST", parts.path, json.dumps(body), headers)
    response = connection.getresponse()
    document = json.loads(response.read())
    connection.close()
    return response.status, document


def function_of(kept):
    (function,) = kept["functions"]
    return function


def deployments(arkdev):
    return arkdev("faas", "status", "--json").document["deployments"]


def until_gone(pid):
    for _ in range(1200):
        with suppress(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return
        time.sleep(0.05)
    pytest.fail("it is still there")


def instances_of(kept):
    """The processes that are instances of the workspace's functions."""
    told = subprocess.run(
        ["ps", "-ww", "-eo", "pid,ppid,args"], capture_output=True, text=True, check=True
    )
    lines = [line.split(None, 2) for line in told.stdout.splitlines()[1:]]
    found = [int(p) for p, of, args in lines if int(of) == kept["pid"] and "worker" in args]
    assert found
    return found


def test_a_deployment_is_called_watched_read_and_ended(workspace, arkdev):
    up = arkdev(*UP, "--detach")
    assert up.exit_code == 0, up.err
    (kept,) = deployments(arkdev)
    url = function_of(kept)["url"]
    assert f"deployment {kept['id']} is up at {kept['url']}" in up.out
    assert f"curl -s {url} -d '" in up.out
    assert post(url, REQUEST)[0] == 200
    status, answer = post(url, {**REQUEST, "sample": {**SAMPLE, "extra": {"n": 2}}}, "req-2")
    assert (status, answer["result"]["reward"]) == (200, 0.5)
    (kept,) = deployments(arkdev)
    row = function_of(kept)
    assert (row["num_calls"], row["num_instances"], row["num_queued"]) == (2, 1, 0)
    assert (row["name"], row["reference"], row["kind"]) == (
        "one",
        "plugins.grader:one",
        "single_grader",
    )
    assert kept["engine"] == "process"
    shown = arkdev("faas", "status").out
    assert "child processes" in shown
    assert "1 of 10" in shown
    lines = arkdev("faas", "logs", "--json").document["lines"]
    assert [(line["request_id"], line["text"]) for line in lines] == [
        ("req-1", "grading None None é"),
        ("req-2", "grading {'n': 2} None é"),
    ]
    example = json.loads(shlex.split(up.out.partition("curl ")[2].splitlines()[0])[3])
    assert post(url, example)[0] == 200
    of_one = arkdev("faas", "logs", kept["id"], "--request", "req-2", "--fn", "one")
    assert [line.split()[3:5] for line in of_one.out.splitlines()] == [["req-2", "grading"]]
    assert arkdev("faas", "logs", "--fn", "two").exit_code == 2
    pids = instances_of(kept)
    down = arkdev("faas", "down")
    assert (down.exit_code, down.out) == (0, f"deployment {kept['id']} is down\n")
    for pid in (kept["pid"], *pids):
        until_gone(pid)
    assert deployments(arkdev) == []
    assert arkdev("faas", "down").exit_code == 2
    assert arkdev("faas", "down", "--all").out == "no deployment is up\n"


def test_where_calls_to_ark_go_to_an_endpoint_a_rollout_needs_no_proxy(workspace, arkdev):
    workspace.write(
        "plugins/rollout.py",
        """
        from arkdev import RolloutResult, rollout

        @rollout
        def ready(context, proxy, sample):
            return RolloutResult()
        """,
    )
    up = ("faas", "up", "--fn", "plugins.rollout:ready", "--faas-engine", "process", "--detach")
    kept = arkdev(*up, "--json", "--endpoint", "scripted").document
    assert post(function_of(kept)["url"], {"sample": SAMPLE})[0] == 200
    arkdev("faas", "down")
    kept = arkdev(*up, "--json").document
    status, answer = post(function_of(kept)["url"], {"sample": SAMPLE})
    assert (status, answer["error"]["code"]) == (400, "InvalidParameter")
    nobody = {"sample": SAMPLE, "proxy": {"url": "http://localhost:9/v1"}}
    status, answer = post(function_of(kept)["url"], nobody)
    assert (status, answer["error"]["code"]) == (400, "InvalidParameter")
    assert "nothing listens at localhost:9 on this machine" in answer["error"]["message"]


def test_what_a_killed_deployment_left_is_removed_and_said(workspace, arkdev, tmp_path):
    kept = arkdev(*UP, "--detach", "--json").document
    pids = instances_of(kept)
    os.kill(kept["pid"], signal.SIGKILL)
    for pid in (kept["pid"], *pids):
        until_gone(pid)
    told = arkdev("faas", "status")
    assert told.out.startswith("no deployment is up")
    assert f"removed what the deployment {kept['id']} left" in told.err
    assert not (tmp_path / "config/state/arkdev/faas" / kept["id"]).exists()


def test_containers_that_cannot_be_looked_for_are_not_forgotten(
    workspace, arkdev, tmp_path, monkeypatch
):
    kept = arkdev(*UP, "--detach", "--json").document
    state = tmp_path / "config/state/arkdev/faas" / kept["id"] / "state.json"
    document = json.loads(state.read_text(encoding="utf-8"))
    os.kill(kept["pid"], signal.SIGKILL)
    until_gone(kept["pid"])
    state.write_text(json.dumps({**document, "engine": "container"}), encoding="utf-8")
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/no.sock")
    for _ in range(2):
        told = arkdev("faas", "status")
        assert told.out.startswith("no deployment is up")
        assert "its containers cannot be looked for: no container engine answers;" in told.err
    state.write_text(json.dumps(document), encoding="utf-8")


def test_a_deployment_of_another_machine_is_seen_and_never_signalled(workspace, arkdev, tmp_path):
    folder = tmp_path / "config/state/arkdev/faas/4f1c2a"
    kept = arkdev(*UP, "--detach", "--json").document
    text = (folder.parent / kept["id"] / "state.json").read_text(encoding="utf-8")
    arkdev("faas", "down")
    with subprocess.Popen(["sleep", "600"]) as bystander:
        document = {**json.loads(text), "id": "4f1c2a", "owner": f"other/boot/1/{bystander.pid}/3"}
        folder.mkdir()
        (folder / "state.json").write_text(json.dumps(document), encoding="utf-8")
        assert "of another machine" in arkdev("faas", "status").out
        told = arkdev("faas", "down", "4f1c2a")
        assert told.exit_code == 2
        assert "the deployment 4f1c2a is of another machine" in told.err
        assert arkdev("faas", "down", "--all").out == "no deployment is up\n"
        assert bystander.poll() is None
        bystander.kill()
    shutil.rmtree(folder)


def test_what_one_that_was_killed_while_it_started_left_is_removed(workspace, arkdev, tmp_path):
    slow = 'if "_FAAS_RUNTIME_PORT" in os.environ:\n    __import__("time").sleep(600)\n'
    workspace.write("plugins/grader.py", textwrap.dedent(GRADER) + slow)
    process = workspace.start(*UP)
    folder = tmp_path / "config/state/arkdev/faas"
    for _ in range(1200):
        if list(folder.glob("*/owner.txt")):
            break
        time.sleep(0.05)
    process.kill()
    process.communicate(timeout=300)
    (left,) = folder.iterdir()
    told = arkdev("faas", "status")
    assert f"removed what the deployment {left.name} left" in told.err
    assert not left.exists()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_one_in_the_foreground_ends_with_130_and_leaves_nothing(workspace, arkdev, number):
    process = workspace.start(*UP, "--json")
    kept = json.loads(_document_of(process.stdout))
    assert post(function_of(kept)["url"], REQUEST)[1]["result"]["reward"] == 0.5
    pids = instances_of(kept)
    process.send_signal(number)
    _, said = process.communicate(timeout=300)
    assert process.returncode == 130
    assert b"stopped; nothing of it is left" in said
    for pid in pids:
        until_gone(pid)
    assert deployments(arkdev) == []


def _document_of(stream):
    text = b""
    for line in stream:
        text += line
        if line == b"}\n":
            return text
    pytest.fail("it ended without a document")


def test_one_that_cannot_start_says_why_and_ends_with_its_own_code(workspace, arkdev, tmp_path):
    workspace.write("plugins/grader.py", "import nothing_like_it\n")
    told = arkdev(*UP, "--detach")
    assert (told.exit_code, told.out) == (2, "")
    assert "nothing_like_it" in told.err
    with socket.create_server(("127.0.0.1", 0)) as taken:
        workspace.write("plugins/grader.py", GRADER)
        port = str(taken.getsockname()[1])
        told = arkdev(*UP, "--detach", "--port", port)
    assert told.exit_code == 2
    assert f"cannot listen on 127.0.0.1:{port}" in told.err
    assert list((tmp_path / "config/state/arkdev/faas").iterdir()) == []


def test_variables_of_the_job_and_keys_of_callers_are_not_in_the_log(workspace, arkdev, tmp_path):
    pipeline = {
        "graders": [
            {
                "plugin": {"name": "one", "python_func": "plugins.grader:one"},
                "envs": {"WORD": "hidden-word-1"},
            }
        ]
    }
    job = json.loads((workspace.root / "job.yaml").read_text(encoding="utf-8"))
    workspace.write("job.yaml", json.dumps({**job, "custom_rl_pipeline": pipeline}))
    kept = arkdev("faas", "up", "--faas-engine", "process", "--detach", "--json").document
    proxy = {"url": "https://ark.example/v3", "jwt_token": "token-of-a-caller"}
    sample = {**SAMPLE, "extra": {"said": "token-of-a-caller"}}
    assert post(function_of(kept)["url"], {**REQUEST, "proxy": proxy, "sample": sample})[0] == 200
    log = tmp_path / "config/state/arkdev/faas" / kept["id"]
    (line,) = arkdev("faas", "logs", "--json").document["lines"]
    assert line["text"] == "grading {'said': '***'} *** é"
    texts = [path.read_text(encoding="utf-8") for path in log.iterdir()]
    assert [text for text in texts if "hidden-word-1" in text or "token-of" in text] == []
