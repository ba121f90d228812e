"""Bytes that are not what they seem: data files, locales, code pages (6.1, 6.2, 6.6, 6.7, 9.1)."""

from __future__ import annotations

import codecs
import json
import subprocess
from pathlib import Path

import pytest

from arkdev.errors import DataError, JobError
from arkdev.flows.test_plan import plan_test
from arkdev.flows.test_request import PluginTestRequest
from arkdev.runs.reader import RunReader
from tests.integration.workspace import ASK_ONCE, Command, Workspace, job_yaml

QUESTIONS = ("北京？", "上海？", "广州？")


def test_a_bom_crlf_blank_lines_and_a_missing_newline_change_nothing(workspace: Workspace) -> None:
    plain = workspace.samples(*QUESTIONS)
    expected = workspace.run()
    lines = plain.read_text(encoding="utf-8").splitlines()
    text = "\r\n\r\n".join(lines)
    plain.write_bytes(codecs.BOM_UTF8 + text.encode())
    run = workspace.run()
    assert [t.messages for t in run.trajectories] == [t.messages for t in expected.trajectories]
    assert run.rewards == expected.rewards == [(1.0,)] * 3


def test_the_line_of_an_error_is_the_editors(workspace: Workspace, arkdev: Command) -> None:
    good = (workspace.root / "data.jsonl").read_bytes().strip()
    path = workspace.root / "data.jsonl"
    path.write_bytes(codecs.BOM_UTF8 + b"\r\n".join([good, b"", good, b'{"messages": [}']))
    told = arkdev("test", "plugin")
    assert told.exit_code == 2
    assert "data.jsonl:4" in told.err


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "has no samples"),
        (b"\n \n", "has no samples"),
        ('{"messages": []}'.encode("utf-16"), "UTF-16"),
        ('{"messages": [{"role": "user", "content": "北京"}]}'.encode("gbk"), "not UTF-8"),
    ],
)
def test_files_that_are_empty_or_not_utf_8_get_their_own_words(
    workspace: Workspace, content: bytes, said: str
) -> None:
    (workspace.root / "data.jsonl").write_bytes(content)
    with pytest.raises(DataError, match=said) as caught:
        plan_test(PluginTestRequest(start=workspace.root))
    assert "data.jsonl" in str(caught.value)


def test_half_a_character_is_replaced_and_flagged_on_its_sample(workspace: Workspace) -> None:
    data = workspace.root / "data.jsonl"
    data.write_text(
        '{"messages": [{"role": "user", "content": "\\ud83c\\udf78"}]}\n'
        '{"messages": [{"role": "user", "content": "quiet"}]}\n',
        encoding="utf-8",
    )
    script = workspace.script({"match": "quiet", "content": "half \ud83d"}, {"content": "whole"})
    run = workspace.run(script=script)
    pair, half = run.trajectories
    assert pair.messages[0]["content"] == "🍸"
    assert pair.warnings == ()
    assert half.messages[-1]["content"] == "half \ufffd"
    assert half.warnings == ("text_replaced",)
    for file in run.outcome.folder.rglob("*.jsonl"):
        file.read_bytes().decode("utf-8")
    assert run.exit_code == 0


def test_a_key_twice_in_a_line_is_refused_with_its_line(workspace: Workspace) -> None:
    good = (workspace.root / "data.jsonl").read_text(encoding="utf-8")
    twice = '{"messages": [{"role": "user", "content": "x"}], "extra": {"a": 1}, "extra": {}}'
    (workspace.root / "data.jsonl").write_text(good + twice, encoding="utf-8")
    with pytest.raises(DataError, match="'extra'") as caught:
        plan_test(PluginTestRequest(start=workspace.root))
    assert "data.jsonl:2" in str(caught.value)


def test_two_rollouts_in_the_job_are_refused_with_both_lines(workspace: Workspace) -> None:
    workspace.write(
        "job.yaml",
        """\
        name: two
        customization_type: GRPO
        model_reference: {foundation_model: {name: m, model_version: "1"}}
        data: {training_set: {local_files: [data.jsonl]}}
        custom_rl_pipeline:
          rollout: {plugin: {python_func: plugins.rollout:answer}}
          rollout: {plugin: {python_func: plugins.rollout:other}}
          graders: [{plugin: {python_func: plugins.grader:one}}]
        """,
    )
    with pytest.raises(JobError, match=r"'rollout'.*line 6") as caught:
        plan_test(PluginTestRequest(start=workspace.root))
    assert "job.yaml:7" in str(caught.value)


CHINESE_GRADER = '''
    from arkdev import single_grader

    @single_grader
    def 打分(context, sample, trajectory):
        """读取旁边的文件，再打分。"""
        return {"reward": 1.0, "metrics": {"长度": float(len(trajectory.messages))}}
'''
C_LOCALE = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}


def test_chinese_paths_and_names_work_under_the_c_locale(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path / "工作区")
    workspace.write("plugins/grader.py", CHINESE_GRADER)
    workspace.samples(*QUESTIONS, name="路径/数据.jsonl")
    data = {"training_set": {"local_files": ["路径/数据.jsonl"]}}
    workspace.write(
        "job.yaml", job_yaml(grader="plugins.grader:打分", grader_name="评分", data=data)
    )
    told, said = communicate(workspace, "test", "plugin", "--json", **C_LOCALE)
    document = json.loads(told.decode("utf-8"))
    assert document["exit_code"] == 0, said
    (grader,) = document["summary"]["graders"]
    assert (grader["name"], list(grader["metrics"])) == ("评分", ["长度"])
    here = workspace.run()
    assert here.summary.reward is not None
    assert document["summary"]["reward"]["mean"] == here.summary.reward.mean == 1.0
    assert document["settings"]["workspace"] == str(workspace.root)
    records = RunReader(Path(document["folder"])).trajectories()
    assert {r.trajectory_id: r.messages for r in records} == {
        r.trajectory_id: r.messages for r in here.trajectories
    }


@pytest.mark.parametrize("encoding", ["cp1252", "gbk"])
def test_a_code_page_costs_characters_and_nothing_else(workspace: Workspace, encoding: str) -> None:
    workspace.write("plugins/rollout.py", ASK_ONCE.replace('"m"', '"✓ 中文 😊"'))
    workspace.write("plugins/grader.py", CHINESE_GRADER)
    workspace.write("job.yaml", job_yaml(grader="plugins.grader:打分", grader_name="✓ 中文 😊"))
    told, said = communicate(workspace, "test", "plugin", PYTHONIOENCODING=encoding)
    assert b"Traceback" not in said
    text = told.decode(encoding)
    assert "1 of 1 rollout graded" in text
    assert ("中文" in text) == (encoding == "gbk")


def test_json_is_utf_8_without_colour_under_any_code_page(workspace: Workspace) -> None:
    workspace.write("plugins/grader.py", CHINESE_GRADER)
    workspace.write("job.yaml", job_yaml(grader="plugins.grader:打分", grader_name="✓ 中文 😊"))
    colours = {"PYTHONIOENCODING": "gbk", "FORCE_COLOR": "1"}
    told, _ = communicate(workspace, "test", "plugin", "--sample", "0", "--json", **colours)
    document = json.loads(told.decode("utf-8"))
    assert b"\x1b" not in told
    (grader,) = document["summary"]["graders"]
    assert (grader["name"], list(grader["metrics"])) == ("✓ 中文 😊", ["长度"])


@pytest.mark.parametrize("arguments", [("--help",), ("test", "plugin", "--help")])
def test_help_in_a_pipe_needs_no_unicode(workspace: Workspace, arguments: tuple[str, ...]) -> None:
    process = workspace.start(*arguments, PYTHONIOENCODING="cp1252")
    cat = subprocess.run(["cat"], stdin=process.stdout, capture_output=True, check=True)
    _, said = process.communicate(timeout=300)
    assert (process.returncode, said) == (0, b"")
    assert b"Usage: arkdev" in cat.stdout


def communicate(workspace: Workspace, *arguments: str, **environment: str) -> tuple[bytes, bytes]:
    """Run `arkdev *arguments` to its end, which must be a success; return stdout and stderr."""
    process = workspace.start(*arguments, **environment)
    told, said = process.communicate(timeout=300)
    assert process.returncode == 0, said.decode(errors="replace")
    return told, said


def test_what_could_not_be_written_as_it_was_is_counted_in_the_report(workspace: Workspace) -> None:
    rollout = """
        from arkdev import rollout

        @rollout
        def answer(context, proxy, sample):
            client = proxy.rollout_client()
            client.chat.completions.create(model="m", messages=sample.model_dump()["messages"])
            return {"extra": {"note": "half \\ud83d", "set": {1}}}
    """
    workspace.write("plugins/rollout.py", rollout)
    run = workspace.run()
    assert {w.code: w.count for w in run.summary.warnings} == {"text_replaced": 1, "not_json": 1}


def test_what_a_test_does_not_mix_is_said(workspace: Workspace, arkdev: Command) -> None:
    """A test takes each sample once; training would take some twice and hold some back."""
    workspace.write(
        "arkworkspace.toml", '[datasets]\n"ds-1" = "data.jsonl"\n"p-1" = "data.jsonl"\n'
    )
    mixed = {
        "training_set": {"datasets": [{"dataset_id": "ds-1", "multiplier": 2}]},
        "preset_dataset": {"dataset_version_id": "p-1", "inject_sample_count": 1},
        "validation_percentage": 50,
    }
    workspace.write("job.yaml", job_yaml(data=mixed))
    told = arkdev("test", "plugin")
    assert "note: each sample of the training files is taken once" in told.err
    assert "multiplier, preset_dataset, validation_percentage of the job's data" in told.err
    assert "taken once" not in arkdev("test", "plugin", "--data", "data.jsonl").err
    workspace.write("job.yaml", job_yaml())
    assert "taken once" not in arkdev("test", "plugin").err
