"""`arkdev data check` as a command; forms of a dataset end to end (6.1, 6.2, 6.5, 6.6, 6.7)."""

from __future__ import annotations

import codecs
import json
import os
import pty
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from arkdev.errors import DataError
from arkdev.flows.test_plan import plan_test
from arkdev.flows.test_request import PluginTestRequest
from tests.integration.workspace import Command, Workspace, job_yaml

READS_ANSWER = """
    from arkdev import single_grader

    @single_grader
    def one(context, sample, trajectory):
        return float(sample.extra["answer"] == "2")
"""
C_LOCALE = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}


def asks(question: str, **fields: object) -> dict[str, object]:
    return {"messages": [{"role": "user", "content": question}], **fields}


def test_a_report_shows_lines_statistics_missing_keys_and_duplicates(
    workspace: Workspace, arkdev: Command
) -> None:
    workspace.write("plugins/grader.py", READS_ANSWER)
    workspace.lines(
        [asks("1+1", extra={"answer": "2"}), asks("2+2"), asks("1+1", extra={"answer": "3"})]
    )
    told = arkdev("data", "check")
    assert told.exit_code == 0, told.err
    for said in (
        "1 sample (33%) without extra.answer, which the grader one reads at plugins/grader.py:6",
        "and fails without",
        "see data.jsonl:2",
        "1 of 3 samples",
        "data.jsonl:1, data.jsonl:3, different extra",
        "messages by role",
        "tokens (estimate)",
        "good: 3 samples, 0 errors, 1 warning",
    ):
        assert said in told.out


def test_refused_data_ends_with_2_and_shows_no_more_lines_than_asked(
    workspace: Workspace, arkdev: Command
) -> None:
    (workspace.root / "data.jsonl").write_text("{}\n" * 50 + json.dumps(asks("x")), "utf-8")
    told = arkdev("data", "check", "--show", "3")
    assert told.exit_code == 2
    assert told.out.count("error: data.jsonl:") == 3
    assert "47 more errors" in told.out
    assert "50  messages is missing" in told.out
    assert "error: training_set refused: 1 sample, 50 errors, 0 warnings" in told.err
    document = arkdev("data", "check", "--show", "3", "--json").document
    (only,) = document["sets"]
    assert (document["exit_code"], only["errors"]["count"]) == (2, 50)
    assert only["errors"]["shown"][0]["where"] == "data.jsonl:1"


def test_the_grader_is_not_run_nor_imported(workspace: Workspace, arkdev: Command) -> None:
    workspace.write(
        "plugins/grader.py", READS_ANSWER + '\n    open("was_here", "w", encoding="utf-8")\n'
    )
    assert "extra.answer" in arkdev("data", "check").out
    assert not (workspace.root / "was_here").exists()


def test_what_a_job_py_prints_stays_out_of_the_document(
    workspace: Workspace, arkdev: Command
) -> None:
    workspace.write(
        "job.py",
        """
        from arkdev.job.models import ModelCustomizationJob

        print("noise")
        ModelCustomizationJob(
            customization_type="FinetuneSft",
            model_reference={"foundation_model": {"name": "m", "model_version": "1"}},
            data={"training_set": {"local_files": ["data.jsonl"]}},
        )
        """,
    )
    told = arkdev("data", "check", "--job", "job.py", "--json")
    assert told.document["exit_code"] == 0
    assert "noise" in told.err


def test_a_terminal_sees_a_bar(workspace: Workspace) -> None:
    master, slave = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-m", "arkdev", "data", "check"],
        cwd=workspace.root,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=slave,
        env=workspace.environment(TERM="xterm"),
    ) as process:
        os.close(slave)
        shown = b""
        with suppress(OSError):  # as Linux ends the reading of a terminal that is gone
            while read := os.read(master, 4096):
                shown += read
        os.close(master)
    assert process.returncode == 0
    assert b"reading" in shown


def test_any_text_form_of_a_file_is_the_same_data(workspace: Workspace, arkdev: Command) -> None:
    """Field case 6.1: BOM, CRLF, blank lines, no final newline; lines are the editor's."""
    plain = workspace.lines([asks("北京？"), asks("上海？"), asks("广州？")])
    expected = arkdev("data", "check", "--json").document["sets"][0]["statistics"]
    rows = plain.read_bytes().splitlines()
    plain.write_bytes(codecs.BOM_UTF8 + b"\r\n\r\n".join(rows))
    assert arkdev("data", "check", "--json").document["sets"][0]["statistics"] == expected
    plain.write_bytes(codecs.BOM_UTF8 + b"\r\n\r\n".join([*rows, b"{]"]))
    assert "error: data.jsonl:7:2: not valid JSON" in arkdev("data", "check").out


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "the file has no samples"),
        (json.dumps(asks("x")).encode("utf-16"), "looks like UTF-16"),
        ('{"messages": "北京"}'.encode("gbk"), "not UTF-8 text"),
    ],
)
def test_empty_and_foreign_files_get_their_own_words(
    workspace: Workspace, arkdev: Command, content: bytes, said: str
) -> None:
    """Field case 6.1."""
    (workspace.root / "data.jsonl").write_bytes(content)
    told = arkdev("data", "check")
    assert told.exit_code == 2
    assert said in told.out


def test_half_a_character_is_flagged_with_its_line(workspace: Workspace, arkdev: Command) -> None:
    """Field case 6.2: a pair is one character, the half is replaced and told."""
    pair = r'{"messages": [{"role": "user", "content": "\ud83c\udf78"}]}'
    half = r'{"messages": [{"role": "user", "content": "\ud83d"}]}'
    (workspace.root / "data.jsonl").write_text(f"{pair}\n{half}\n", "utf-8")
    found = arkdev("data", "check", "--json").document["sets"][0]
    assert [line["where"] for line in found["warnings"]["shown"]] == ["data.jsonl:2"]
    assert found["statistics"]["characters"]["max"] == 1


def test_an_unknown_key_of_a_row_is_kept_and_told_with_what_was_meant(
    workspace: Workspace, arkdev: Command
) -> None:
    """Field case 6.5: it reaches the plugins as it is, beside `extra`, and is never dropped."""
    workspace.write(
        "plugins/grader.py",
        """
        from arkdev import single_grader

        @single_grader
        def one(context, sample, trajectory):
            assert sample.extra is None
            return float(sample["extras"]["answer"])
        """,
    )
    workspace.lines([asks("hi", extras={"answer": 0.25}), asks("ho", extras={"answer": 0.75})])
    run = workspace.run()
    assert run.rewards == [(0.25,), (0.75,)]
    told = arkdev("data", "check")
    assert told.exit_code == 0
    assert "data.jsonl:1: unknown key 'extras'; did you mean 'extra'?" in told.out
    plan = plan_test(PluginTestRequest(start=workspace.root))
    assert [str(warning).rpartition("/")[2] for warning in plan.warnings] == [
        "data.jsonl:1: unknown key 'extras'; did you mean 'extra'? (2 lines)"
    ]


def test_a_key_twice_in_a_row_is_told_with_file_and_line(
    workspace: Workspace, arkdev: Command
) -> None:
    """Field case 6.6."""
    twice = '{"messages": [{"role": "user", "content": "x"}], "extra": {"a": 1}, "extra": {}}'
    (workspace.root / "data.jsonl").write_text(f"{json.dumps(asks('ok'))}\n{twice}\n", "utf-8")
    told = arkdev("data", "check")
    assert told.exit_code == 2
    assert "error: data.jsonl:2: key 'extra' is there more than once in one object" in told.out


def test_the_locale_changes_no_word_of_the_report(tmp_path: Path) -> None:
    """Field case 6.7: the same bytes of JSON under the C locale as under UTF-8."""
    workspace = Workspace(tmp_path / "工作区")
    workspace.write("plugins/grader.py", READS_ANSWER.replace("one", "打分"))
    workspace.lines(
        [asks("北京？", 备注=1), asks("上海？", extra={"答案": 1})], name="路径/数据.jsonl"
    )
    data = {"training_set": {"local_files": ["路径/数据.jsonl"]}}
    workspace.write("job.yaml", job_yaml(grader="plugins.grader:打分", data=data))
    told = []
    for locale in (C_LOCALE, {"LC_ALL": "C.UTF-8"}):
        process = workspace.start("data", "check", "--json", **locale)
        out, said = process.communicate(timeout=300)
        assert process.returncode == 0, said
        told.append(out)
    assert told[0] == told[1]
    document = json.loads(told[0].decode("utf-8"))
    assert list(document["sets"][0]["files"]) == ["路径/数据.jsonl"]
    assert document["sets"][0]["missing_keys"][0]["where"] == "plugins/grader.py:6"


def test_a_test_of_plugins_passes_over_what_the_job_tolerates(workspace: Workspace) -> None:
    data = {"training_set": {"local_files": ["data.jsonl"]}, "max_invalid_records_number": 1}
    workspace.write("job.yaml", job_yaml(data=data))
    good = json.dumps(asks("hello"))
    (workspace.root / "data.jsonl").write_text(f"{good}\n{{}}\n{good}\n", "utf-8")
    run = workspace.run()
    assert run.summary.verdicts == {"success": 2}
    plan = plan_test(PluginTestRequest(start=workspace.root))
    [warning] = plan.warnings
    assert "passed over, as max_invalid_records_number (1) allows" in str(warning)
    (workspace.root / "data.jsonl").write_text(f"{good}\n{{}}\n{{}}\n", "utf-8")
    with pytest.raises(DataError, match="2 problems"):
        plan_test(PluginTestRequest(start=workspace.root))


def test_a_dataset_of_the_platform_is_tested_by_what_stands_for_it(
    workspace: Workspace, arkdev: Command
) -> None:
    data = {"training_set": {"datasets": [{"dataset_id": "ds-1"}]}}
    workspace.write("job.yaml", job_yaml(data=data))
    for command in (("test", "plugin"), ("data", "check")):
        told = arkdev(*command)
        assert told.exit_code == 2
        assert "dataset ds-1 is on the platform" in told.err
        assert "[datasets]" in told.err
    workspace.write("arkworkspace.toml", '[datasets]\nds-1 = "data.jsonl"\n')
    assert workspace.run().summary.verdicts == {"success": 1}
    assert arkdev("data", "check").exit_code == 0
