"""``arkdev get foundation-model``: the hyperparameters that are publicly known."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from arkdev.cli.later import LaterGroup
from arkdev.cli.options import JsonOption

if TYPE_CHECKING:
    from arkdev.job.methods import CustomizationType

app = typer.Typer(
    name="get",
    cls=LaterGroup,
    help="Look up a training run, or what jobs can be made of.",
    no_args_is_help=True,
)

_EXAMPLES = """\b
Examples:
  arkdev get foundation-model --model doubao-seed-2-0-lite --version 260428 --fields hyperparameters
  arkdev get foundation-model --model doubao-seed-2-0-lite --version 260428 GRPO GRPOLoRA --json"""

_SOURCE = (
    "from arkdev's catalogue of what is public; it does not know which methods and values this "
    "model has, and - stands for unknown. The query of the platform, which does, is not built yet"
)


@app.callback()
def _group() -> None:
    """Look up a training run, or what jobs can be made of."""


def _methods() -> list[str]:
    """For shell completion."""
    from arkdev.job.methods import CustomizationType

    return list(CustomizationType.__members__)


@app.command("foundation-model", epilog=_EXAMPLES)
def foundation_model(
    model: Annotated[str, typer.Option("--model", help="Name of the model.", show_default=False)],
    version: Annotated[str, typer.Option("--version", help="Its version.", show_default=False)],
    fields: Annotated[
        str, typer.Option("--fields", help="What to tell: hyperparameters.")
    ] = "hyperparameters",
    method: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[METHOD]...",
            help="Training methods; without it, all of them.",
            show_default=False,
            autocompletion=_methods,
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Print the hyperparameters of each training method: type, range or options, default."""
    from arkdev.cli.output import print_json
    from arkdev.errors import ComesLaterError, UsageError
    from arkdev.job.spelling import unknown_name

    if fields != "hyperparameters":
        raise ComesLaterError(
            f"--fields {fields} is not built yet: it comes with remote job management",
            hint="--fields hyperparameters",
        )
    if not model.strip() or not version.strip():
        raise UsageError("--model and --version must not be empty")
    for name in method or ():
        if name not in _methods():
            raise UsageError(unknown_name("method", name, known=_methods()))
    sections = [_section(name, model=model) for name in method or _methods()]
    if as_json:
        print_json({"model": model, "version": version, "is_live": False, "methods": sections})
    else:
        _print(sections, title=f"{model} {version}")


def _section(name: str, *, model: str) -> dict[str, Any]:
    from arkdev.job.catalogue import entries_of
    from arkdev.job.methods import CustomizationType

    method = CustomizationType(name)
    return {
        "customization_type": method.value,
        "hyperparameters": [_row(entry, method, model=model) for entry in entries_of(method)],
    }


def _row(entry: Any, method: CustomizationType, *, model: str) -> dict[str, Any]:
    allowed = entry.range
    return {
        "name": entry.name,
        "type": entry.kind.value,
        "default_value": entry.default_for(model),
        "min": allowed.minimum if allowed else None,
        "is_min_excluded": bool(allowed and allowed.is_open),
        "max": allowed.maximum if allowed else None,
        "options": list(entry.options) if entry.options else None,
        "usual": list(entry.usual),
        "seen": list(entry.seen),
        "evidence": entry.methods[method].value,
        "sources": list(entry.sources),
        "meaning": entry.meaning,
        "note": entry.note,
    }


_HEADINGS = ("name", "type", "range or options", "default", "evidence", "sources")


def _print(sections: list[dict[str, Any]], *, title: str) -> None:
    from rich.table import Table
    from rich.text import Text

    from arkdev.cli.output import console
    from arkdev.cli.terminal import printable

    out = console()
    out.print(Text(printable(title), style="bold"), soft_wrap=True)
    console(is_stderr=True).print(Text(_SOURCE, style="cyan"), soft_wrap=True)
    files = list(dict.fromkeys(s for section in sections for s in _files_of(section)))
    for section in sections:
        out.print(Text(f"\n{section['customization_type']}", style="bold"))
        table = Table(box=None, pad_edge=False, header_style="bold")
        for heading in _HEADINGS:
            table.add_column(heading, no_wrap=heading == "name", overflow="fold")
        for row in section["hyperparameters"]:
            table.add_row(*map(Text, _cells(row, files)))
        out.print(table)
    out.print("")
    for number, file in enumerate(files, start=1):
        out.print(Text(f"[{number}] {file}", style="dim"), soft_wrap=True)


def _files_of(section: dict[str, Any]) -> list[str]:
    """The sources that are no rows of the contract."""
    sources = (source for row in section["hyperparameters"] for source in row["sources"])
    return [source for source in sources if ":" in source]


def _cells(row: dict[str, Any], files: list[str]) -> tuple[str, ...]:
    default = row["default_value"]
    sources = (f"[{files.index(s) + 1}]" if s in files else s for s in row["sources"])
    return (
        row["name"],
        row["type"] if row["type"] != "unknown" else "-",
        _allowed(row),
        "-" if default is None else str(default).lower(),
        row["evidence"],
        " ".join(sources),
    )


def _allowed(row: dict[str, Any]) -> str:
    if row["options"]:
        return ", ".join(row["options"])
    if row["usual"]:
        return "usually " + ", ".join(map(str, row["usual"]))
    if row["min"] is None and row["max"] is None:
        return "true, false" if row["type"] == "boolean" else "-"
    from arkdev.job.ranges import Range

    return str(Range(row["min"], row["max"], row["is_min_excluded"]))
