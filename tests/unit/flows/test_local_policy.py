"""``--endpoint local``: what is said before a model is loaded."""

from importlib.util import find_spec
from pathlib import Path

import pytest
from typer.testing import CliRunner

from arkdev.backends.local.packages import require_packages
from arkdev.cli.endpoint import app
from arkdev.endpoints.registry import LOCAL, SCRIPTED, open_endpoint, resolve_endpoint
from arkdev.errors import ArkdevError, ConfigurationError, MissingExtraError, UsageError
from arkdev.flows.local_policy import choose_policy
from arkdev.flows.opening import Opening, open_any
from arkdev.flows.resume import flags_of
from arkdev.runs.writer import RunWriter

HAS_TORCH = find_spec("torch") is not None


def resolve(name, **given):
    return resolve_endpoint(name, workspace_endpoints={}, user_config=None, **given)


def test_local_is_a_name_that_takes_a_model_and_no_key():
    spec = resolve("local", model="tiny")
    assert (spec.family, spec.base_url, spec.model) == ("local", None, "tiny")
    assert spec.has_token_evidence
    with pytest.raises(UsageError, match="needs no key"):
        resolve("local", api_key_env="MY_KEY")
    with pytest.raises(ConfigurationError, match="has no URL"):
        open_endpoint(LOCAL, max_in_flight=1, timeout_s=1)  # without a model that was chosen


def test_other_endpoints_are_left_as_they_are(tmp_path):
    assert choose_policy(SCRIPTED, runs=tmp_path) == (SCRIPTED, ())


def test_a_missing_package_is_said_with_what_to_install(tmp_path):
    with pytest.raises(MissingExtraError, match="it needs no_such_package") as caught:
        require_packages(purpose="it", names=("json", "no_such_package"))
    assert caught.value.hint == "pip install 'arkdev[local]'"
    if not HAS_TORCH:
        with pytest.raises(MissingExtraError, match="torch"):
            choose_policy(LOCAL, runs=tmp_path)


async def test_flags_of_the_scripted_model_are_refused():
    with pytest.raises(UsageError, match="--skill"):
        await open_any(LOCAL, Opening(max_in_flight=1, timeout_s=1.0, skill=0.5))


def test_a_run_that_is_resumed_keeps_the_model_that_was_chosen_for_it(tmp_path: Path):
    def flags(endpoint, given):
        settings = {"endpoint": endpoint, "flags": given}
        run = RunWriter.create(tmp_path, kind="test", settings=settings, hashes={}, versions={})
        run.finish("finished", summary={})
        return flags_of(run.manifest)

    local = {"name": "local", "model": "run@40"}
    assert flags(local, {"endpoint": "local"}) == {"endpoint": "local", "model": "run@40"}
    given = {"endpoint": "local", "model": "run"}
    assert flags(local, given) == given
    assert flags({"name": "ark", "model": "m"}, {"endpoint": "ark"}) == {"endpoint": "ark"}


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["local", "--skill", "0.5"], "--skill"),
        (["local", "--latency", "0"], "--latency"),
        (["scripted", "--model", "tiny"], "--model"),
        (["scripted", "--threads", "2"], "--threads"),
        (["scripted", "--seed", "0"], "--seed"),
    ],
)
def test_serve_refuses_flags_of_the_other_model(flags, said):
    result = CliRunner().invoke(app, ["serve", *flags])
    assert isinstance(result.exception, UsageError) and said in str(result.exception)


def test_serve_needs_the_key_that_it_is_to_ask_for(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.delenv("NO_KEY", raising=False)
    result = CliRunner().invoke(app, ["serve", "scripted", "--api-key-env", "NO_KEY"])
    assert isinstance(result.exception, ArkdevError) and "NO_KEY" in str(result.exception)
