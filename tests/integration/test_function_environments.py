"""Environments of functions, made by uv from wheels in a folder: no package index is asked."""

import asyncio
import os
import subprocess
import zipfile
from pathlib import Path

import pytest

from arkdev.errors import BuildError, MissingExtraError
from arkdev.faas_emulator.processes.environment import (
    NUM_KEPT_ENVIRONMENTS,
    Environment,
    environments_folder,
    function_environment,
)
from arkdev.faas_emulator.requirement_files.requirements import Requirements, read_requirements


def write_wheel(folder: Path, name: str, version: str, *, requires: str = "") -> None:
    info = f"{name}-{version}.dist-info"
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    with zipfile.ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w") as wheel:
        wheel.writestr(f"{name}/__init__.py", f"__version__ = {version!r}\n")
        wheel.writestr(f"{info}/METADATA", metadata + requires)
        tags = "Wheel-Version: 1.0\nGenerator: t\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        wheel.writestr(f"{info}/WHEEL", tags)
        wheel.writestr(f"{info}/RECORD", "")


@pytest.fixture(autouse=True)
def wheels_in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    write_wheel(wheels, "pydantic", "2.9.0")  # it stands for the real one, which is large
    write_wheel(wheels, "pydantic", "1.10.2")
    write_wheel(wheels, "weather", "1.0")
    settings = tmp_path / "uv.toml"
    settings.write_text(f"no-index = true\nfind-links = ['{wheels}']\n", encoding="utf-8")
    monkeypatch.setenv("UV_CONFIG_FILE", str(settings))
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "uv"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def requirements(folder: Path, text: str) -> Requirements:
    path = folder / "requirements.txt"
    path.write_text(text, encoding="utf-8")
    return read_requirements(path)


def kept(folder: Path) -> list[str]:
    return sorted(os.listdir(folder / "cache/arkdev/functions"))


def runs(made: Environment) -> bool:
    code = "import weather, arkdev"
    return subprocess.run([made.python, "-c", code], check=False).returncode == 0


def make(wanted: Requirements, lines: list[str] | None = None) -> Environment:
    said: list[str] = [] if lines is None else lines
    return asyncio.run(function_environment(wanted, on_output=said.append))


def test_an_environment_holds_the_requirements_and_arkdev_and_is_made_once(tmp_path: Path) -> None:
    lines: list[str] = []
    made = make(requirements(tmp_path, "weather==1.0\n"), lines)
    again = make(requirements(tmp_path, "# another comment\nweather==1.0\n"))
    assert (made.was_cached, again.was_cached) == (False, True)
    assert made.python == again.python
    assert "     + weather==1.0" in lines
    code = (
        "import weather, importlib.metadata as m; print(weather.__version__, m.version('arkdev'))"
    )
    said = subprocess.run([made.python, "-c", code], capture_output=True, text=True, check=True)
    assert said.stdout.startswith("1.0 ")
    assert "+function." in said.stdout
    other = make(requirements(tmp_path, ""))
    assert other.python != made.python


@pytest.mark.parametrize(
    ("text", "cause", "line"),
    [
        ("weather==1.0\nsnow==2\n", "snow", 2),
        ("pydantic==1.10.2\n", "arkdev.* depends on pydantic>=2.8,<3", 1),
    ],
)
def test_what_cannot_be_installed_is_told_with_its_line_and_leaves_nothing(
    tmp_path: Path, text: str, cause: str, line: int
) -> None:
    with pytest.raises(BuildError, match=cause) as caught:
        make(requirements(tmp_path, text))
    assert caught.value.where.endswith(f"requirements.txt:{line}")
    assert caught.value.hint
    assert kept(tmp_path) == []


async def test_two_that_make_the_same_one_at_once_both_have_it(tmp_path: Path) -> None:
    wanted = requirements(tmp_path, "weather==1.0\n")
    made = await asyncio.gather(
        *(function_environment(wanted, on_output=lambda line: None) for _ in range(2))
    )
    assert made[0].python == made[1].python
    assert kept(tmp_path) == [made[0].python.parent.parent.name]
    assert runs(made[0])


async def test_a_cancelled_one_leaves_nothing(tmp_path: Path) -> None:
    begun = asyncio.Event()
    wanted = requirements(tmp_path, "weather==1.0\n")
    running = asyncio.create_task(
        function_environment(
            wanted, on_output=lambda line: begun.set() if "Using" in line else None
        )
    )
    await asyncio.wait_for(begun.wait(), 60)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert kept(tmp_path) == []


def test_one_whose_python_is_gone_is_made_again(tmp_path: Path) -> None:
    wanted = requirements(tmp_path, "weather==1.0\n")
    made = make(wanted)
    made.python.unlink()
    made.python.symlink_to(tmp_path / "no-such-python")
    again = make(wanted)
    assert not again.was_cached
    assert kept(tmp_path) == [made.python.parent.parent.name]
    assert runs(again)


def test_old_ones_are_removed_those_used_lately_are_not(tmp_path: Path) -> None:
    folder = tmp_path / "cache/arkdev/functions"
    for number in range(NUM_KEPT_ENVIRONMENTS + 3):
        (folder / f"old{number:02}").mkdir(parents=True)
        taken = folder / f"old{number:02}/.taken"
        taken.touch()
        os.utime(taken, (number, number))
    (folder / "lately").mkdir()
    (folder / "lately/.taken").touch()
    abandoned = folder / "x.making-1"
    abandoned.mkdir()
    os.utime(abandoned, (1, 1))
    made = make(requirements(tmp_path, ""))
    names = kept(tmp_path)
    assert {made.python.parent.parent.name, "lately"} <= set(names)
    assert [name for name in names if name.startswith("old")] == [
        f"old{n:02}" for n in range(5, 11)
    ]
    assert "x.making-1" not in names


def test_without_uv_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("uv.find_uv_bin", lambda: (_ for _ in ()).throw(FileNotFoundError("uv")))
    with pytest.raises(MissingExtraError) as caught:
        make(requirements(tmp_path, ""))
    assert caught.value.hint == 'pip install "arkdev[faas]"'
    assert kept(tmp_path) == []


def test_where_environments_are_kept(tmp_path: Path) -> None:
    def where(system: str, **environ: str) -> Path:
        return environments_folder(environ, system=system, home=tmp_path)

    assert where("linux") == tmp_path / ".cache/arkdev/functions"
    assert where("darwin") == tmp_path / "Library/Caches/arkdev/functions"
    assert where("darwin", XDG_CACHE_HOME="/c") == Path("/c/arkdev/functions")
    assert where("linux", XDG_CACHE_HOME="c") == tmp_path / ".cache/arkdev/functions"
