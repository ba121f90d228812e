"""The wheel of arkdev's function side."""

from __future__ import annotations

import shutil
import tomllib
import zipfile
from pathlib import Path

import pytest

import arkdev
from arkdev.faas_emulator.packages.function_wheel import (
    FUNCTION_REQUIRES,
    function_wheel,
    is_left_out,
)

ROOT = Path(__file__).resolve().parents[4]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return function_wheel(tmp_path_factory.mktemp("wheel"))


def test_the_wheel_has_the_same_bytes_wherever_it_is_made(
    wheel: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copied = tmp_path / "site-packages" / "arkdev"  # as an installed wheel has it
    shutil.copytree(
        Path(arkdev.__file__).parent, copied, ignore=shutil.ignore_patterns("__pycache__")
    )
    monkeypatch.setattr(arkdev, "__file__", str(copied / "__init__.py"))
    other = function_wheel(tmp_path / "new" / "folder")
    assert other.name == wheel.name
    assert other.read_bytes() == wheel.read_bytes()
    (copied / "types.py").write_text("# changed\n", encoding="utf-8")
    assert function_wheel(tmp_path).name != wheel.name
    assert function_wheel(tmp_path / "new" / "folder") != other


def test_the_wheel_holds_the_function_side_and_says_what_it_needs(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        assert archive.testzip() is None
        names = archive.namelist()
        [metadata] = [n for n in names if n.endswith("METADATA")]
        text = archive.read(metadata).decode()
    assert f"Requires-Dist: {FUNCTION_REQUIRES}\n" in text
    assert "Requires-Python: >=3.10\n" in text
    folders = {name.split("/")[1] for name in names if name.startswith("arkdev/")}
    assert folders.isdisjoint({"cli", "flows", "harness", "sessions", "endpoints", "tape"})
    assert {"arkdev/plugin/loading.py", "arkdev/faas_emulator/worker/wire.py"} < set(names)
    assert "arkdev/faas_emulator/freezing/freeze.py" not in names


def test_the_wheel_asks_for_the_pydantic_that_arkdev_asks_for() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert FUNCTION_REQUIRES in project["dependencies"]


def test_what_is_not_in_a_function_is_known() -> None:
    assert is_left_out("arkdev.flows.freeze.freeze_workspace")
    assert not is_left_out("arkdev.plugin.decorators.rollout")
    assert not is_left_out("arkdev.RolloutResult")
