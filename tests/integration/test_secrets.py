"""No command shows or stores a secret, also with `--debug`: a sentinel through all of them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import typer

from arkdev.cli.main import build_app
from tests.integration.workspace import Command, Workspace, job_yaml

KEY = "sk-sentinel-5a1f0c77e2"
DECLARED = "declared-sentinel-90b1dd"
TOKEN = "token-sentinel-44ac1e"
DEBUG = "debug-sentinel-7be02f"
SENTINELS = (KEY, DECLARED, TOKEN, DEBUG)

LEAKS = """
    import logging
    import os
    from arkdev import RolloutResult, SingleGraderResult, rollout, single_grader

    from arkdev.observe.tracing import observe, trace_monitor

    @observe(tags={"key": os.environ["ARK_API_KEY"]})
    def tool(key):
        return {key: f"used {key}"}

    KEY, DECLARED = os.environ["ARK_API_KEY"], os.environ.get("DECLARED", "")

    @rollout
    @trace_monitor
    def answer(context, proxy, sample):
        declared = os.environ["DECLARED"]
        tool(declared)
        print("using", KEY, declared)
        logging.getLogger("mine").info("key %s", KEY)
        messages = [*sample.model_dump()["messages"], {"role": "user", "content": declared}]
        client = proxy.rollout_client()
        client.chat.completions.create(model="m", messages=messages)
        if sample.messages[0].content == "fail":
            raise ValueError(f"refused with {KEY} and {declared}")
        return RolloutResult(extra={declared: KEY})

    @single_grader
    def one(context, sample, trajectory):
        if sample.messages[0].content == "ungraded":
            raise RuntimeError(f"the judge refused {KEY}")
        return SingleGraderResult(reward=1.0, metrics={"x": 1.0})
"""

ASKED = (
    '{"sample": {"messages": [{"role": "user", "content": "hello"}]}, '
    '"proxy": {"url": "http://u:TOKEN@127.0.0.1:1/v1", "jwt_token": "TOKEN"}}'
)
"""A rollout's request."""

COMMANDS = {
    "create mcj": ["create", "mcj", "-f", "job.yaml", "--debug"],
    "debug": ["debug", "--endpoint", "mine", "--n-sample", "2"],
    "forecast": ["forecast", "latest"],
    "data check": ["data", "check"],
    "check": ["check"],
    "doctor": ["doctor"],
    "doctor tokens": ["doctor", "tokens", "--model", "nobody", "--run", "latest"],
    "endpoint check": ["endpoint", "check", "mine"],
    "endpoint list": ["endpoint", "list"],
    "endpoint serve": ["endpoint", "serve", "scripted", "--script", "none.yaml"],
    "export": ["export", "latest", "--to", "out"],
    "faas down": ["faas", "down"],
    "faas logs": ["faas", "logs"],
    "faas plan": ["faas", "plan", "latest"],
    "faas status": ["faas", "status"],
    "faas up": ["faas", "up", "--endpoint", "https://u:TOKEN@127.0.0.1:1/v1"],
    "freeze": ["freeze", "--check"],
    "get foundation-model": ["get", "foundation-model", "--model", "m", "--version", "1"],
    "get mcj": ["get", "mcj", "latest"],
    "init": ["init", "new"],
    "list mcj": ["list", "mcj"],
    "plan": ["plan"],
    "replay": ["replay", "latest"],
    "run": ["run", "leak.py"],
    "runs": ["runs"],
    "schema": ["schema", "test"],
    "show": ["show", "latest"],
    "stop": ["stop", "latest"],
    "test grader": ["test", "grader", "--attack", "--floor", "1", "--show", "echo"],
    "test pipeline_plugin": [
        *("test", "pipeline_plugin", "--faas-engine", "process", "--fn", "plugins.rollout:answer"),
        *("--request", ASKED),
    ],
    "test plugin": ["test", "plugin", "--endpoint", "mine"],
    "train": ["train", "--resume", "none"],
    "watch": ["watch"],
}
MORE = {
    "the debug endpoint": ["debug", "--n-sample", "2", "--keep-going"],
    "a frozen file": ["freeze", "--dry-run"],
    "all steps of a scripted job": ["debug", "--endpoint", "scripted", "--keep-going"],
    "a step": ["show", "latest", "--step", "0"],
    "a traced test": ["test", "plugin", "--endpoint", "mine", "--trace"],
    "what happened when": ["show", "latest", "1.0", "--trace"],
    "what was logged": ["show", "latest", "--logs"],
    "a failing rollout": ["show", "latest", "1.0"],
    "what failed": ["show", "--failed"],
    "two graders": ["replay", "latest", "--diff", "recorded", "plugins.rollout:one"],
    "a grader's noise": ["test", "grader", "--repeat", "2"],
    "one sample": ["test", "plugin", "--sample", "1"],
    "the run's own endpoint": ["test", "plugin", "--endpoint", "https://u:TOKEN@127.0.0.1:1/v1"],
}


def command_names() -> set[str]:
    """Every command of the command line, as it is typed."""
    names = set()

    def walk(command: object, path: tuple[str, ...]) -> None:
        for name, child in getattr(command, "commands", {}).items():
            walk(child, (*path, name))
        is_command = getattr(command, "invoke_without_command", False)
        if is_command or not getattr(command, "commands", None):
            names.add(" ".join(path))

    walk(typer.main.get_command(build_app()), ())
    return names


def written(folder: Path) -> str:
    """All that is in the files of `folder` but the workspace's own sources."""
    files = [p for p in folder.rglob("*") if p.is_file() and p.suffix not in (".py", ".pyc")]
    own = {"job.yaml", "data.jsonl", "arkworkspace.toml", "requirements.txt"}
    return "".join(p.read_text("utf-8", "replace") for p in files if p.name not in own)


def test_every_command_is_driven_here() -> None:
    assert command_names() == set(COMMANDS)


@pytest.mark.parametrize("debug", [(), ("--debug",)], ids=["plain", "debug"])
@pytest.mark.parametrize("as_json", [(), ("--json",)], ids=["text", "json"])
def test_no_command_shows_or_stores_a_secret(
    workspace: Workspace,
    arkdev: Command,
    monkeypatch: pytest.MonkeyPatch,
    debug: tuple[str, ...],
    as_json: tuple[str, ...],
) -> None:
    monkeypatch.setenv("ARK_API_KEY", KEY)
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:1")  # the real Ark is not asked
    workspace.write("plugins/rollout.py", LEAKS)
    workspace.write("leak.py", "raise SystemExit(0)")
    workspace.write("requirements.txt", f"x @ https://u:{TOKEN}@127.0.0.1:1/x.tar.gz\n")
    workspace.samples("hello", "fail", "ungraded")
    workspace.write(
        "arkworkspace.toml",
        '[endpoints.mine]\nbase_url = "http://127.0.0.1:1/v1"\napi_key_env = "ARK_API_KEY"\n'
        'model = "m"\n',
    )
    pipeline = {
        "rollout": {"plugin": "plugins.rollout:answer", "envs": {"DECLARED": DECLARED}},
        "graders": ["plugins.rollout:one"],
    }
    debug = {"apikey": DEBUG, "endpoint_id": "ep-1"}
    workspace.write("job.yaml", job_yaml(custom_rl_pipeline=pipeline, debug_config=debug))
    arkdev("test", "plugin")
    for name, arguments in {**COMMANDS, **MORE}.items():
        arguments = [argument.replace("TOKEN", TOKEN) for argument in arguments]
        takes_json = name not in ("run", "schema")
        told = arkdev(*debug, *arguments, *(as_json if takes_json else ()))
        shown = told.out + told.err
        assert told.exit_code != 70, shown
        assert [secret for secret in SENTINELS if secret in shown] == [], (name, shown)
        os.environ.pop("ARKDEV_DEBUG", None)
    text = written(workspace.root)
    assert "***" in text
    assert [secret for secret in SENTINELS if secret in text] == []
