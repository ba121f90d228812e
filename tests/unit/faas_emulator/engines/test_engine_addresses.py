import hashlib
import json
from importlib.machinery import ModuleSpec

import pytest

from arkdev.errors import EngineError, MissingExtraError
from arkdev.faas_emulator.engines import engine as engine_module
from arkdev.faas_emulator.engines.engine import open_engine
from arkdev.faas_emulator.engines.engine_addresses import engine_addresses


def context(home, name, host):
    folder = home / ".docker" / "contexts" / "meta" / hashlib.sha256(name.encode()).hexdigest()
    folder.mkdir(parents=True)
    meta = {"Name": name, "Endpoints": {"docker": {"Host": host}}}
    (folder / "meta.json").write_text(json.dumps(meta), encoding="utf-8")


def use(home, name):
    (home / ".docker").mkdir(exist_ok=True)
    settings = json.dumps({"currentContext": name})
    (home / ".docker" / "config.json").write_text(settings, encoding="utf-8")


@pytest.mark.parametrize("variable", ["DOCKER_HOST", "CONTAINER_HOST"])
def test_an_address_that_a_variable_names_is_the_only_one(tmp_path, variable):
    (address,) = engine_addresses({variable: "unix:///run/my.sock"}, home=tmp_path)
    assert (address.url, address.source) == ("unix:///run/my.sock", variable)
    assert address.is_chosen


def test_the_docker_context_in_use_is_the_only_one(tmp_path):
    context(tmp_path, "desktop-linux", "unix:///opt/u/.docker/desktop/docker.sock")
    context(tmp_path, "colima", "unix:///opt/u/.colima/docker.sock")
    use(tmp_path, "desktop-linux")
    (address,) = engine_addresses({}, home=tmp_path)
    assert str(address.socket) == "/opt/u/.docker/desktop/docker.sock"
    (address,) = engine_addresses({"DOCKER_CONTEXT": "colima"}, home=tmp_path)
    assert address.source == "Docker context colima"


def test_a_context_that_is_gone_is_an_error_with_its_name(tmp_path):
    use(tmp_path, "gone")
    with pytest.raises(EngineError, match="the Docker context gone is in use"):
        engine_addresses({}, home=tmp_path)


def test_without_a_choice_dockers_places_come_before_podmans(tmp_path):
    found = engine_addresses({"XDG_RUNTIME_DIR": "/run/user/7"}, home=tmp_path)
    assert [address.source for address in found] == [
        "Docker",
        "rootless Docker",
        "Docker Desktop",
        "Docker Desktop",
        "Podman's user socket",
        "Podman's system socket",
        "Podman's machine",
    ]
    assert found[4].url == "unix:///run/user/7/podman/podman.sock"
    assert not any(address.is_chosen for address in found)


def test_an_engine_behind_ssh_is_refused_with_what_to_do_instead(tmp_path):
    with pytest.raises(EngineError, match="DOCKER_HOST names ssh://") as raised:
        engine_addresses({"DOCKER_HOST": "ssh://me@far"}, home=tmp_path)
    assert "ssh -L" in raised.value.hint


async def test_where_no_engine_answers_the_error_says_where_was_looked_and_how_to_start_one(
    tmp_path, monkeypatch
):
    pytest.importorskip("docker")
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/none.sock")
    with pytest.raises(EngineError) as raised:
        await open_engine()
    assert f"{tmp_path}/none.sock (DOCKER_HOST): there is no such socket" in raised.value.message
    assert "podman.socket" in raised.value.hint
    assert raised.value.exit_code == 4


@pytest.mark.parametrize("found", [None, ModuleSpec("docker", None)])  # a folder `docker`
async def test_without_the_docker_package_the_error_is_its_install_line(monkeypatch, found):
    monkeypatch.setattr(engine_module, "find_spec", lambda name: found)
    with pytest.raises(MissingExtraError) as raised:
        await open_engine()
    assert raised.value.hint == 'pip install "arkdev[faas]"'
