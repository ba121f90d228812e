"""``arkdev test pipeline_plugin``: a documented request, with a child process as instance."""

import io
import json
import sys

import pytest

from tests.integration.faas_runs import OPENAI
from tests.integration.workspace import job_yaml

GRADER = """
    import logging
    import os
    from arkdev import SingleGraderResult, single_grader

    @single_grader
    def one(context, sample, trajectory):
        print("grading", sample.extra.get("answer"))
        logging.getLogger("plugins.grader").warning("seen %s", os.environ.get("WORD"))
        if sample.extra.get("answer") == "fail":
            raise ValueError("no such answer")
        return SingleGraderResult(reward=0.25, metrics={"turns": len(trajectory.messages)})
"""
SAMPLE = {"messages": [{"role": "user", "content": "2 + 3 = ?"}], "extra": {"answer": "5"}}
TRAJECTORY = {"messages": [*SAMPLE["messages"], {"role": "assistant", "content": "5"}]}
REQUEST = {"sample": SAMPLE, "trajectory": TRAJECTORY}
PROCESS = ("--faas-engine", "process")


@pytest.fixture
def workspace(workspace):
    """A grader without requirements."""
    workspace.write("plugins/grader.py", GRADER)
    return workspace


def ask(arkdev, request, *more, fn="plugins.grader:one"):
    text = request if isinstance(request, str) else json.dumps(request)
    return arkdev("test", "pipeline_plugin", "--fn", fn, "--request", text, *PROCESS, *more)


def test_the_answer_is_printed_and_what_the_plugin_says_goes_to_stderr(workspace, arkdev):
    told = ask(arkdev, REQUEST)
    assert told.exit_code == 0, told.err
    answer = json.loads(told.out)
    assert (answer["reward"], answer["metrics"], answer["status"]) == (
        0.25,
        {"turns": 2},
        "success",
    )
    assert "grading 5" in told.err
    assert "plugins.grader: seen None" in told.err


def test_a_request_that_is_nested_deeply_is_a_request(workspace, arkdev):
    nested = "[" * 900 + "]" * 900
    request = json.dumps({**REQUEST, "token": 0}).replace('"token": 0', f'"more": {nested}')
    told = ask(arkdev, request)
    assert (told.exit_code, json.loads(told.out)["reward"]) == (0, 0.25)


@pytest.mark.parametrize("flag", ["--json", "--sync"])
def test_numbers_and_text_that_json_lacks_are_printed_as_text(workspace, arkdev, flag):
    workspace.write(
        "plugins/rollout.py",
        """
        from arkdev import RolloutResult, rollout

        @rollout
        def odd(context, proxy, sample):
            return RolloutResult(extra={"loss": [float("nan"), float("inf")], "half": "\\ud800!"})
        """,
    )
    told = ask(arkdev, {"sample": SAMPLE, "proxy": {}}, flag, fn="plugins.rollout:odd")
    assert told.exit_code == 0, told.err
    result = told.document["result"] if flag == "--json" else json.loads(told.out)
    assert result["extra"] == {"loss": ["nan", "inf"], "half": "\ufffd!"}
    assert result["status"] == "success"


def test_the_deployed_code_runs_until_it_is_synced_and_a_notice_names_what_differs(
    workspace, arkdev
):
    assert json.loads(ask(arkdev, REQUEST).out)["reward"] == 0.25
    workspace.write("plugins/grader.py", GRADER.replace("0.25", "0.75"))
    workspace.write("plugins/words.py", "WORDS = []")
    old = ask(arkdev, REQUEST, "--json")
    assert old.document["result"]["reward"] == 0.25
    assert old.document["code"]["changed"] == ["plugins/grader.py"]
    assert old.document["code"]["added"] == ["plugins/words.py"]
    assert old.document["code"]["was_deployed_now"] is False
    assert "plugins/grader.py changed; plugins/words.py added; sync deploys" in old.err
    new = ask(arkdev, REQUEST, "--sync", "--json")
    assert new.document["result"]["reward"] == 0.75
    assert new.document["code"]["changed"] == new.document["code"]["added"] == []
    assert json.loads(ask(arkdev, REQUEST).out)["reward"] == 0.75


def test_old_code_goes_on_though_the_workspace_can_no_longer_be_imported(workspace, arkdev):
    ask(arkdev, REQUEST)
    workspace.write("plugins/grader.py", "raise RuntimeError('half written')")
    told = ask(arkdev, REQUEST)
    assert json.loads(told.out)["reward"] == 0.25
    synced = ask(arkdev, REQUEST, "--sync")
    assert synced.exit_code == 2
    assert "half written" in synced.err


def test_the_documents_own_example_with_a_completion_is_answered(workspace, arkdev):
    told = ask(arkdev, {"sample": SAMPLE, "completion": TRAJECTORY}, "--sync")
    assert json.loads(told.out)["reward"] == 0.25


@pytest.mark.parametrize("how", ["file", "stdin"])
def test_a_request_is_read_from_a_file_or_from_standard_input(workspace, arkdev, monkeypatch, how):
    text = json.dumps(REQUEST)
    workspace.write("request.json", text)
    monkeypatch.setattr(sys, "stdin", io.StringIO(text))
    told = ask(arkdev, "@request.json" if how == "file" else "-")
    assert json.loads(told.out)["reward"] == 0.25


def test_what_the_plugin_raises_is_1_with_its_place(workspace, arkdev):
    told = ask(arkdev, {**REQUEST, "sample": {**SAMPLE, "extra": {"answer": "fail"}}})
    assert (told.exit_code, told.out) == (1, "")
    assert "error: ValueError: no such answer" in told.err
    assert "plugins/grader.py:11" in told.err
    assert "Traceback" not in told.err


def test_a_request_that_is_none_of_the_plugins_is_2(workspace, arkdev):
    told = ask(arkdev, {"sample": SAMPLE})
    assert (told.exit_code, told.out) == (2, "")
    assert "the request has no trajectory, which a single_grader is given" in told.err


@pytest.mark.parametrize(
    ("request_text", "fn", "said"),
    [
        ("{", "plugins.grader:one", "the request is not JSON"),
        ("request.json", "plugins.grader:one", "a file is named by --request @FILE"),
        ("@none.json", "plugins.grader:one", "the request cannot be read"),
        ("[1]", "plugins.grader:one", "a JSON list, not an object"),
        ("{}", "plugins/grader.py:one", "this is not module:function"),
        ("{}", "plugins.grader:none", "plugins.grader has no 'none'"),
    ],
)
def test_what_cannot_be_asked_is_2_before_anything_is_deployed(
    workspace, arkdev, tmp_path, request_text, fn, said
):
    told = ask(arkdev, request_text, fn=fn)
    assert (told.exit_code, told.out) == (2, "")
    assert said in told.err
    assert not (tmp_path / "config" / "state").exists()


def test_a_rollout_needs_no_proxy_where_an_endpoint_is_named(workspace, arkdev):
    workspace.write("requirements.txt", OPENAI)
    workspace.write(
        "plugins/rollout.py",
        """
        from arkdev import RolloutResult, rollout

        @rollout
        def answer(context, proxy, sample):
            client = proxy.rollout_client()
            client.chat.completions.create(model="m", messages=sample.model_dump()["messages"])
            return RolloutResult(extra={"text": proxy.messages[-1].content})
        """,
    )
    request = {"sample": SAMPLE}
    told = ask(arkdev, request, "--endpoint", "scripted", fn="plugins.rollout:answer")
    assert told.exit_code == 0, told.err
    assert json.loads(told.out)["extra"]["text"]
    without = ask(arkdev, request, fn="plugins.rollout:answer")
    assert without.exit_code == 2
    assert "the request has no proxy, which a single_rollout is given" in without.err


def test_variables_of_the_job_are_set_and_never_shown_or_kept(workspace, arkdev, tmp_path):
    workspace.write("plugins/grader.py", GRADER.replace('"turns"', 'os.environ["WORD"]'))
    plugin = {"name": "one", "python_func": "plugins.grader:one"}
    graders = [{"plugin": plugin, "envs": {"WORD": "hidden-word-1"}}]
    workspace.write("job.yaml", job_yaml(custom_rl_pipeline={"graders": graders}))
    request = {**REQUEST, "proxy": {"jwt_token": "token-of-a-caller"}}
    request["sample"] = {**SAMPLE, "extra": {"answer": "token-of-a-caller"}}
    told = ask(arkdev, request)
    assert told.exit_code == 0, told.err
    assert json.loads(told.out)["metrics"] == {"***": 2}
    assert "seen ***" in told.err
    assert "grading ***" in told.err
    kept = [path for path in (tmp_path / "config").rglob("*") if path.is_file()]
    texts = [path.read_text(encoding="utf-8") for path in kept]
    assert [text for text in texts if "hidden-word-1" in text or "token-of" in text] == []
    assert any("plugins.grader:one" in text for text in texts)
