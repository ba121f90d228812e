"""`arkdev doctor` finds what is wrong and names the fix."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path

import pytest

from arkdev.flows.doctor import Check, Status, diagnose, exit_code_of


@pytest.fixture(autouse=True)
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's configuration, empty; the real network is not asked."""
    folder = tmp_path / "config" / "arkdev"
    folder.mkdir(parents=True)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:1")  # Ark's host is asked for there
    monkeypatch.delenv("ARK_API_KEY", raising=False)
    return folder


def diagnosed(folder: Path) -> dict[str, Check]:
    return {check.name: check for check in asyncio.run(diagnose(folder))}


def test_a_good_workspace_has_no_error(tmp_path: Path) -> None:
    (tmp_path / "plugins").mkdir()
    checks = diagnosed(tmp_path)
    assert [c for c in checks.values() if c.status is Status.ERROR] == []
    assert exit_code_of(checks.values()) == 0
    assert checks["workspace"].detail == str(tmp_path)


def test_every_core_package_and_extra_is_there(tmp_path: Path) -> None:
    checks = diagnosed(tmp_path)
    assert {"aiohttp", "openai", "pydantic", "rich", "typer", "extra ark"} <= set(checks)
    assert "extra dev" not in checks


def test_an_endpoint_nobody_serves_is_a_warning_with_its_place(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        url = f'base_url = "http://127.0.0.1:{port}/v1"\n'
        (tmp_path / "arkworkspace.toml").write_text(f"[endpoints.mine]\n{url}", encoding="utf-8")
        assert diagnosed(tmp_path)["endpoint mine"].status is Status.OK
    check = diagnosed(tmp_path)["endpoint mine"]
    assert check.status is Status.WARNING
    assert f"127.0.0.1:{port}" in check.detail
    assert "arkworkspace.toml" in check.fix


@pytest.mark.parametrize(
    ("file", "text", "name", "said"),
    [
        ("arkworkspace.toml", "[endpoint.mine]", "workspace", "unknown table 'endpoint'"),
        ("job.yaml", "nme: x", "job", "job.yaml:1"),
        ("requirements.txt", "no-such-package>=1\n-r more.txt", "requirements.txt", "no-such"),
        ("requirements.txt", "pydantic<1 # old", "requirements.txt", "pydantic<1"),
    ],
)
def test_what_is_wrong_in_the_workspace_is_an_error_with_its_place(
    tmp_path: Path, file: str, text: str, name: str, said: str
) -> None:
    (tmp_path / "plugins").mkdir()
    (tmp_path / file).write_text(text, encoding="utf-8")
    checks = diagnosed(tmp_path)
    assert checks[name].status is Status.ERROR
    assert said in checks[name].detail
    assert exit_code_of(checks.values()) == 2


def test_requirements_that_a_function_cannot_install_are_warned_of(tmp_path: Path) -> None:
    (tmp_path / "plugins").mkdir()
    path = tmp_path / "requirements.txt"
    path.write_text("pydantic>=2\nark_sdk==0.2.11\n-e ./lib\n", encoding="utf-8")
    check = diagnosed(tmp_path)["requirements.txt"]
    assert check.status is Status.WARNING
    assert "requirements.txt:3: `-e ./lib`" in check.detail
    path.write_text("pydantic>=2\nark_sdk==0.2.11\n", encoding="utf-8")
    assert diagnosed(tmp_path)["requirements.txt"].status is Status.OK
    path.write_bytes("pydantic>=2\n".encode("utf-16-le"))
    check = diagnosed(tmp_path)["requirements.txt"]
    assert (check.status, "save the file as UTF-8" in check.fix) == (Status.ERROR, True)


def test_a_key_file_that_others_can_read_is_an_error(tmp_path: Path, config: Path) -> None:
    keys = config / "keys.toml"
    keys.write_text('ARK_API_KEY = "sk-sentinel-123456"', encoding="utf-8")
    keys.chmod(0o644)
    check = diagnosed(tmp_path)["key file"]
    assert (check.status, check.fix) == (Status.ERROR, f"chmod 600 {keys}")
    keys.chmod(0o600)
    assert diagnosed(tmp_path)["key file"].status is Status.OK


def test_a_missing_key_is_a_note_with_the_variable(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"http://127.0.0.1:{server.getsockname()[1]}/v1"
        (tmp_path / "arkworkspace.toml").write_text(
            f'[endpoints.mine]\nbase_url = "{url}"\napi_key_env = "MY_KEY"', encoding="utf-8"
        )
        check = diagnosed(tmp_path)["endpoint mine"]
    assert (check.status, check.fix) == (Status.NOTE, "export MY_KEY=...")


def test_the_engines_socket_is_found_where_a_variable_names_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "docker.sock"
    monkeypatch.setenv("DOCKER_HOST", f"unix://{path}")
    missing = diagnosed(tmp_path)["container engine"]
    assert missing.status is Status.WARNING
    assert f"{path} (DOCKER_HOST): there is no such socket" in missing.detail
    assert "podman.socket" in missing.fix
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        found = diagnosed(tmp_path)["container engine"]
    assert (found.status, found.detail) == (Status.OK, f"unix://{path} (DOCKER_HOST)")
    monkeypatch.setenv("DOCKER_HOST", "ssh://me@far")
    refused = diagnosed(tmp_path)["container engine"]
    assert refused.status is Status.WARNING
    assert "ssh -L" in refused.fix
