"""``arkdev schema``: the JSON Schemas of what commands print with ``--json``."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from arkdev.errors import UsageError

_EXAMPLES = """\b
Examples:
  arkdev schema                     the names
  arkdev schema test > test.schema.json"""


def _names() -> list[str]:
    """For shell completion."""
    from arkdev.cli.documents import DOCUMENTS

    return list(DOCUMENTS)


def register(app: typer.Typer) -> None:
    """Add the command `schema` to `app`."""

    @app.command("schema", epilog=_EXAMPLES)
    def schema_command(
        name: Annotated[
            str | None,
            typer.Argument(help="Which one; without it, list them.", autocompletion=_names),
        ] = None,
    ) -> None:
        """Print the JSON Schema of a command's --json document."""
        from arkdev.cli.documents import DOCUMENTS, json_schema
        from arkdev.job.spelling import unknown_name

        if name is None:
            for known, kind in DOCUMENTS.items():
                line = (kind.__doc__ or "").partition("\n")[0].replace("``", "").rstrip(".")
                typer.echo(f"{known:<19} {line}")
            return
        if name not in DOCUMENTS:
            raise UsageError(unknown_name("schema", name, known=tuple(DOCUMENTS)))
        typer.echo(json.dumps(json_schema(name), indent=2))
