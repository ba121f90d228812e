"""`arkdev init`: make a workspace from a template, or list the templates."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer

from arkdev.cli.output import print_json
from arkdev.errors import UsageError

DEFAULT_TEMPLATE = "rl_demo"


def register(app: typer.Typer) -> None:
    """Add the command `init` to `app`."""
    app.command(name="init", epilog="Example: arkdev init workspace my_agent --template rl_demo")(
        init
    )


def _templates() -> list[str]:
    """For shell completion."""
    from arkdev.flows.init_workspace import TEMPLATES

    return list(TEMPLATES)


def init(
    target: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[workspace] DIR",
            help="The folder to make: a new one or an empty one. `workspace` may stand before it.",
            show_default=False,
        ),
    ] = None,
    template: Annotated[
        str,
        typer.Option(
            "--template", "-t", help="The template to start from.", autocompletion=_templates
        ),
    ] = DEFAULT_TEMPLATE,
    list_templates: Annotated[
        bool, typer.Option("--list", help="List the templates and make nothing.")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON document instead of text.")
    ] = False,
) -> None:
    """Make a workspace from a template.

    It has plugins, data, a job and tests, which run as they are.
    """
    from arkdev.flows.init_workspace import create_workspace

    if list_templates:
        _print_templates(as_json=as_json)
        return
    directory = _directory(target or [])
    files = create_workspace(directory, template=template)
    if as_json:
        print_json(
            {
                "template": template,
                "directory": str(directory.resolve()),
                "files": [file.as_posix() for file in files],
            }
        )
        return
    _print_made(directory, template=template, files=files)


def _directory(target: list[str]) -> Path:
    """The DIR of `[workspace] DIR`; raises UsageError when there is none or more than one."""
    match target:
        case ["workspace"] | []:
            raise UsageError(
                "the folder to make is missing",
                hint="arkdev init DIR --template T (for a folder called workspace: ./workspace)",
            )
        case ["workspace", directory] | [directory]:
            return Path(directory)
        case _:
            raise UsageError(
                f"one folder is expected, got {shlex.join(target)}",
                hint="arkdev init DIR --template T",
            )


def _print_templates(*, as_json: bool) -> None:
    from arkdev.flows.init_workspace import TEMPLATES, describe_templates

    if as_json:
        templates = [{"name": name, "description": text} for name, text in TEMPLATES.items()]
        print_json({"default": DEFAULT_TEMPLATE, "templates": templates})
    else:
        typer.echo(describe_templates())


def _print_made(directory: Path, *, template: str, files: tuple[Path, ...]) -> None:
    """What was made (files for editors as one line), and what to type next."""
    shown = [file.as_posix() for file in files if file.parts[0] != "typings"]
    typer.echo(f"Made {directory} from the template {template}:\n")
    for name in shown:
        typer.echo(f"  {name}")
    num_others = len(files) - len(shown)
    typer.echo(f"  typings/  ({num_others} files for editors: stubs of ark_sdk, job.yaml's schema)")
    typer.echo("\nNext:\n")
    if directory.resolve() != Path.cwd():
        typer.echo(f"  cd {shlex.quote(str(directory))}")
    typer.echo("  arkdev test plugin")
    typer.echo("\nTo train on this machine, without a GPU:\n")
    typer.echo("  pip install 'arkdev[local]'")
    typer.echo("  arkdev train --backend local")
