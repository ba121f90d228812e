"""`arkdev endpoint list`."""

import json

import pytest
import typer
from typer.testing import CliRunner

from arkdev.cli.endpoint_list import register

SECRET = "sk-0123456789abcdef"


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Runs the command in a folder of a workspace that defines one endpoint."""
    workspace = tmp_path / "workspace"
    (workspace / "plugins").mkdir(parents=True)
    (workspace / "arkworkspace.toml").write_text(
        '[endpoints.lab]\nbase_url = "http://lab/v1"\nmodel = "m[1]"\napi_key_env = "LAB_KEY"\n',
        encoding="utf-8",
    )
    monkeypatch.chdir(workspace / "plugins")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("COLUMNS", "160")
    monkeypatch.setenv("LAB_KEY", SECRET)
    monkeypatch.delenv("ARK_API_KEY", raising=False)
    app = typer.Typer()
    app.callback()(lambda: None)
    register(app)
    return lambda *arguments: CliRunner().invoke(app, ["list", *arguments])


def test_the_table_shows_every_endpoint_and_whether_its_key_is_set(run):
    result = run()
    assert result.exit_code == 0
    lines = {line.split()[0]: line for line in result.stdout.splitlines()}
    assert "in this process" in lines["scripted"]
    assert "ARK_API_KEY (not set)" in lines["ark"]
    assert "m[1]" in lines["lab"] and "LAB_KEY (set)" in lines["lab"]
    assert "arkworkspace.toml" in lines["lab"]
    assert SECRET not in result.stdout


def test_json_is_one_document_without_keys(run):
    result = run("--json")
    document = json.loads(result.stdout)
    assert document["schema_version"] == 1
    assert document["endpoints"][3] == {
        "name": "lab",
        "url": "http://lab/v1",
        "model": "m[1]",
        "family": "generic",
        "api_key_env": "LAB_KEY",
        "is_key_set": True,
        "source": "arkworkspace.toml",
    }
    assert SECRET not in result.stdout
