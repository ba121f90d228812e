"""``arkdev doctor tokens``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from arkdev.cli.options import JsonOption

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

    from arkdev.backends.local.drift import DialogueDrift, Drift, Unread
    from arkdev.flows.token_drift import TokenDriftReport

_EXAMPLES = """\b
Examples:
  arkdev doctor tokens --model tiny                 the embedded model, on built-in dialogues
  arkdev doctor tokens --model ./my-model           a Hugging Face folder
  arkdev doctor tokens --model ./my-model --run latest
  arkdev doctor tokens --model tiny --json | jq '.dialogues[] | select(.drifts != [])'

\b
Exit codes: 0 no drift, 1 a dialogue drifts or an answer is not read as it was written, 2 usage,
or the model cannot be used."""
_MOST = 20


def register(app: typer.Typer) -> None:
    """Add `tokens` to `app`, the group `doctor`."""
    app.command("tokens", epilog=_EXAMPLES)(tokens)


def tokens(
    model: Annotated[
        str, typer.Option("--model", metavar="NAME|DIR", help="A model that can be trained here.")
    ],
    run: Annotated[
        str | None,
        typer.Option(
            "--run",
            metavar="RUN",
            help="Check its rollouts: id, its unique beginning or end, path, or latest.",
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Check that a model's template keeps the tokens that were sampled, turn by turn.

    Each prompt extends the turn before and is also rendered from scratch. Shown is where the two
    differ first and which trained tokens that cuts or shifts. Needs
    `pip install 'arkdev[local]'`.
    """
    from arkdev.cli.output import console, print_json
    from arkdev.flows.token_drift import check_token_drift
    from arkdev.job.workspace import find_workspace
    from arkdev.runs.reader import RunReader, find_run

    runs = find_workspace(Path.cwd()).root / "runs"
    reader = None
    if run is not None:
        reader = RunReader(find_run(runs, run, is_wanted=lambda each: each.kind != "replay"))
    report = check_token_drift(model, run=reader, runs=runs)
    if as_json:
        print_json(report.to_json())
    else:
        _print(report, console())
    raise typer.Exit(int(report.exit_code))


def _print(report: TokenDriftReport, out: Console) -> None:
    from rich.text import Text

    from arkdev.cli.terminal import plural, printable

    ends = ", ".join(report.stop_tokens)
    head = f"{report.model}: written by {report.rendering}; an answer ends at {ends}"
    out.print(printable(head), style="bold", soft_wrap=True, markup=False)
    notable = [d for d in report.dialogues if d.drifts or d.unread or d.refusal]
    for dialogue in notable[:_MOST]:
        for line in _lines(dialogue):
            out.print(line, soft_wrap=True)
    if len(notable) > _MOST:
        out.print(f"... and {len(notable) - _MOST} more (--json has all)", style="dim")
    counted = [dialogue for dialogue in report.dialogues if dialogue.num_turns]
    turns = sum(dialogue.num_turns for dialogue in counted)
    sampled = sum(dialogue.num_sampled for dialogue in counted)
    exact = sum(dialogue.is_as_sampled for dialogue in counted)
    text = (
        f"{plural(len(counted), 'dialogue')}, {plural(turns, 'turn')}, {sampled:,} trained tokens"
    )
    if report.run is not None:
        text = f"run {report.run}: {text}; the ids of {exact} are those sampled"
    style = "bold green" if not report.num_drifting and not report.num_unread else "bold yellow"
    out.print(Text(text, style="dim"), soft_wrap=True)
    out.print(Text(_verdict(report), style=style), soft_wrap=True)


def _verdict(report: TokenDriftReport) -> str:
    from arkdev.cli.terminal import plural

    if not report.num_drifting and not report.num_unread:
        return "no drift"
    parts = []
    if report.num_drifting:
        parts.append(f"{plural(report.num_drifting, 'dialogue')} with drift")
    if report.num_unread:
        parts.append(f"{report.num_unread} with an answer that is read otherwise")
    return ", ".join(parts)


def _lines(dialogue: DialogueDrift) -> list[Text]:
    from rich.text import Text

    from arkdev.cli.terminal import printable

    lines = [Text(printable(dialogue.name), style="bold")]
    if dialogue.refusal is not None:
        lines.append(Text(f"  cannot be written: {printable(dialogue.refusal)}", style="dim"))
    for drift in dialogue.drifts:
        lines += _drift_lines(drift, dialogue)
    for unread in dialogue.unread[:1]:
        lines += _unread_lines(unread)
    return lines


def _drift_lines(drift: Drift, dialogue: DialogueDrift) -> list[Text]:
    from rich.text import Text

    kept, fresh = _token(drift.kept), _token(drift.fresh)
    share = f"{drift.num_tokens:,} of {dialogue.num_sampled:,} trained tokens"
    what = {
        "cut": f"{kept} becomes {fresh}; {share} are trained no more",
        "shifted": f"{kept} would be {fresh} from scratch; {share} would stand elsewhere",
    }
    place = f"{drift.kind} at turn {drift.turn}, token {drift.position:,}"
    return [
        Text(f"  {place}: {what[drift.kind]}", style="yellow"),
        Text(f"    after ...{_quoted(drift.before)}", style="dim"),
    ]


def _unread_lines(unread: Unread) -> list[Text]:
    from rich.text import Text

    return [
        Text(f"  turn {unread.turn}: {unread.field} is read otherwise", style="yellow"),
        Text(f"    {_quoted(unread.written)} is read as {_quoted(unread.read)}", style="cyan"),
    ]


def _quoted(text: str) -> str:
    from arkdev.cli.terminal import printable

    return printable(repr(text))


def _token(text: str) -> str:
    return _quoted(text) if text else "nothing"
