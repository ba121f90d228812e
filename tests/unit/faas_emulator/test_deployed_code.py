"""What is deployed stays as it was, until it is deployed anew, forgotten, or old."""

import os
import time
from pathlib import Path

import pytest

from arkdev.errors import BuildError
from arkdev.faas_emulator.deployed_code import KEPT_S, CodeChanges, CodeStore
from arkdev.faas_emulator.functions import FunctionSpec
from arkdev.faas_emulator.packages.package import PackageFile, PluginPackage
from arkdev.faas_emulator.requirement_files.requirements import Requirements, read_requirements
from arkdev.faas_emulator.state_folder import state_folder_of
from arkdev.plugin.decorators import PluginKind
from arkdev.plugin.runtime import Runtime

NAME = "plugins.a:one"


def function(root, **runtime):
    return FunctionSpec(
        name="one",
        reference=NAME,
        root=root,
        kind=PluginKind.SINGLE_GRADER,
        runtime=Runtime(**runtime),
        place="plugins/a.py:3",
        envs={"KEY": "secret-value"},
    )


@pytest.fixture
def root(tmp_path):
    folder = tmp_path / "ws"
    (folder / "plugins").mkdir(parents=True)
    (folder / "plugins/a.py").write_text("A = 1\n", encoding="utf-8")
    return folder


@pytest.fixture
def store(tmp_path, root):
    return CodeStore(tmp_path / "state", workspace=root)


def package(root):
    paths = sorted(path for path in root.rglob("*") if path.is_file())
    files = tuple(PackageFile(path.relative_to(root).as_posix(), path) for path in paths)
    return PluginPackage(root, files, tuple(path.stat().st_size for path in paths))


def deploy(store, root, **runtime):
    return store.deploy(function(root, **runtime), package(root), requirements=Requirements())


def test_nothing_is_found_before_anything_is_deployed(store):
    assert store.find(NAME) is None


def test_what_is_found_is_what_was_deployed_without_the_values_of_variables(store, root, tmp_path):
    deploy(store, root, timeout=7, max_concurrency=3)
    found = store.find(NAME)
    assert (found.function.runtime.timeout, found.function.runtime.max_concurrency) == (7, 3)
    assert (found.function.kind, found.function.envs) == (PluginKind.SINGLE_GRADER, {})
    kept = [path for path in (tmp_path / "state").rglob("*") if path.is_file()]
    assert [path for path in kept if "secret-value" in path.read_text(encoding="utf-8")] == []


def test_deployed_files_do_not_change_with_the_workspace_and_the_difference_is_named(store, root):
    deploy(store, root)
    (root / "plugins/a.py").write_text("A = 2\n", encoding="utf-8")
    (root / "plugins/b.py").write_text("", encoding="utf-8")
    found = store.find(NAME)
    (file,) = found.package().files
    assert file.source.read_text(encoding="utf-8") == "A = 1\n"
    changes = found.changes(package(root))
    assert changes == CodeChanges(changed=("plugins/a.py",), added=("plugins/b.py",))
    assert str(changes) == "plugins/a.py changed; plugins/b.py added"
    deploy(store, root)
    assert not store.find(NAME).changes(package(root))


def test_requirements_are_kept_with_what_they_include(store, root):
    (root / "base.txt").write_text("httpx==0.28.1\n", encoding="utf-8")
    (root / "requirements.txt").write_text("-r base.txt\n", encoding="utf-8")
    read = read_requirements(root / "requirements.txt")
    store.deploy(function(root), package(root), requirements=read)
    (root / "base.txt").unlink()
    assert store.find(NAME).requirements().install_text == read.install_text != ""


def test_what_is_forgotten_or_was_not_called_for_long_is_not_found(store, root, tmp_path):
    deploy(store, root)
    store.forget(NAME)
    store.forget(NAME)
    assert store.find(NAME) is None
    deploy(store, root)
    (record,) = (tmp_path / "state").rglob("functions/*.json")
    old = time.time() - KEPT_S - 60
    os.utime(record, (old, old))
    assert store.find(NAME) is None


def test_code_that_no_function_has_is_removed_after_a_day(store, root, tmp_path):
    first = deploy(store, root).folder
    (root / "plugins/a.py").write_text("A = 2\n", encoding="utf-8")
    old = time.time() - 2 * 24 * 3600
    deploy(store, root)
    assert first.is_dir()  # somebody may be about to run it
    os.utime(first, (old, old))
    second = deploy(store, root).folder
    assert not first.exists()
    assert second.is_dir()


def test_a_record_that_is_cut_short_is_none_and_missing_files_are_said(store, root, tmp_path):
    found = deploy(store, root)
    (found.package_folder / "plugins/a.py").unlink()
    with pytest.raises(BuildError, match="is damaged") as raised:
        found.package()
    assert "--sync" in raised.value.hint
    (record,) = (tmp_path / "state").rglob("functions/*.json")
    record.write_text("{", encoding="utf-8")
    assert store.find(NAME) is None


def test_workspaces_do_not_share_what_they_deploy(store, root, tmp_path):
    deploy(store, root)
    assert CodeStore(tmp_path / "state", workspace=tmp_path / "other").find(NAME) is None


@pytest.mark.parametrize(
    ("environ", "system", "folder"),
    [
        ({"XDG_STATE_HOME": "/s"}, "darwin", "/s/arkdev"),
        ({"XDG_STATE_HOME": "relative"}, "linux", "/h/.local/state/arkdev"),
        ({}, "linux", "/h/.local/state/arkdev"),
        ({}, "darwin", "/h/Library/Application Support/arkdev"),
    ],
)
def test_the_state_folder_is_the_systems_own(environ, system, folder):
    assert state_folder_of(environ, system=system, home=Path("/h")) == Path(folder)


@pytest.mark.parametrize("is_removed", [True, False])
def test_code_that_was_damaged_is_whole_again_once_it_is_deployed_anew(store, root, is_removed):
    file = deploy(store, root).package_folder / "plugins/a.py"
    if is_removed:
        file.unlink()
    else:
        file.write_text("", encoding="utf-8")
    deploy(store, root)
    assert file.read_text(encoding="utf-8") == "A = 1\n"
