"""``arkdev schema``: the JSON Schemas of job.yaml and of what commands print with ``--json``."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from arkdev.errors import UsageError

_EXAMPLES = """\b
Examples:
  arkdev schema                     the names
  arkdev schema test > test.schema.json
  arkdev schema job > typings/job.schema.json    for editors; `arkdev init` writes it"""

_JOB = "job"


def _names() -> list[str]:
    """For shell completion."""
    from arkdev.cli.documents import DOCUMENTS

    return [*DOCUMENTS, _JOB]


def register(app: typer.Typer) -> None:
    """Add the command `schema` to `app`."""

    @app.command("schema", epilog=_EXAMPLES)
    def schema_command(
        name: Annotated[
            str | None,
            typer.Argument(help="Which one; without it, list them.", autocompletion=_names),
        ] = None,
    ) -> None:
        """Print the JSON Schema of a command's --json document, or of job.yaml."""
        from arkdev.cli.documents import DOCUMENTS, json_schema
        from arkdev.job.schema import job_schema
        from arkdev.job.spelling import unknown_name

        if name is None:
            for known, kind in DOCUMENTS.items():
                line = (kind.__doc__ or "").partition("\n")[0].replace("``", "").rstrip(".")
                typer.echo(f"{known:<20} {line}")
            typer.echo(f"{_JOB:<20} the job file, job.yaml")
            return
        if name not in _names():
            raise UsageError(unknown_name("schema", name, known=_names()))
        schema = job_schema() if name == _JOB else json_schema(name)
        typer.echo(json.dumps(schema, indent=2, ensure_ascii=False))
