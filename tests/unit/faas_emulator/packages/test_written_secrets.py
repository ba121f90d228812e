"""A key that is written into a file of the package is found before it travels."""

from __future__ import annotations

from pathlib import Path

from arkdev.faas_emulator.functions import FunctionSpec
from arkdev.faas_emulator.packages.package import plugin_package
from arkdev.faas_emulator.packages.written_secrets import written_secrets
from arkdev.job.workspace import find_workspace
from arkdev.plugin.decorators import PluginKind
from arkdev.plugin.runtime import Runtime


def function(root: Path, envs: dict[str, str]) -> FunctionSpec:
    kind = PluginKind.SINGLE_GRADER
    return FunctionSpec("one", "plugins.a:one", root, kind, Runtime(), "plugins/a.py:1", envs)


def found(root: Path, **envs: str) -> list[str]:
    (root / "arkworkspace.toml").touch()
    package = plugin_package(find_workspace(root))
    return [
        f"{each.name} {each.place}" for each in written_secrets(package, [function(root, envs)])
    ]


def test_a_key_in_a_job_file_is_told_with_its_place_and_without_its_value(tmp_path: Path) -> None:
    (tmp_path / "job.py").write_text('# a job\nenvs = {"SEARCH_API_KEY": "sentinel-1"}\n')
    (tmp_path / "job.yaml").write_text("SEARCH_API_KEY: sentinel-1")  # does not travel
    assert found(tmp_path, SEARCH_API_KEY="sentinel-1") == ["SEARCH_API_KEY job.py:2"]
    (tmp_path / ".dockerignore").write_text("job.py\n")
    assert found(tmp_path, SEARCH_API_KEY="sentinel-1") == []


def test_what_is_no_secret_by_its_name_or_too_short_to_be_one_is_not_told(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text('URL = "http://127.0.0.1:9/v1"; key = "xxx"\n')
    assert found(tmp_path, URL="http://127.0.0.1:9/v1", ARK_API_KEY="xxx") == []


def test_the_key_of_an_endpoint_that_arkdev_serves_itself_is_nobodys_secret(tmp_path: Path) -> None:
    (tmp_path / "test_faas.py").write_text('"""arkdev run test_faas.py --endpoint scripted"""\n')
    envs = {"ARK_API_KEY": "scripted", "ARKDEV_ARK_URL": "http://127.0.0.1:9/api/v3"}
    assert found(tmp_path, **envs) == []
    assert found(tmp_path, ARK_API_KEY="scripted") == ["ARK_API_KEY test_faas.py:1"]
