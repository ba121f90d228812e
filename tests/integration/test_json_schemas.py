"""What commands print with `--json` is what `arkdev schema` publishes: no key more, none less."""

from __future__ import annotations

import json
import os
import sys
from typing import Any
from urllib.request import urlopen

import jsonschema
import pytest

from arkdev.cli.documents import DOCUMENTS
from arkdev.flows.training_runs import begin_process
from tests.integration import training_folders
from tests.integration.workspace import GIVE_ONE, Command, Workspace

COMMANDS = {
    "test": "test plugin --trace --json",
    "test-sample": "test plugin --sample 0 --json",
    "debug": "debug --steps 1 --n-sample 2 --keep-going --json",
    "forecast": "forecast latest --json",
    "show-step": "show latest --step 0 --json",
    "test-grader-attack": "test grader --attack --floor 0.5 --json",
    "test-grader-repeat": "test grader --repeat 2 plugins.grader:one=1 plugins.grader:one --json",
    "replay": "replay latest --diff recorded plugins.grader:one --json",
    "runs": "runs --json",
    "show": "show latest --json",
    "show-trajectory": "show latest 0.0 --json",
    "show-trace": "show latest 0.0 --trace --json",
    "show-logs": "show --logs --json",
    "show-failed": "show --failed --json",
    "endpoint-list": "endpoint list --json",
    "endpoint-check": "endpoint check scripted --json",
    "test-pipeline-plugin": "test pipeline_plugin --fn plugins.grader:one --faas-engine process "
    '--json --request {"sample":{"messages":[{"role":"user","content":"?"}]},'
    '"trajectory":{"messages":[]}}',
    "faas-plan": "faas plan latest --target-p99 0.000001 --json",
    "faas-status": "faas status --json",
    "faas-down": "faas down --all --json",
    "init": "init new --template minimal --json",
    "init-list": "init --list --json",
    "doctor": "doctor --json",
    "data-check": "data check --json",
    "freeze": "freeze --check --json",
    "check": "check --json",
    "plan": "plan --backend remote --json",
    "get-foundation-model": "get foundation-model --model m --version 1 --json",
    "export": "export latest --to out --json",
    "get-mcj": "get mcj latest --json",
    "list-mcj": "list mcj --json",
}


def strict(schema: Any) -> Any:
    """The schema with every property required and no others allowed."""
    if isinstance(schema, list):
        return [strict(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    schema = {key: strict(value) for key, value in schema.items()}
    if isinstance(schema.get("properties"), dict):
        schema |= {"additionalProperties": False, "required": list(schema["properties"])}
    return schema


def published(arkdev: Command, name: str) -> dict[str, Any]:
    told = arkdev("schema", name)
    assert told.exit_code == 0, told.err
    schema = told.document
    jsonschema.Draft202012Validator.check_schema(schema)
    return schema


def check(document: dict[str, Any], schema: dict[str, Any]) -> None:
    jsonschema.Draft202012Validator(schema).validate(document)
    jsonschema.Draft202012Validator(strict(schema)).validate(document)


@pytest.mark.parametrize("name", COMMANDS)
def test_the_document_of_a_command_is_the_published_one(
    workspace: Workspace, arkdev: Command, name: str
) -> None:
    workspace.write(
        "plugins/rollout.py",
        """
        from arkdev import rollout

        @rollout
        def answer(context, proxy, sample):
            print("asked")
            if sample.messages[0].content == "fail":
                raise ValueError("no")
            client = proxy.rollout_client()
            client.chat.completions.create(model="m", messages=sample.model_dump()["messages"])
        """,
    )
    workspace.samples("hello", "fail", "hello again")
    if name == "freeze":
        workspace.write("requirements.txt", "-e ./lib\narkdev\nunused==1\n")
    if name in ("export", "get-mcj", "list-mcj"):
        training_folders.finished(workspace.root / "runs")
    if name == "faas-plan":
        workspace.write("requirements.txt", "openai==3.57.0\n")
        arkdev("test", "plugin", "--faas", "--faas-engine", "process")
    elif name in ("show-step", "forecast"):
        arkdev("debug", "--steps", "1", "--n-sample", "2", "--keep-going")
    elif name.startswith("show") or name in ("runs", "replay", "test-grader-repeat"):
        arkdev("test", "plugin", "--n-sample", "2", "--trace")
    told = arkdev(*COMMANDS[name].split())
    assert told.out, told.err
    document = told.document
    check(document, published(arkdev, name))


def test_the_served_endpoints_document_is_the_published_one(
    workspace: Workspace, arkdev: Command
) -> None:
    process = workspace.start("endpoint", "serve", "scripted", "--json")
    try:
        assert process.stdout is not None
        document = json.loads(process.stdout.readline())
    finally:
        process.terminate()
        process.communicate(timeout=300)
    check(document, published(arkdev, "endpoint-serve"))


def test_the_documents_of_a_deployment_are_the_published_ones(
    workspace: Workspace, arkdev: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    workspace.write("plugins/grader.py", GIVE_ONE.replace("return", "print(1)\n        return"))
    up = ("faas", "up", "--fn", "plugins.grader:one", "--faas-engine", "process", "--detach")
    try:
        kept = arkdev(*up, "--json").document
        check(kept, published(arkdev, "faas-up"))
        sample = {"messages": [{"role": "user", "content": "?"}]}
        body = json.dumps({"sample": sample, "trajectory": {"messages": []}}).encode()
        with urlopen(kept["functions"][0]["url"], body, timeout=60) as response:
            assert response.status == 200
        status = arkdev("faas", "status", "--json").document
        check(status, published(arkdev, "faas-status"))
        assert status["deployments"]
        logs = arkdev("faas", "logs", "--json").document
        check(logs, published(arkdev, "faas-logs"))
        assert [line["text"] for line in logs["lines"]] == ["1"]
    finally:
        down = arkdev("faas", "down", "--json").document
    check(down, published(arkdev, "faas-down"))
    assert down["ended"] == [kept["id"]]


def test_the_document_of_a_stopped_run_is_the_published_one(
    workspace: Workspace, arkdev: Command
) -> None:
    writer = training_folders.begin(workspace.root / "runs")
    begin_process(writer.folder)
    check(arkdev("stop", "latest", "--json").document, published(arkdev, "stop"))
    writer.finish("stopped", {})


def test_every_document_has_a_command_here() -> None:
    others = {"endpoint-serve", "faas-up", "faas-logs", "stop", "train", "train-detached", "watch"}
    others.add("doctor-tokens")  # in tests/local: it needs transformers
    assert set(COMMANDS) | others == set(DOCUMENTS)


def test_the_schemas_are_listed_and_an_unknown_one_is_refused(arkdev: Command) -> None:
    told = arkdev("schema")
    assert [line.split()[0] for line in told.out.splitlines()] == [*DOCUMENTS, "job"]
    told = arkdev("schema", "runz")
    assert (told.exit_code, told.out) == (2, "")
    assert "did you mean 'runs'?" in told.err
