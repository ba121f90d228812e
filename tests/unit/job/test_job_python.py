"""job.py: it runs once, its job is found, its mistakes are the user's file:line."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from arkdev.errors import ComesLaterError, JobError
from arkdev.job.job import Job
from arkdev.job.models import ModelCustomizationJob
from arkdev.job.reader import read_job

HEAD = """\
from arkdev.job.models import *
from plugins.reward import grade, roll

def make(name, **more):
    return ModelCustomizationJob(
        name=name,
        data=Data(training_set=TrainingDataset(local_files=["data/训练.jsonl"])),
        model_reference={"foundation_model": {"name": "m", "model_version": "1"}},
        custom_rl_pipeline=GRPOPipeline(
            rollout=PipelinePluginWrapper(plugin=roll, envs={"K": "v"}),
            graders=[grade, PipelinePluginWrapper(plugin="plugins.reward:grade", weight=0.5)],
        ),
        **more,
    )
"""

PLUGINS = """\
async def roll(context, proxy, sample):
    from plugins.late import VALUE
    return VALUE

def grade(context, sample, trajectories):
    return 1.0
"""


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    (tmp_path / "plugins").mkdir()
    (tmp_path / "plugins" / "reward.py").write_text(PLUGINS, encoding="utf-8")
    (tmp_path / "plugins" / "late.py").write_text("VALUE = 7\n", encoding="utf-8")
    return tmp_path


def read(workspace: Path, body: str) -> Job:
    (workspace / "job.py").write_text(HEAD + body, encoding="utf-8")
    job = read_job(workspace)
    assert job is not None
    return job


def test_the_submitted_job_is_read_and_the_script_stops_there(workspace: Path) -> None:
    job = read(
        workspace,
        'if __name__ == "__main__":\n'
        '    other = make("other")\n'
        '    mcj = make("mine", hyperparameters={"batch_size": "32", "lr": 1e-6})\n'
        "    mcj.submit(debug=True)\n"
        "    print(mcj.url)\n"
        "    raise RuntimeError\n",
    )
    assert (job.name, job.customization_type, job.batch_size) == ("mine", "GRPO", 32)
    assert job.training_files == (workspace / "data" / "训练.jsonl",)
    assert job.rollout is not None and callable(job.rollout.reference)
    assert (job.rollout.name, job.rollout.envs) == ("roll", {"K": "v"})
    assert [(g.name, g.weight) for g in job.graders] == [("grade", 1.0), ("grade", 0.5)]
    assert job.source == workspace / "job.py"


@pytest.mark.parametrize(
    "body",
    [
        'job = make("one")\n',
        'job = again = make("one")\n',
        "import asyncio\nasync def main():\n    make('one').submit()\nasyncio.run(main())\n",
        "import sys\nmake('one').submit() if 0 else make('one')\nsys.exit(0)\n",
        "try:\n    make('one').submit()\nexcept BaseException:\n    pass\nmake('two')\n",
        "job = make('zero')\njob.name = 'one'\n",
    ],
)
def test_the_only_job_is_found_however_it_is_made(workspace: Path, body: str) -> None:
    assert read(workspace, body).name == "one"


async def test_late_imports_of_a_plugin_go_on_working(workspace: Path) -> None:
    job = read(workspace, 'make("one")\n')
    assert job.rollout is not None and callable(job.rollout.reference)
    assert await job.rollout.reference(None, None, None) == 7


def test_the_process_is_as_before(workspace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = (sys.modules["__main__"], list(sys.argv), list(sys.path), Path.cwd())
    read(workspace, 'import sys, os\nprint("hello", sys.argv, os.getcwd())\nmake("one")\n')
    assert (sys.modules["__main__"], list(sys.argv), list(sys.path), Path.cwd()) == before
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "hello" in printed.err and str(workspace) in printed.err


@pytest.mark.parametrize(
    ("body", "place", "message"),
    [
        ("1 / 0\n", "job.py:15", "ZeroDivisionError"),
        ("def f(:\n", "job.py:15", "SyntaxError"),
        ("import plugins.broken\n", "plugins/broken.py:2", "RuntimeError: no"),
        ("import sys\nsys.exit(3)\n", "job.py:16", "exit code 3"),
        ("make('x', leaning_rate=1)\n", "job.py:5", "unknown key 'leaning_rate'"),
        ("make('x', learning_rate=1)\n", "job.py:5", "it belongs in hyperparameters"),
        ("make('x', tag=[])\n", "job.py:5", "did you mean 'tags'?"),
        ("make('x', hyperparameters={'lr': '1e-5x'})\n", "job.py:5", "hyperparameters.lr: '1e-5x'"),
        ("GRPOPipeline(graders=[])\n", "job.py:15", "at least one grader"),
        ("GRPOPipeline(rollout=[roll, roll], graders=[grade])\n", "job.py:15", "only one rollout"),
        ("PipelinePluginWrapper(plugin=grade, envs={'A': 1})\n", "job.py:15", "envs.A"),
        ("ModelCustomizationJob.get('mcj-1')\n", "job.py:15", "not built yet"),
        ("x = 1\n", "job.py", "makes no ModelCustomizationJob"),
        ("a = make('a')\nb = make('b')\n", "job.py", "'a' and 'b'"),
        ("a = make('a')\na.hyperparameters['lr'] = 'x'\n", "job.py", "hyperparameters.lr"),
    ],
)
def test_a_mistake_is_told_with_the_users_line(
    workspace: Path, body: str, place: str, message: str
) -> None:
    (workspace / "plugins" / "broken.py").write_text(
        "# first\nraise RuntimeError('no')\n", encoding="utf-8"
    )
    with pytest.raises(JobError) as caught:
        read(workspace, body)
    text = str(caught.value).replace(f"{workspace}/", "")
    assert text.startswith(f"{place}: ")
    assert message in text


def test_a_second_workspaces_plugins_are_its_own(workspace: Path, tmp_path_factory) -> None:
    read(workspace, 'make("one")\n')
    other = tmp_path_factory.mktemp("other")
    (other / "plugins").mkdir()
    (other / "plugins" / "reward.py").write_text(
        PLUGINS.replace("def grade", "def grade2") + "grade = grade2\n", encoding="utf-8"
    )
    assert read(other, 'make("two")\n').graders[0].name == "grade2"


def test_submission_outside_of_a_reading_says_what_to_run() -> None:
    job = ModelCustomizationJob(
        model_reference={"custom_model_id": "cm-1"},
        data={"training_set": {"local_files": ["x"]}},
        custom_rl_pipeline={"graders": ["p:f"]},
    )
    for call in (job.submit, lambda: job.url, job.refresh, lambda: job.get("mcj-1")):
        with pytest.raises(ComesLaterError) as caught:
            call()
        assert "arkdev test plugin" in caught.value.hint


def test_the_api_key_never_shows() -> None:
    fields = {
        "model_reference": {"custom_model_id": "cm-1"},
        "data": {"training_set": {"local_files": ["x"]}},
        "custom_rl_pipeline": {"graders": [{"plugin": "p:f", "envs": {"ARK_TRACE_SK": "sk-2"}}]},
        "debug_config": {"apikey": "sk-1", "endpoint_id": "ep-1"},
    }
    job = ModelCustomizationJob(**fields)
    assert "sk-1" not in f"{job!r} {job!s} {job.model_dump()} {job.model_dump_json()}"
    assert "sk-2" not in f"{job!r}"
    with pytest.raises(ValueError, match="name") as caught:
        ModelCustomizationJob(**fields, nmae=1)
    assert "sk-1" not in f"{caught.value!r}"


def test_a_script_that_swallows_the_end_of_submit_has_submitted(workspace: Path) -> None:
    body = "job = make('a')\ntry:\n  job.submit()\nexcept BaseException:\n  pass\nprint(job.url)"
    assert read(workspace, body).name == "a"
