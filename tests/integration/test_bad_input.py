"""What is wrong, where, and what to do: each error as a person reads it."""

from __future__ import annotations

from pathlib import Path

import pytest

import arkdev
from tests.integration.workspace import ASK_ONCE, Command, Workspace, job_yaml

PLUGINS = """
    from arkdev import rollout, single_grader

    @single_grader
    def good(context, sample, trajectory):
        return 1.0

    @rollout
    def also(context, proxy, sample):
        return None

    def plain(context, sample, trajectory):
        return 1.0
"""


@pytest.fixture(autouse=True)
def plugins(workspace: Workspace) -> None:
    workspace.write("plugins/several.py", PLUGINS)
    workspace.write("plugins/short.py", PLUGINS.replace("good(context, sample, tr", "good(tr"))
    workspace.write("plugins/missing.py", "import no_such_package\n")
    workspace.write("plugins/top_level.py", '\nX = {}["key"]\n')
    workspace.write("plugins/syntax.py", "x = 1\ndef f(:\n")


def complaint(arkdev: Command, *arguments: str) -> str:
    """What the command says when it refuses; it runs nothing and never shows a traceback."""
    told = arkdev("test", "plugin", *arguments)
    assert (told.exit_code, told.out) == (2, "")
    assert "Traceback" not in told.err
    assert not Path("runs").exists()
    return told.err


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("gone.jsonl", None, "error: there is no such data file\nwhere: gone.jsonl"),
        ("empty.jsonl", "", "error: the file has no samples\nwhere: empty.jsonl"),
        ("x.jsonl", "{}\nnot json\n", "x.jsonl:2:1: not valid JSON"),
        ("x.jsonl", '{"mesages": []}', "messages is missing; is 'mesages' meant to be it?"),
        ("x.jsonl", '[{"messages": []}]', "the file is a JSON array; write one JSON object a line"),
    ],
)
def test_a_data_file_that_cannot_be_used(
    workspace: Workspace, arkdev: Command, name: str, content: str | None, said: str
) -> None:
    if content is not None:
        workspace.write(name, content)
    told = complaint(arkdev, "--data", name)
    assert said in told
    assert "hint: nothing was run; correct the file and try again" in told


@pytest.mark.parametrize(
    ("reference", "said", "place"),
    [
        ("short:good", "good takes (trajectory), but @single_grader makes it be called with", ":4"),
        ("several:plain", "plugins.several:plain is not a plugin: it has no decorator", ":12"),
        ("several:also", "is a single_rollout, not a grader", ":8"),
        ("missing:f", "No module named 'no_such_package'", ":1"),
        ("top_level:f", "importing plugins.top_level failed: KeyError: 'key'", ":2"),
        ("syntax:f", "importing plugins.syntax failed: SyntaxError", ":2"),
    ],
)
def test_a_plugin_that_cannot_be_used_is_named_with_file_and_line(
    workspace: Workspace, arkdev: Command, reference: str, said: str, place: str
) -> None:
    told = complaint(arkdev, "--grader", f"plugins.{reference}")
    file = workspace.root / "plugins" / f"{reference.partition(':')[0]}.py"
    assert said in told
    assert f"where: {file}{place}\n" in told


def test_the_signature_to_write_is_shown(arkdev: Command) -> None:
    told = complaint(arkdev, "--grader", "plugins.short:good")
    assert "hint: def good(context, sample, trajectory): ..." in told


def test_an_unknown_grader_is_told_what_was_found(workspace: Workspace, arkdev: Command) -> None:
    told = complaint(arkdev, "--grader", "plugins.several:gode")
    assert "plugins.several has no 'gode'" in told
    assert "plugins.several:good (single_grader)" in told
    told = complaint(arkdev, "--grader", "plugins.sevral:good")
    assert f"no module plugins.sevral in {workspace.root}" in told
    assert "modules found:" in told and "plugins.several" in told


@pytest.mark.parametrize("text", ["plugins.several", ":good", "plugins.several:"])
def test_a_reference_without_both_parts_is_shown_an_example(arkdev: Command, text: str) -> None:
    told = complaint(arkdev, "--grader", text)
    assert "is not of the form module:function" in told
    assert "hint: for example plugins.weather_rollout:demo_rollout" in told


def test_a_weight_that_is_no_number_is_named(arkdev: Command) -> None:
    told = complaint(arkdev, "--grader", "plugins.several:good=heavy")
    assert "'heavy' is not a weight" in told


def test_a_second_rollout_is_refused(arkdev: Command) -> None:
    told = complaint(arkdev, "--rollout", "plugins.rollout:answer", "--rollout", "plugins.a:b")
    assert "a test has one rollout" in told


def test_outside_a_workspace_the_two_ways_in_are_named(
    arkdev: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path / "elsewhere")
    told = complaint(arkdev)
    assert f"no job.yaml or job.py in {tmp_path / 'elsewhere'}" in told
    assert "arkdev init DIR" in told and "--rollout" in told


def test_a_sample_that_is_no_json_shows_one(arkdev: Command) -> None:
    told = complaint(arkdev, "--sample", "hello")
    assert "not valid JSON" in told
    assert 'hint: a sample is one JSON object: {"messages": [' in told


def test_a_users_exception_is_theirs_alone(workspace: Workspace, arkdev: Command) -> None:
    workspace.write(
        "plugins/rollout.py",
        ASK_ONCE + "        def inner():\n            return 1 / 0\n        inner()\n",
    )
    told = arkdev("test", "plugin")
    assert told.exit_code == 1
    assert "ZeroDivisionError: division by zero" in told.out
    assert "plugins/rollout.py:9" in "".join(told.out.split())
    assert "Traceback" not in told.out + told.err
    record = arkdev("show", "latest", "0.0", "--json").document["trajectory"]
    trace = record["attempts"][-1]["traceback"]
    assert "return 1 / 0" in trace
    assert "/arkdev/" not in trace


def test_an_absurd_concurrency_is_refused(workspace: Workspace, arkdev: Command) -> None:
    told = arkdev("test", "plugin", "--concurrency", "99999999999")
    assert told.exit_code == 2
    assert "more than 100,000" in told.err


EXITS_IN_A_TOOL = """
    import asyncio, sys
    from arkdev import rollout

    async def tool():
        await asyncio.sleep(0)
        sys.exit(3)

    @rollout
    async def answer(context, proxy, sample):
        client = proxy.async_rollout_client()
        await client.chat.completions.create(model="m", messages=sample.model_dump()["messages"])
        if sample.messages[0].content == "bad":
            await asyncio.gather(tool(), tool())
"""


def test_sys_exit_in_a_tool_of_its_own_task_fails_that_rollout_alone(
    workspace: Workspace, arkdev: Command
) -> None:
    workspace.write("plugins/rollout.py", EXITS_IN_A_TOOL)
    workspace.samples("bad", "good")
    told = arkdev("test", "plugin", "--json")
    assert told.exit_code == 1
    assert told.document["summary"]["verdicts"] == {"failure": 1, "success": 1}
    assert "sys.exit(3)" in told.out


@pytest.mark.parametrize(
    ("flag", "value", "range_"),
    [
        ("--grader", "plugins.several:good=nan", "a finite number is expected"),
        ("--grader", "plugins.several:good=1e400", "a finite number is expected"),
        ("--temperature", "nan", "a number from 0 to 2 is expected"),
        ("--temperature", "-1", "a number from 0 to 2 is expected"),
        ("--top-p", "7", "a number above 0, at most 1 is expected"),
        ("--max-new-tokens", "-3", "at least 1 is expected"),
    ],
)
def test_a_number_out_of_range_names_the_flag_and_its_range(
    arkdev: Command, flag: str, value: str, range_: str
) -> None:
    told = complaint(arkdev, flag, value)
    assert flag in told
    assert range_ in told


def test_numbers_out_of_range_in_the_data_and_the_job(
    workspace: Workspace, arkdev: Command
) -> None:
    workspace.lines([{"messages": [{"role": "user", "content": "q"}], "temperature": 9}])
    assert "data.jsonl:1" in complaint(arkdev)
    assert "temperature is 9; a number from 0 to 2 is expected" in complaint(arkdev)
    workspace.write("job.yaml", job_yaml(hyperparameters={"top_p": 7}))
    assert "hyperparameters.top_p: 7 given" in complaint(arkdev)


def test_data_nested_too_deeply_is_refused_with_its_line_and_deep_data_runs(
    workspace: Workspace, arkdev: Command
) -> None:
    def nested(depth: int) -> str:
        return (
            '{"messages": [{"role": "user", "content": "q"}], "extra": '
            + '{"a": ' * depth
            + "1"
            + "}" * depth
            + "}\n"
        )

    workspace.write("data.jsonl", nested(1) + nested(300))
    told = complaint(arkdev)
    assert "nested more than 100 levels deep" in told
    assert "data.jsonl:2" in told
    workspace.write("data.jsonl", nested(98))
    assert arkdev("test", "plugin").exit_code == 0


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: " + "[" * 10_000 + "]" * 10_000, "nested more than 100 levels deep"),
        ("a: " + "[" * 200 + "]" * 200, "nested more than 100 levels deep"),
        (
            "a0: &a0 [x, x]\n"
            + "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 12)),
            "values, aliases counted in full",
        ),
        ("# " + "x" * 1_000_000, "larger than 1000000 bytes"),
    ],
)
def test_a_job_file_that_would_take_all_memory(
    workspace: Workspace, arkdev: Command, text: str, said: str
) -> None:
    workspace.write("job.yaml", text)
    told = complaint(arkdev)
    assert said in told
    assert "job.yaml" in told


def test_what_the_job_names_wrongly_is_told_with_its_line_and_the_near_name(
    workspace: Workspace, arkdev: Command
) -> None:
    def job(rollout: str, **plugin: object) -> str:
        named = {"plugin": {"name": "answer", "python_func": rollout, **plugin}}
        graders = ["plugins.grader:one"]
        return job_yaml(custom_rl_pipeline={"rollout": named, "graders": graders})

    workspace.write("job.yaml", job("plugins.rollout:anser"))
    told = complaint(arkdev)
    assert "plugins.rollout has no 'anser'" in told
    assert "named in job.yaml:" in told
    assert "did you mean 'answer'?" in told
    workspace.write("job.yaml", job("plugins.rolout:answer"))
    told = complaint(arkdev)
    assert "no module plugins.rolout" in told
    assert "where: job.yaml:" in told
    assert "did you mean 'plugins.rollout'?" in told
    workspace.write("job.yaml", job("plugins.rollout:answer", runtime={"timeout": 99999}))
    told = complaint(arkdev)
    assert "must be over 0 and at most 900 seconds" in told
    assert "job.yaml:" in told
    workspace.write("job.yaml", job_yaml(data={"training_set": {"local_files": ["dat.jsonl"]}}))
    told = complaint(arkdev)
    assert "there is no such data file; did you mean 'data.jsonl'?" in told
    assert "the file is named in job.yaml:" in told
    workspace.write("job.yaml", job_yaml(model_reference="m"))
    assert "model_reference: a mapping of keys and values is expected here" in complaint(arkdev)


def test_a_file_in_place_of_a_module_is_told_what_to_write(arkdev: Command) -> None:
    assert "write plugins.several:good" in complaint(arkdev, "--grader", "plugins/several.py:good")
    assert "correct the syntax there" in complaint(arkdev, "--grader", "plugins.syntax:good")


def test_a_sample_that_is_not_there_is_told_how_many_are(arkdev: Command) -> None:
    assert "it has 1 samples, 0 to 0" in complaint(arkdev, "--sample", "99")
    assert "indices count from 0" in complaint(arkdev, "--sample", "-1")


def test_no_hint_names_a_document_that_is_not_installed() -> None:
    package = Path(arkdev.__file__).parent
    hints = [
        f"{path}: {line}"
        for path in package.rglob("*.py")
        for line in path.read_text(encoding="utf-8").splitlines()
        if "hint" in line.lower() and "docs/" in line
    ]
    assert hints == []
