"""`create_workspace`: whole or not at all, and never over anything that exists."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from arkdev.errors import UsageError, WorkspaceError
from arkdev.flows.init_workspace import TEMPLATES, create_workspace, templates_root

EXPECTED = {
    "rl_demo": {
        "data/mcj_rollout_test_dataset.jsonl",
        "data/mcj_rollout_validation_dataset.jsonl",
        "plugins/async_weather_rollout.py",
        "plugins/random_reward.py",
        "plugins/raw_rollout.py",
        "plugins/test_utils.py",
        "plugins/weather_rollout.py",
        "test_faas.py",
    },
    "rl_search_mcp_demo": {
        "data/search_dataset.jsonl",
        "data/search_dataset_dev_100.jsonl",
        "mcp_config.json",
        "plugins/coze_monitor.py",
        "plugins/draft_rollout_arkitect.py",
        "plugins/llm_grader.py",
        "plugins/rollout.py",
        "plugins/test_utils.py",
        "test_faas.py",
    },
    "minimal": {"data/train.jsonl", "data/validation.jsonl", "plugins/exact_answer.py"},
}
COMMON = {
    ".gitignore",
    "README.md",
    "arkworkspace.toml",
    "job.py",
    "job.yaml",
    "requirements.txt",
    "typings/ark_sdk/__init__.pyi",
}


def snapshot(folder: Path) -> dict[str, bytes | None]:
    """Every entry under `folder` with its content."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes() if path.is_file() else None
        for path in folder.rglob("*")
    }


def test_every_template_folder_is_described() -> None:
    folders = {path.name for path in templates_root().iterdir() if path.is_dir()}
    assert folders == set(TEMPLATES)


@pytest.mark.parametrize("template", sorted(TEMPLATES))
def test_workspace_holds_the_files_of_its_template(tmp_path: Path, template: str) -> None:
    files = create_workspace(tmp_path / "deep" / "工作区", template=template)
    names = {file.as_posix() for file in files}
    assert names >= EXPECTED[template] | COMMON
    assert names == {
        n for n, data in snapshot(tmp_path / "deep/工作区").items() if data is not None
    }
    assert not any("__pycache__" in name or name == "gitignore" for name in names)


def test_leftovers_of_running_a_template_in_place_are_not_copied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "templates"
    shutil.copytree(templates_root(), root)
    for leftover in ("plugins/__pycache__/x.pyc", ".pytest_cache/x", "runs/1/manifest.json"):
        (root / "minimal" / leftover).parent.mkdir(parents=True, exist_ok=True)
        (root / "minimal" / leftover).write_text("x", encoding="utf-8")
    monkeypatch.setattr("arkdev.__file__", str(tmp_path / "arkdev" / "__init__.py"))
    names = {file.as_posix() for file in create_workspace(tmp_path / "ws", template="minimal")}
    assert not {name for name in names if "_cache" in name or "pycache" in name or "runs" in name}
    assert "plugins/exact_answer.py" in names


def test_nothing_else_is_left_beside_the_workspace(tmp_path: Path) -> None:
    create_workspace(tmp_path / "ws", template="minimal")
    assert [path.name for path in tmp_path.iterdir()] == ["ws"]


def test_an_existing_empty_folder_is_filled_in_place(tmp_path: Path) -> None:
    target = tmp_path / "ws"
    target.mkdir()
    inode = target.stat().st_ino
    create_workspace(target, template="minimal")
    # a shell that stands in the folder, or a mount point, must stay valid
    assert target.stat().st_ino == inode
    assert (target / "job.yaml").is_file()
    assert not list(target.glob(".arkdev-init-*"))


def test_a_folder_that_holds_something_is_not_touched(tmp_path: Path) -> None:
    (tmp_path / "ws").mkdir()
    (tmp_path / "ws/job.yaml").write_text("mine", encoding="utf-8")
    before = snapshot(tmp_path)
    with pytest.raises(WorkspaceError, match="not empty") as caught:
        create_workspace(tmp_path / "ws", template="minimal")
    assert "new folder" in caught.value.hint
    assert snapshot(tmp_path) == before


def test_a_hidden_file_makes_a_folder_not_empty(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("KEY=1", encoding="utf-8")
    with pytest.raises(WorkspaceError, match="not empty"):
        create_workspace(tmp_path, template="minimal")


@pytest.mark.parametrize("kind", ["file", "dangling link"])
def test_a_name_that_is_taken_is_refused(tmp_path: Path, kind: str) -> None:
    target = tmp_path / "ws"
    if kind == "file":
        target.write_text("mine", encoding="utf-8")
    else:
        target.symlink_to(tmp_path / "gone")
        (tmp_path / "gone").write_text("mine", encoding="utf-8")
    with pytest.raises(WorkspaceError, match="not a folder"):
        create_workspace(target, template="minimal")
    assert target.read_text(encoding="utf-8") == "mine"


def test_unknown_template_lists_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="rl_dem0") as caught:
        create_workspace(tmp_path / "ws", template="rl_dem0")
    lines = caught.value.hint.splitlines()[1:]
    assert [line.split()[0] for line in lines] == list(TEMPLATES)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_place_that_cannot_be_written_is_an_error_of_the_user(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    try:
        with pytest.raises(WorkspaceError, match="Permission denied"):
            create_workspace(tmp_path / "ws", template="minimal")
    finally:
        tmp_path.chmod(0o700)


@pytest.mark.parametrize("exists", [False, True])
def test_a_failure_half_way_leaves_nothing(
    tmp_path: Path, exists: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "ws"
    if exists:
        target.mkdir()
    before = snapshot(tmp_path)

    def disk_full(source: Path, destination: Path) -> None:
        if source.suffix == ".py":
            raise OSError(28, "No space left on device")
        destination.write_bytes(source.read_bytes())

    monkeypatch.setattr(shutil, "copyfile", disk_full)
    with pytest.raises(WorkspaceError, match="No space left"):
        create_workspace(target, template="rl_demo")
    assert snapshot(tmp_path) == before


def test_a_parent_that_is_a_file_is_an_error_of_the_user(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    with pytest.raises(WorkspaceError):
        create_workspace(tmp_path / "file" / "ws", template="minimal")
