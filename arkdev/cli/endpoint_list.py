"""`arkdev endpoint list`: every endpoint that has a name, and whether its key is there."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from arkdev.endpoints.spec import EndpointSpec

SCHEMA_VERSION = 1

_ANY_WIDTH = 1000
_NO_MODEL = {"local": "newest trained, else tiny"}
_HEADINGS = ("name", "url", "model", "key", "defined in")


def register(app: typer.Typer) -> None:
    """Add `list` to `app`, the group `endpoint`."""
    app.command("list", epilog="Example: arkdev endpoint list --json")(list_command)


def list_command(
    as_json: Annotated[
        bool, typer.Option("--json", help="One JSON document on standard output.")
    ] = False,
) -> None:
    """List the endpoints that --endpoint takes by name.

    A URL needs no definition: --endpoint URL --model M --api-key-env NAME.
    """
    from arkdev.endpoints.registry import list_endpoints, user_config_file
    from arkdev.job.workspace import find_workspace

    specs = list_endpoints(
        workspace_endpoints=find_workspace(Path.cwd()).endpoints, user_config=user_config_file()
    )
    rows = [_row(spec) for spec in specs]
    if as_json:
        document = {"schema_version": SCHEMA_VERSION, "endpoints": rows}
        typer.echo(json.dumps(document, ensure_ascii=False, indent=2))
    else:
        _print_table(rows)


def _row(spec: EndpointSpec) -> dict[str, Any]:
    from arkdev.endpoints.keys import find_api_key
    from arkdev.endpoints.registry import user_keys_file

    variable = spec.api_key_env
    return {
        "name": spec.name,
        "url": spec.base_url,
        "model": spec.model,
        "family": spec.family,
        "api_key_env": variable,
        "is_key_set": None
        if variable is None
        else find_api_key(variable, keys_file=user_keys_file()) is not None,
        "source": spec.source,
    }


def _print_table(rows: list[dict[str, Any]]) -> None:
    from rich.table import Table
    from rich.text import Text

    from arkdev.cli.output import console
    from arkdev.cli.terminal import facts

    cells = [
        (
            row["name"],
            row["url"] or "in this process",
            row["model"] or _NO_MODEL.get(row["family"], "--model M"),
            _key_cell(row),
            row["source"],
        )
        for row in rows
    ]
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in _HEADINGS:
        table.add_column(heading, no_wrap=True)
    for row_cells in cells:
        table.add_row(*map(Text, row_cells))
    out = console()
    if out.measure(table, options=out.options.update(width=_ANY_WIDTH)).maximum <= out.width:
        out.print(table)
        return
    for name, *others in cells:  # each on a line of its own: a URL is to be copied whole
        out.print(Text(name, style="bold"))
        out.print(facts(zip(_HEADINGS[1:], others, strict=True)), soft_wrap=True)


def _key_cell(row: dict[str, Any]) -> str:
    if row["api_key_env"] is None:
        return "none"
    return f"{row['api_key_env']} ({'set' if row['is_key_set'] else 'not set'})"
