"""Files are read alike under every locale (field case 6.7)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[3]

SCRIPT = """\
import json, os, sys
from pathlib import Path
from arkdev.job.dataset import load_dataset
from arkdev.job.reader import read_job
from arkdev.job.workspace import find_workspace

workspace = find_workspace(Path(sys.argv[1]) / "plugins")
job = read_job(workspace.root, workspace.root / sys.argv[2])
data = load_dataset(job.training_files)
print(json.dumps([
    job.name,
    [grader.name for grader in job.graders],
    job.graders[0].envs,
    [item.raw for item in data.samples],
    [str(warning) for warning in data.warnings],
]))
"""

YAML = """\
name: 任务
model_reference: {custom_model_id: cm-1}
data: {training_set: {local_files: [./路径/数据.jsonl]}}
custom_rl_pipeline:
  pipeline_type: GRPOPipeline
  graders: [{plugin: "plugins.scoring:打分", envs: {变量: 值}}]
"""

PYTHON = """\
from arkdev.job.models import *
from plugins.scoring import 打分
ModelCustomizationJob(
    name="任务",
    model_reference={"custom_model_id": "cm-1"},
    data={"training_set": {"local_files": ["路径/数据.jsonl"]}},
    custom_rl_pipeline={"graders": [PipelinePluginWrapper(plugin=打分, envs={"变量": "值"})]},
    customization_type="GRPO",
).submit()
"""


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    root = tmp_path / "工作区"
    (root / "plugins").mkdir(parents=True)
    (root / "路径").mkdir()
    (root / "plugins" / "scoring.py").write_text(
        "# 中文\ndef 打分(c, s, t): ...\n", encoding="utf-8"
    )
    (root / "路径" / "数据.jsonl").write_text(
        '{"messages": [{"role": "user", "content": "你好"}], "附": 1}\n', encoding="utf-8"
    )
    (root / "job.yaml").write_text(YAML, encoding="utf-8")
    (root / "job.py").write_text(PYTHON, encoding="utf-8")
    return root


@pytest.mark.parametrize("file", ["job.yaml", "job.py"])
@pytest.mark.parametrize("locale", ["C", "C.UTF-8"])
def test_the_locale_changes_nothing(workspace: Path, file: str, locale: str) -> None:
    env = {
        "PATH": os.environ.get("PATH", ""),
        "PYTHONPATH": str(REPOSITORY),
        "LC_ALL": locale,
        "PYTHONUTF8": "0",
        "PYTHONCOERCECLOCALE": "0",
    }
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(workspace), file],
        env=env,
        cwd=workspace.parent,
        capture_output=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode("utf-8", "replace")
    raw = {"messages": [{"role": "user", "content": "你好"}], "附": 1}
    warning = "工作区/路径/数据.jsonl:1: unknown key '附'; data of your own goes in 'extra'"
    assert json.loads(done.stdout) == ["任务", ["打分"], {"变量": "值"}, [raw], [warning]]
