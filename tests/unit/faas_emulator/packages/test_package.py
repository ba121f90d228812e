"""Which files of a workspace travel to a function."""

import io
import json
import os
import socket
import tarfile
from pathlib import Path

import pytest

from arkdev.errors import BuildError, WorkspaceError
from arkdev.faas_emulator.functions import FunctionSpec
from arkdev.faas_emulator.packages.archives import open_archive
from arkdev.faas_emulator.packages.package import LARGE_FILE_BYTES, PluginPackage, plugin_package
from arkdev.job.workspace import find_workspace
from arkdev.plugin.decorators import PluginKind
from arkdev.plugin.runtime import Runtime

FULL = (
    *(".env", ".env.local", "plugins/.env", ".git/config", ".venv/bin/python", "data/train.jsonl"),
    *("runs/r1/run.json", "typings/ark_sdk.pyi", "plugins/__pycache__/a.cpython-311.pyc"),
    *("env/pyvenv.cfg", "env/lib/x.py", "conda/conda-meta/history", "conda/lib/y.py"),
    *(".pytest_cache/x", "job.yaml", "job.py", "requirements.txt", "README.md"),
    *("plugins/a.py", "plugins/403.html", "plugins/data/prompts.txt"),
)
"""A workspace with all that must not travel."""
TRAVELS = {
    *("job.py", "requirements.txt", "README.md"),
    *("plugins/a.py", "plugins/403.html", "plugins/data/prompts.txt"),
}


def workspace(root: Path, *paths: str, include: str = "", ignore: str = "") -> Path:
    for path in paths:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(f"of {path}", encoding="utf-8")
    (root / "arkworkspace.toml").write_text(
        f"[plugin.package]\ninclude = {include}\n" if include else "", encoding="utf-8"
    )
    if ignore:
        (root / ".dockerignore").write_text(ignore, encoding="utf-8")
    return root


def packaged(root: Path) -> PluginPackage:
    return plugin_package(find_workspace(root))


def paths(package: PluginPackage) -> set[str]:
    return {file.path for file in package.files} - {"arkworkspace.toml", ".dockerignore"}


def test_secrets_version_control_environments_runs_and_data_do_not_travel(tmp_path: Path) -> None:
    package = packaged(workspace(tmp_path, *FULL))
    assert paths(package) == TRAVELS
    assert any("left out as data: data;" in note for note in package.notes)


def test_the_folder_of_a_run_does_not_travel_wherever_it_lies(tmp_path: Path) -> None:
    of_a_run = ("out/r2/manifest.json", "out/r2/logs/plugin.jsonl", "out/r2/trajectories.jsonl")
    of_an_app = ("plugins/app/manifest.json", "plugins/app/logs/x")
    root = workspace(tmp_path, "plugins/a.py", *of_a_run, *of_an_app)
    manifest = json.dumps({"schema_version": 1, "run_id": "r2", "kind": "test"}, indent=2)
    (root / "out/r2/manifest.json").write_text(manifest, encoding="utf-8")
    assert paths(packaged(root)) == {"plugins/a.py", *of_an_app}


def test_an_ignored_dot_does_not_take_names_that_only_hold_one(tmp_path: Path) -> None:
    package = packaged(workspace(tmp_path, *FULL, ignore="**/.*\n"))
    assert paths(package) == TRAVELS


@pytest.mark.parametrize(
    ("include", "ignore", "expected"),
    [
        ('["*.py"]', "", {"plugins/a.py", "job.py"}),
        ('["*.py", "!job.py"]', "", {"plugins/a.py"}),
        ('["*.py"]', "job.py\n", {"plugins/a.py"}),
        ('["plugins/*.html"]', "", {"plugins/403.html"}),
        ('["plugins/"]', "", {"plugins/a.py", "plugins/403.html", "plugins/data/prompts.txt"}),
        ('["plugins/**/*.txt"]', "", {"plugins/data/prompts.txt"}),
        ('["*.py", "data/*.jsonl"]', "", {"plugins/a.py", "job.py", "data/train.jsonl"}),
        ('["*"]', "plugins\n!plugins/a.py\n", {"plugins/a.py", "job.py", "README.md"}),
        ('["*", "job.yaml"]', "plugins\nREADME.md\n", {"job.py", "job.yaml"}),
        ('["*", ".env", ".git", "runs/**"]', "*\n!job.py\n", {"job.py"}),
    ],
)
def test_include_names_what_travels_and_dockerignore_takes_away(
    tmp_path: Path, include: str, ignore: str, expected: set[str]
) -> None:
    package = packaged(workspace(tmp_path, *FULL, include=include, ignore=ignore))
    assert paths(package) == expected | {"requirements.txt"}


def test_files_that_stand_for_datasets_are_data(tmp_path: Path) -> None:
    root = workspace(tmp_path, "plugins/a.py", "lines/some.jsonl")
    (root / "arkworkspace.toml").write_text('[datasets]\nds-1 = "lines/some.jsonl"\n', "utf-8")
    package = packaged(root)
    assert paths(package) == {"plugins/a.py"}
    assert any("lines/some.jsonl" in note for note in package.notes)


def test_a_pattern_that_names_nothing_is_told(tmp_path: Path) -> None:
    package = packaged(workspace(tmp_path, *FULL, include='["*.py", ".env", "plugin/*.txt"]'))
    told = [note for note in package.notes if "names no file" in note]
    assert [note.split("'")[1] for note in told] == [".env", "plugin/*.txt"]


def test_links_within_the_workspace_travel_as_files_and_others_are_told(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "key.py").write_text("secret", encoding="utf-8")
    root = workspace(tmp_path / "w", ".env", "lib/tool.py", "plugins/a.py", "data/x.jsonl")
    for name, target in {
        "plugins/tool.py": root / "lib/tool.py",
        "plugins/lib": Path("../lib"),
        "plugins/again": Path(".."),
        "plugins/key.py": outside / "key.py",
        "plugins/all": outside,
        "plugins/env.py": root / ".env",
        "plugins/lines": Path("../data"),
        "plugins/gone.py": root / "nothing",
    }.items():
        (root / name).symlink_to(target)
    package = packaged(root)
    assert paths(package) == {
        "lib/tool.py",
        "plugins/a.py",
        "plugins/tool.py",
        "plugins/lib/tool.py",
    }
    notes = "\n".join(package.notes)
    assert "links out of the workspace: plugins/all, plugins/key.py" in notes
    assert "links to what never travels: plugins/env.py" in notes
    assert "links to nothing: plugins/gone.py" in notes
    assert "left out as data: data, plugins/lines" in notes
    package.write_to(tmp_path / "copy")
    assert not any(path.is_symlink() for path in (tmp_path / "copy").rglob("*"))


def test_what_is_no_file_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = workspace(tmp_path, "plugins/a.py")
    with socket.socket(socket.AF_UNIX) as server:
        monkeypatch.chdir(root)  # the address of a socket is short
        server.bind("s.sock")
        package = packaged(root)
    assert paths(package) == {"plugins/a.py"}
    assert any("no regular files: s.sock" in note for note in package.notes)


def test_modes_do_not_depend_on_the_file_or_the_umask(tmp_path: Path) -> None:
    root = workspace(tmp_path / "w", "plugins/deep/a.py")
    (root / "plugins/deep/a.py").chmod(0o700)
    before = os.umask(0o077)
    try:
        packaged(root).write_to(tmp_path / "copy")
    finally:
        os.umask(before)
    copy = tmp_path / "copy"
    modes = {
        path.relative_to(copy).as_posix(): path.stat().st_mode & 0o777 for path in copy.rglob("*")
    }
    assert modes == {
        "arkworkspace.toml": 0o644,
        "plugins": 0o755,
        "plugins/deep": 0o755,
        "plugins/deep/a.py": 0o644,
    }


def archive(package: PluginPackage) -> bytes:
    target = io.BytesIO()
    with open_archive(target) as opened:
        package.add_to(opened, below="p")
    return target.getvalue()


def test_the_same_files_give_the_same_archive_and_hash(tmp_path: Path) -> None:
    first, second = (workspace(tmp_path / name, *FULL) for name in "ab")
    os.utime(second / "plugins/a.py", (1, 1))
    (second / "plugins/a.py").chmod(0o777)
    assert archive(packaged(first)) == archive(packaged(second))
    assert packaged(first).digest() == packaged(second).digest()
    with tarfile.open(fileobj=io.BytesIO(archive(packaged(first)))) as opened:
        entries = {entry.name: (entry.mode, entry.uid) for entry in opened}
    assert entries["p/plugins/a.py"] == (0o644, 0)
    assert entries["p/plugins/data"] == (0o755, 0)
    (second / "plugins/a.py").write_text("edited", encoding="utf-8")
    assert packaged(first).digest() != packaged(second).digest()


def test_names_that_are_no_text_travel(tmp_path: Path) -> None:
    root = workspace(tmp_path, "plugins/a.py", "plugins/提示.txt")
    (root / os.fsdecode(b"plugins/\xff.txt")).write_text("x", encoding="utf-8")
    package = packaged(root)
    with tarfile.open(
        fileobj=io.BytesIO(archive(package)), encoding="utf-8", errors="surrogateescape"
    ) as opened:
        names = set(opened.getnames())
    assert {"p/plugins/提示.txt", os.fsdecode(b"p/plugins/\xff.txt")} <= names
    assert package.digest()


def test_the_size_is_told_and_big_files_are_named(tmp_path: Path) -> None:
    root = workspace(tmp_path, "plugins/a.py", "plugins/weights.bin")
    with (root / "plugins/weights.bin").open("wb") as file:
        file.truncate(LARGE_FILE_BYTES)
    first, second, *_ = packaged(root).summary()
    assert first.endswith("3 files, 5.0 MiB")
    assert second == "  big: plugins/weights.bin, 5.0 MiB"


def test_a_plugin_whose_file_does_not_travel_is_an_error(tmp_path: Path) -> None:
    package = packaged(workspace(tmp_path, "plugins/a.py", "lib/__init__.py", include='["*.py"]'))
    package.check_plugin(function("plugins.a:f"))
    package.check_plugin(function("lib:f"))
    with pytest.raises(BuildError, match=r"plugins/b.py:3: the file of plugin 'f'"):
        package.check_plugin(function("plugins.b:f", place="plugins/b.py:3"))


def function(reference: str, *, place: str = "plugins/a.py:1") -> FunctionSpec:
    return FunctionSpec(
        name="f",
        reference=reference,
        root=Path("/nowhere"),
        kind=PluginKind.SINGLE_ROLLOUT,
        runtime=Runtime(),
        place=place,
    )


@pytest.mark.parametrize(
    ("include", "ignore", "message"),
    [
        ('["[a"]', "", r"arkworkspace.toml: plugin.package.include: .*'\[a' is not a pattern"),
        ("", "a\n\n[b\n", r"\.dockerignore:3: '\[b' is not a pattern"),
    ],
)
def test_a_pattern_that_cannot_be_read_is_an_error_with_its_place(
    tmp_path: Path, include: str, ignore: str, message: str
) -> None:
    root = workspace(tmp_path, "plugins/a.py", include=include, ignore=ignore)
    with pytest.raises(WorkspaceError, match=message):
        packaged(root)


def test_an_empty_package_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(BuildError, match="no file of the workspace"):
        packaged(workspace(tmp_path, "plugins/a.py", include='["*.txt"]'))
