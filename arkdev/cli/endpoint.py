"""`arkdev endpoint`: model endpoints on this machine."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from arkdev.cli.options import ApiKeyEnvOption, JsonOption
from arkdev.errors import ExitCode, UsageError

if TYPE_CHECKING:
    from arkdev.endpoints.serving.server import ModelServer

app = typer.Typer(help="Model endpoints.", no_args_is_help=True)


class Served(StrEnum):
    """What `serve` can serve."""

    SCRIPTED = "scripted"
    LOCAL = "local"


_HERE = ("127.0.0.1", "localhost", "::1")


@app.callback()
def _group() -> None:
    """Model endpoints."""


@app.command()
def serve(
    what: Annotated[Served, typer.Argument(help="The model to serve.", metavar="scripted|local")],
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port; 0 takes a free one.")] = 0,
    api_key_env: ApiKeyEnvOption = None,
    skill: Annotated[
        float | None,
        typer.Option(
            min=0, max=1, help="scripted: how often a call or an answer is right (default 0.7)."
        ),
    ] = None,
    script: Annotated[
        Path | None, typer.Option(help="scripted: YAML or JSON file with exact answers.")
    ] = None,
    latency: Annotated[
        float | None, typer.Option(min=0, help="scripted: seconds before each answer.")
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            metavar="tiny|PATH|RUN",
            help="local: a model of arkdev, a Hugging Face folder, or a training run (default: "
            "the newest finished one, else tiny).",
        ),
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option(help="local: makes requests that come one after the other repeatable."),
    ] = None,
    threads: Annotated[
        int | None, typer.Option(min=1, help="local: threads of torch on a CPU.")
    ] = None,
    max_context_tokens: Annotated[
        int | None,
        typer.Option(min=1, help="local: of prompt and answer (default: at most 8192)."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Serve a model over HTTP until Ctrl-C: the scripted one, or a policy.

    The scripted model needs no key and no model; a policy needs arkdev[local]. Both speak Chat
    Completions and Responses to any OpenAI client.

    Example: arkdev endpoint serve scripted --port 8000 --skill 0.9

    Then: arkdev test plugin --endpoint http://127.0.0.1:8000/v1 --model scripted

    Example: arkdev endpoint serve local --model tiny --port 8000
    """
    from arkdev.cli.interrupts import ended_at_once

    scripted = {"skill": skill, "script": script, "latency": latency}
    local = {
        "model": model,
        "seed": seed,
        "threads": threads,
        "max_context_tokens": max_context_tokens,
    }
    _refuse(local if what is Served.SCRIPTED else scripted, what=what)
    key = _api_key(api_key_env)
    make = _scripted if what is Served.SCRIPTED else _policy
    given = scripted if what is Served.SCRIPTED else local
    with ended_at_once():
        made = make({k: v for k, v in given.items() if v is not None}, key)
    if host not in _HERE and key is None:
        typer.echo(
            "note: whoever reaches this address can use the model; --api-key-env asks for a key",
            err=True,
        )
    _run(made, host=host, port=port, as_json=as_json)


def _refuse(flags: Mapping[str, Any], *, what: Served) -> None:
    """A flag that can have no effect is an error."""
    for name, value in flags.items():
        if value is not None:
            other = Served.SCRIPTED if what is Served.LOCAL else Served.LOCAL
            raise UsageError(
                f"--{name.replace('_', '-')} is for `serve {other.value}`, not `{what.value}`",
                hint="leave it out",
            )


def _api_key(variable: str | None) -> str | None:
    from arkdev.endpoints.keys import parse_key_variable, read_api_key
    from arkdev.endpoints.registry import user_keys_file

    if variable is None:
        return None
    parse_key_variable(variable, where="--api-key-env")
    return read_api_key(variable, keys_file=user_keys_file()).get_secret_value()


async def _nothing() -> None:
    pass


@dataclass(frozen=True)
class _Made:
    """What is served."""

    server: ModelServer
    said: str
    """What it is, for people."""
    settings: dict[str, Any]
    close: Callable[[], Awaitable[None]] = _nothing
    """Ends what answers behind the server; called when that has stopped."""


def _scripted(flags: dict[str, Any], key: str | None) -> _Made:
    from arkdev.endpoints.scripted.policy import DEFAULT_SKILL
    from arkdev.endpoints.scripted.script import load_script
    from arkdev.endpoints.scripted.server import ScriptedServer

    script = load_script(flags["script"]) if "script" in flags else None
    skill, latency_s = flags.get("skill", DEFAULT_SKILL), flags.get("latency", 0.0)
    server = ScriptedServer(skill=skill, script=script, latency_s=latency_s, api_key=key)
    settings = _document("scripted", skill=skill, latency_s=latency_s)
    return _Made(server, "the scripted model", settings)


def _policy(flags: dict[str, Any], key: str | None) -> _Made:
    from importlib import import_module

    from arkdev.endpoints.registry import LOCAL
    from arkdev.flows.local_policy import PolicySpec, choose_policy, load_policy
    from arkdev.job.workspace import find_workspace

    runs = find_workspace(Path.cwd()).root / "runs"
    spec, notes = choose_policy(replace(LOCAL, model=flags.get("model")), runs=runs)
    assert isinstance(spec, PolicySpec)
    for note in notes:
        typer.echo(note, err=True)
    loaded = load_policy(
        spec,
        num_threads=flags.get("threads"),
        max_context_tokens=flags.get("max_context_tokens"),
        is_deterministic="seed" in flags,
    )
    serving: Any = import_module("arkdev.backends.local.server")
    server = serving.PolicyServer(loaded.endpoint, seed=flags.get("seed"), api_key=key)
    document = _document(
        str(spec.model),
        device=loaded.device,
        num_threads=loaded.num_threads,
        max_context_tokens=loaded.max_context_tokens,
        seed=flags.get("seed"),
    )
    return _Made(server, f"{spec.model} {loaded}", document, loaded.endpoint.close)


def _document(model: str, **settings: Any) -> dict[str, Any]:
    names = ("skill", "latency_s", "device", "num_threads", "max_context_tokens", "seed")
    return {"model": model, **dict.fromkeys(names), **settings}


def _run(made: _Made, *, host: str, port: int, as_json: bool) -> None:
    from arkdev.cli.interrupts import run_interruptible

    try:
        run_interruptible(
            _serve(made, host=host, port=port, as_json=as_json),
            on_give_up=lambda: typer.echo("answers under way do not end: left behind", err=True),
        )
    except KeyboardInterrupt:
        raise typer.Exit(ExitCode.INTERRUPTED) from None


async def _serve(made: _Made, *, host: str, port: int, as_json: bool) -> None:
    import asyncio

    try:
        url = await made.server.start(host, port)
    except OSError as error:
        raise UsageError(
            f"cannot listen on {host}:{port}: {error.strerror or error}",
            hint="Give another --port, or --port 0 for a free one.",
        ) from error
    try:
        if as_json:
            typer.echo(json.dumps({"schema_version": 1, "url": url, **made.settings}))
        else:
            typer.echo(url)
            typer.echo(f"Serving {made.said}; Ctrl-C stops it.", err=True)
        await asyncio.Event().wait()
    finally:
        await made.server.stop()
        await made.close()
