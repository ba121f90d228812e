"""Which endpoint a name or URL stands for, and where keys come from."""

import os
import stat

import pytest

from arkdev.endpoints.endpoint import ModelRequest
from arkdev.endpoints.registry import (
    ARK,
    list_endpoints,
    open_endpoint,
    resolve_endpoint,
    user_config_file,
)
from arkdev.errors import ConfigurationError, UsageError

SECRET = "sk-0123456789abcdef"


@pytest.fixture(autouse=True)
def config(tmp_path, monkeypatch):
    """The user's configuration folder, empty; no key in the environment."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.delenv("ARK_API_KEY", raising=False)
    folder = tmp_path / "arkdev"
    folder.mkdir()
    return folder


def resolve(name=None, *, workspace=None, **options):
    return resolve_endpoint(
        name, workspace_endpoints=workspace or {}, user_config=user_config_file(), **options
    )


def refusal(name=None, **options):
    with pytest.raises(ConfigurationError) as caught:
        resolve(name, **options)
    error = caught.value
    return f"{error} {error.hint}"


def open_(spec, **options):
    return open_endpoint(spec, max_in_flight=1, timeout_s=60, **options)


def write_keys(config, *, mode=0o600, text=f'ARK_API_KEY = "{SECRET}"\n'):
    path = config / "keys.toml"
    path.write_text(text, encoding="utf-8")
    path.chmod(mode)
    return path


def test_the_default_is_the_scripted_model():
    spec = resolve()
    assert (spec.name, spec.family, spec.base_url, spec.source) == (
        "scripted",
        "scripted",
        None,
        "built in",
    )


def test_ark_is_the_public_service_with_its_documented_variable():
    spec = resolve("ark", model="doubao-x")
    assert spec.base_url == "https://ark.cn-beijing.volces.com/api/v3"
    assert (spec.api_key_env, spec.family, spec.model) == ("ARK_API_KEY", "ark", "doubao-x")


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1:8000/v1",
        "http://127.0.0.1:8000/v1/",
        " http://127.0.0.1:8000/v1/chat/completions",
        "http://127.0.0.1:8000/v1/chat/completions/",
    ],
)
def test_a_url_is_a_generic_endpoint_without_a_key(url):
    spec = resolve(url, model="m")
    assert spec.base_url == "http://127.0.0.1:8000/v1"
    assert (spec.name, spec.family, spec.api_key_env) == ("127.0.0.1:8000", "generic", None)


def test_arks_own_url_is_of_arks_family():
    spec = resolve(ARK.base_url)
    assert (spec.family, spec.api_key_env) == ("ark", "ARK_API_KEY")


def test_a_named_endpoint_comes_from_the_workspace_before_the_users_configuration(config):
    user_config_file().write_text(
        '[endpoints.lab]\nbase_url = "http://user/v1"\n'
        '[endpoints.home]\nbase_url = "http://home/v1"\nfamily = "ark"\n'
        "has_token_evidence = true\n",
        encoding="utf-8",
    )
    workspace = {"lab": {"base_url": "http://lab/v1", "model": "m1", "api_key_env": "LAB_KEY"}}
    lab = resolve("lab", workspace=workspace, model="m2")
    assert (lab.base_url, lab.model, lab.api_key_env) == ("http://lab/v1", "m2", "LAB_KEY")
    assert lab.source == "arkworkspace.toml"
    home = resolve("home", workspace=workspace)
    assert (home.family, home.has_token_evidence) == ("ark", True)
    assert home.source == str(user_config_file())
    listed = list_endpoints(workspace_endpoints=workspace, user_config=user_config_file())
    assert [spec.name for spec in listed] == ["scripted", "local", "ark", "lab", "home"]
    assert listed[3].base_url == "http://lab/v1"


def test_token_evidence_is_refused_where_the_responses_api_is_spoken():
    definition = {"base_url": "http://lab/v1", "api": "responses", "has_token_evidence": True}
    with pytest.raises(ConfigurationError, match="has_token_evidence") as caught:
        resolve("lab", workspace={"lab": definition})
    assert 'api = "chat"' in caught.value.hint


def test_an_unknown_name_lists_what_exists_and_guesses():
    text = refusal("lba", workspace={"lab": {"base_url": "http://lab/v1"}})
    assert "Did you mean 'lab'?" in text
    assert "scripted, local, ark, lab" in text


def test_an_address_without_a_scheme_says_how_a_url_begins():
    assert "http://" in refusal("localhost:8000/v1")


@pytest.mark.parametrize(
    "definition",
    [
        {},
        {"base_url": 5},
        {"base_url": "ftp://x"},
        {"base_url": "http://x", "family": "openai"},
        {"base_url": "http://x", "has_token_evidence": "yes"},
        {"base_url": "http://x", "modle": "m"},
        {"base_url": "http://x", "api_key": SECRET},
        {"base_url": "http://x", "api_key_env": SECRET},
        {"base_url": f"http://u:{SECRET}@x"},
        "http://x",
    ],
)
def test_a_wrong_definition_names_its_place_and_never_a_secret(definition):
    text = refusal("lab", workspace={"lab": definition})
    assert "arkworkspace.toml [endpoints.lab]" in text
    assert SECRET not in text


def test_a_misspelt_setting_is_guessed():
    text = refusal("lab", workspace={"lab": {"base_url": "http://x", "modle": "m"}})
    assert "'modle'" in text and "Did you mean 'model'?" in text


def test_built_in_names_cannot_be_redefined():
    with pytest.raises(ConfigurationError, match="built in"):
        list_endpoints(workspace_endpoints={"ark": {"base_url": "http://x"}}, user_config=None)


def test_a_broken_user_configuration_names_the_file():
    user_config_file().write_text("[endpoints\n", encoding="utf-8")
    assert str(user_config_file()) in refusal("lab")


@pytest.mark.parametrize(
    "url",
    [
        f"https://user:{SECRET}@host/v1",
        f"https://{SECRET}@host/v1",
        f"https://host/v1?key={SECRET}",
        f"https://host/v1#{SECRET}",
        f"user:{SECRET}@host/v1",
        f"https://host:{SECRET}/v1",
        "https://",
    ],
)
def test_a_url_with_a_secret_is_refused_without_repeating_it(url):
    assert SECRET not in refusal(url)


@pytest.mark.parametrize(
    "value",
    [SECRET, "a1b2c3d4-0000-1111-2222-333344445555", "ark_key", "AKIA0123456789ABCDEF", "", "A B"],
)
def test_a_key_given_as_the_variables_name_is_refused_without_repeating_it(value):
    text = refusal("ark", api_key_env=value)
    assert "--api-key-env" in text
    assert len(value) < 4 or value not in text


def test_the_scripted_model_takes_no_key():
    with pytest.raises(UsageError, match="needs no key"):
        resolve("scripted", api_key_env="LAB_KEY")


def test_a_missing_key_names_the_variable(config):
    with pytest.raises(ConfigurationError, match="ARK_API_KEY is not set") as caught:
        open_(resolve("ark", model="m"))
    assert str(config / "keys.toml") in caught.value.hint


async def test_a_key_comes_from_the_environment_or_from_the_key_file(config, monkeypatch):
    write_keys(config)
    endpoint = open_(resolve("ark", model="m"))
    assert (endpoint.name, endpoint.model) == ("ark", "m")
    (config / "keys.toml").unlink()
    monkeypatch.setenv("ARK_API_KEY", SECRET)
    open_(resolve("ark", model="m"))


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o604, 0o700])
def test_a_key_file_that_others_can_read_is_refused_with_the_remedy(config, mode):
    path = write_keys(config, mode=mode)
    assert stat.S_IMODE(os.stat(path).st_mode) == mode
    with pytest.raises(ConfigurationError) as caught:
        open_(resolve("ark", model="m"))
    assert caught.value.hint == f"chmod 600 {path}"
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize("text", [f"ARK_API_KEY = {SECRET}", f'ARK_API_KEY = "{SECRET}\n"'])
def test_a_broken_key_file_is_refused_without_repeating_the_key(config, text):
    write_keys(config, text=text)
    with pytest.raises(ConfigurationError, match="not valid TOML") as caught:
        open_(resolve("ark", model="m"))
    assert SECRET not in f"{caught.value} {caught.value.hint}"


@pytest.mark.parametrize("key", [f"{SECRET}\r\nX-Other: 1", f"{SECRET} x", f"{SECRET}密"])
def test_a_key_that_no_header_can_carry_is_refused_without_repeating_it(monkeypatch, key):
    monkeypatch.setenv("ARK_API_KEY", key)
    with pytest.raises(ConfigurationError, match="characters") as caught:
        open_(resolve("ark", model="m"))
    assert SECRET not in f"{caught.value} {caught.value.hint}"


def test_scripted_settings_do_not_go_with_another_endpoint():
    with pytest.raises(UsageError, match="--skill"):
        open_(resolve("http://127.0.0.1:1/v1", model="m"), skill=0.5)


async def test_the_scripted_model_opens_without_key_or_model():
    endpoint = open_(resolve(), skill=1.0)
    body = {"messages": [{"role": "user", "content": "What is 1 + 1?"}]}
    answer = await endpoint.complete(ModelRequest(body=body, seed=1))
    await endpoint.close()
    assert endpoint.name == "scripted"
    assert answer["choices"]


async def test_the_scripted_model_reads_a_script_file(tmp_path):
    with pytest.raises(ConfigurationError, match=r"none\.yaml"):
        open_(resolve(), script=tmp_path / "none.yaml")
