"""`arkdev endpoint`: model endpoints on this machine."""

from __future__ import annotations

import json
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from arkdev.errors import ExitCode, UsageError

if TYPE_CHECKING:
    from arkdev.endpoints.scripted.server import ScriptedServer

app = typer.Typer(help="Model endpoints.", no_args_is_help=True)


class Served(StrEnum):
    """What `serve` can serve."""

    SCRIPTED = "scripted"


@app.callback()
def _group() -> None:
    """Model endpoints."""


@app.command()
def serve(
    what: Annotated[Served, typer.Argument(help="The model to serve.", metavar="scripted")],
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port; 0 takes a free one.")] = 0,
    skill: Annotated[
        float, typer.Option(min=0, max=1, help="How often a call or an answer is right.")
    ] = 0.7,
    script: Annotated[
        Path | None, typer.Option(help="YAML or JSON file with exact answers.")
    ] = None,
    latency: Annotated[float, typer.Option(min=0, help="Seconds before each answer.")] = 0.0,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Serve the scripted model over HTTP until Ctrl-C.

    It needs no key and no model.

    Example: arkdev endpoint serve scripted --port 8000 --skill 0.9

    Then: arkdev test plugin --endpoint http://127.0.0.1:8000/v1 --model scripted
    """
    import asyncio  # not at the top: it costs as much as typer, and `--help` needs none of it

    from arkdev.endpoints.scripted.script import load_script
    from arkdev.endpoints.scripted.server import ScriptedServer

    loaded = None if script is None else load_script(script)
    server = ScriptedServer(skill=skill, script=loaded, latency_s=latency)
    settings = {"model": what.value, "skill": skill, "latency_s": latency}
    try:
        asyncio.run(_serve(server, host=host, port=port, settings=settings if as_json else None))
    except KeyboardInterrupt:
        raise typer.Exit(ExitCode.INTERRUPTED) from None


async def _serve(
    server: ScriptedServer, *, host: str, port: int, settings: dict[str, Any] | None
) -> None:
    import asyncio

    try:
        url = await server.start(host, port)
    except OSError as error:
        raise UsageError(
            f"cannot listen on {host}:{port}: {error.strerror or error}",
            hint="Give another --port, or --port 0 for a free one.",
        ) from error
    try:
        if settings is None:
            typer.echo(url)
            typer.echo("Serving the scripted model; Ctrl-C stops it.", err=True)
        else:
            typer.echo(json.dumps({"schema_version": 1, "url": url, **settings}))
        await asyncio.Event().wait()
    finally:
        await server.stop()
