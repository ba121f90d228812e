"""What holds for every command: its help has an example, its exit codes are the documented ones."""

from __future__ import annotations

import pytest
import typer

from arkdev.cli.main import build_app
from tests.integration.workspace import Command, Workspace, job_yaml


def _commands() -> dict[str, object]:
    """Every command of the command line, as it is typed."""
    found: dict[str, object] = {}

    def walk(command: object, path: tuple[str, ...]) -> None:
        children = getattr(command, "commands", {})
        for name, child in children.items():
            walk(child, (*path, name))
        if not children or getattr(command, "invoke_without_command", False):
            found[" ".join(path)] = command

    walk(typer.main.get_command(build_app()), ())
    return found


COMMANDS = _commands()

ASKED = '{"sample":{"messages":[{"role":"user","content":"?"}]},"trajectory":{"messages":[]}}'
LOOK_UP = "get foundation-model --model m --version 1"
ENDS = {
    "create mcj": [
        ("create mcj -f job.yaml --debug", 0),
        ("create mcj -f job.yaml", 2),
        ("create mcj", 2),
        ("create cm", 2),
    ],
    "debug": [
        ("debug --steps 1", 0),
        ("debug -f none.yaml", 2),
        ("debug --resume latest", 2),
        ("debug --endpoint http://127.0.0.1:1/v1 --model m", 4),
    ],
    "forecast": [("forecast latest", 2), ("forecast nothing", 2), ("forecast --num-steps 0", 2)],
    "data check": [
        ("data check", 0),
        ("data check data.jsonl --show 0", 0),
        ("data check job.yaml", 2),
        ("data check none.jsonl", 2),
        ("data check --job none.yaml", 2),
    ],
    "check": [("check", 0), ("check none.yaml", 2), ("check broken.yaml", 2)],
    "doctor": [("doctor", 0)],
    "doctor tokens": [
        ("doctor tokens --model nobody", 2),
        ("doctor tokens --model nobody --run nothing", 2),
        ("doctor tokens", 2),
    ],
    "endpoint check": [
        ("endpoint check scripted", 0),
        ("endpoint check http://127.0.0.1:1/v1 --model m", 4),
        ("endpoint check nobody", 2),
        ("endpoint check local --model none", 2),
    ],
    "endpoint list": [("endpoint list", 0)],
    "endpoint serve": [
        ("endpoint serve scripted --script none.yaml", 2),
        ("endpoint serve local --model none", 2),
        ("endpoint serve local --skill 1", 2),
    ],
    "export": [
        ("export latest --to out", 2),
        ("export latest", 2),
        ("export latest --to out --step none", 2),
    ],
    "faas down": [("faas down", 2), ("faas down none", 2), ("faas down --all", 0)],
    "faas logs": [("faas logs", 2), ("faas logs none", 2)],
    "faas plan": [
        ("faas plan", 2),
        ("faas plan --target-p99 1 --target-makespan 1", 2),
        ("faas plan --rate 1 --batch-size 4", 2),
    ],
    "faas status": [("faas status", 0)],
    "faas up": [
        ("faas up --fn plugins.rollout:none", 2),
        ("faas up --model m", 2),
        ("faas up --endpoint http://127.0.0.1:1/v1 --model m", 4),
    ],
    "freeze": [
        ("freeze", 0),
        ("freeze --dry-run", 0),
        ("freeze --check", 1),
        ("freeze --python none/python", 2),
        ("freeze --platform windows/amd64", 2),
    ],
    "get foundation-model": [
        (LOOK_UP, 0),
        (f"{LOOK_UP} --fields hyperparameters GRPO", 0),
        (f"{LOOK_UP} RLHF", 2),
        (f"{LOOK_UP} --fields price", 2),
    ],
    "get mcj": [("get mcj latest", 2), ("get mcj mcj-x", 2), ("get cm", 2)],
    "init": [("init new", 0), ("init .", 2), ("init --list", 0), ("init a b", 2)],
    "list mcj": [
        ("list mcj", 0),
        ("list mcj -ps 20 -pn 2 -t RL", 0),
        ("list mcj -p queued", 2),
        ("list cm", 2),
    ],
    "plan": [
        ("plan", 0),
        ("plan --backend remote", 0),
        ("plan --backend cloud", 2),
        ("plan bucket.yaml --backend remote", 0),
        ("plan bucket.yaml --backend local", 2),
    ],
    "replay": [("replay latest", 2), ("replay nothing --diff recorded recorded", 2)],
    "run": [("run good.py", 0), ("run bad.py", 1), ("run exits.py", 3), ("run none.py", 2)],
    "runs": [("runs", 0)],
    "schema": [("schema", 0), ("schema runs", 0), ("schema none", 2)],
    "show": [("show", 2), ("show nothing", 2)],
    "stop": [("stop latest", 2), ("stop mcj latest --now", 2), ("stop", 2), ("stop a b", 2)],
    "test grader": [
        ("test grader", 2),
        ("test grader --attack --floor 1", 0),
        ("test grader --attack --floor 0.5", 3),
        ("test grader --repeat 2", 2),
    ],
    "test pipeline_plugin": [
        (
            f"test pipeline_plugin --fn plugins.grader:one --faas-engine process --request {ASKED}",
            0,
        ),
        ("test pipeline_plugin --fn plugins.grader:one --faas-engine process --request {}", 2),
        ("test pipeline_plugin --fn plugins.grader:none --request {}", 2),
        ("test pipeline_plugin --fn plugins.grader:one", 2),
    ],
    "test plugin": [
        ("test plugin", 0),
        ("test plugin --rollout plugins.rollout:none", 2),
        ("test plugin --endpoint http://127.0.0.1:1/v1 --model m", 4),
        ("test plugin --endpoint local --model none", 2),
    ],
    "train": [
        ("train -f none.yaml", 2),
        ("train --backend remote", 2),
        ("train --set lr", 2),
        ("train --log-to wandb", 2),
        ("train --log-to nowhere", 2),
        ("train --resume latest", 2),
    ],
    "watch": [("watch", 2), ("watch nothing --json", 2)],
}
"""Command → command lines with the exit code of each (decision 16)."""


def test_every_command_has_its_exit_codes_here() -> None:
    assert set(ENDS) == set(COMMANDS)


@pytest.mark.parametrize(
    ("line", "exit_code"), [end for ends in ENDS.values() for end in ends], ids=str
)
def test_a_command_ends_with_the_documented_code(
    workspace: Workspace,
    arkdev: Command,
    monkeypatch: pytest.MonkeyPatch,
    line: str,
    exit_code: int,
) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:1")  # the real Ark is not asked
    workspace.write("broken.yaml", job_yaml(nmae="x"))
    in_bucket = {"training_set": {"tos_bucket": "b", "tos_paths": ["p.jsonl"]}}
    workspace.write("bucket.yaml", job_yaml(data=in_bucket))
    workspace.write("good.py", "")
    workspace.write("bad.py", "raise ValueError('no')")
    workspace.write("exits.py", "raise SystemExit(3)")
    told = arkdev(*line.split())
    assert told.exit_code == exit_code, told.out + told.err
    if exit_code == 2:
        assert "error: " in told.err or "Usage" in told.err
        assert "Traceback" not in told.err


@pytest.mark.parametrize("name", COMMANDS)
def test_an_unknown_flag_is_2_for_every_command(arkdev: Command, name: str) -> None:
    if name == "run":
        pytest.skip("what follows FILE is the script's")
    told = arkdev(*name.split(), "--no-such-flag")
    assert (told.exit_code, told.out) == (2, "")


@pytest.mark.parametrize("name", COMMANDS)
def test_help_has_an_example(arkdev: Command, name: str) -> None:
    told = arkdev(*name.split(), "--help")
    assert told.exit_code == 0
    assert f"arkdev {name}" in told.out.partition("\n")[2], "an example beside the usage line"


def test_login_asks_nothing_without_a_terminal(workspace: Workspace) -> None:
    """Field case 9.2: it ends at once with 2 and names what to do."""
    process = workspace.start("login")
    _, said = process.communicate(timeout=300)
    assert process.returncode == 2
    assert b"not built yet" in said


def test_an_http_proxy_does_not_stand_between_a_raw_client_and_the_gateway(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    workspace.write(
        "plugins/rollout.py",
        """
        from arkdev import rollout
        from openai import OpenAI

        @rollout
        def answer(context, proxy, sample):
            messages = sample.model_dump()["messages"]
            proxy.update_state_from_messages(messages)
            with OpenAI(base_url=proxy.url, api_key=proxy.jwt_token, max_retries=0) as client:
                completion = client.chat.completions.create(model="m", messages=messages)
            proxy.process_completion(completion)
        """,
    )
    run = workspace.run()
    assert run.summary.verdicts == {"success": 1}, run.trajectories[0].attempts[-1].error
