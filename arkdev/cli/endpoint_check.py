"""`arkdev endpoint check`: what a server can do, and what that means for arkdev."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from arkdev.cli.output import console, print_json

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from arkdev.endpoints.capability_check.records import Finding, Support
    from arkdev.flows.check_endpoint import EndpointCheck

_STYLES = {"yes": "green", "partly": "yellow", "no": "red", "unknown": "magenta"}


def register(app: typer.Typer) -> None:
    """Add `check` to `app`, the group `endpoint`."""
    example = "Example: arkdev endpoint check http://127.0.0.1:8000/v1 --model my-model"
    app.command("check", epilog=example)(check_command)


def check_command(
    name: Annotated[
        str,
        typer.Argument(help="An endpoint's name or URL.", metavar="NAME|URL", show_default=False),
    ],
    model: Annotated[
        str | None, typer.Option(help="The model; needed where the server has several.")
    ] = None,
    api_key_env: Annotated[
        str | None, typer.Option(help="Environment variable that holds the key.", metavar="NAME")
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="One JSON document on standard output.")
    ] = False,
) -> None:
    """Ask an endpoint what it can do.

    It takes at most 12 small requests, one after the other. The table says what works, with
    evidence, and which parts of arkdev that enables or rules out.
    """
    from arkdev.cli.interrupts import run_interruptible
    from arkdev.endpoints.registry import resolve_endpoint, user_config_file
    from arkdev.flows.check_endpoint import CheckProgress, check_endpoint
    from arkdev.flows.local_policy import choose_policy
    from arkdev.job.workspace import find_workspace

    workspace = find_workspace(Path.cwd())
    spec = resolve_endpoint(
        name,
        model=model,
        api_key_env=api_key_env,
        workspace_endpoints=workspace.endpoints,
        user_config=user_config_file(),
    )
    spec, notes = choose_policy(spec, runs=workspace.root / "runs")
    for note in notes:
        _say(note)
    lines = _ProgressLines(console(is_stderr=True))
    try:
        work = check_endpoint(spec, progress=CheckProgress(lines.begin, lines.finish, _say))
        check = run_interruptible(work, on_give_up=lambda: None)
    finally:
        lines.close()
    if as_json:
        print_json(document_of(check))
    else:
        _print(check, target=console())


def _say(text: str) -> None:
    from rich.text import Text

    from arkdev.cli.terminal import printable

    console(is_stderr=True).print(Text(printable(text), style="dim"), soft_wrap=True)


def document_of(check: EndpointCheck) -> dict[str, Any]:
    """Return the JSON document of `check`, without its ``schema_version``."""
    return {
        "endpoint": check.name,
        "url": check.url,
        "model": check.model,
        "num_requests": check.num_requests,
        "capabilities": [
            {
                "name": finding.capability,
                "support": finding.support.value,
                "evidence": finding.evidence,
                "status": finding.status,
                "server_said": finding.server_said,
                "duration_s": finding.duration_s,
            }
            for finding in check.findings
        ],
        "features": [
            {"name": feature.name, "support": feature.support.value, "reason": feature.reason}
            for feature in check.features
        ],
    }


class _ProgressLines:
    """One line on stderr for each check: what is asked, then what came of it."""

    def __init__(self, target: Console) -> None:
        self._target = target
        self._is_open = False

    def begin(self, asked: str) -> None:
        self._target.print(f"asking for {asked} ... ", end="")
        self._is_open = True

    def finish(self, findings: list[Finding]) -> None:
        from arkdev.cli.terminal import duration
        from arkdev.endpoints.capability_check.records import CAPABILITIES

        said = ", ".join(f"{CAPABILITIES[f.capability]}: {f.support}" for f in findings)
        waited_s = sum({f.duration_s for f in findings if f.duration_s})  # some share an answer
        self._target.print(f"{said} ({duration(waited_s)})", soft_wrap=True)
        self._is_open = False

    def close(self) -> None:
        """End a line that an error left open."""
        if self._is_open:
            self._target.print()


def _print(check: EndpointCheck, *, target: Console) -> None:
    from rich.text import Text

    from arkdev.cli.terminal import plural, printable
    from arkdev.endpoints.capability_check.records import CAPABILITIES

    head = f"{check.url}, model {check.model}: {plural(check.num_requests, 'request')}"
    target.print(Text(printable(head), style="bold"), soft_wrap=True)
    capabilities = _table("the server", "evidence")
    for finding in check.findings:
        _add(capabilities, CAPABILITIES[finding.capability], finding.support, finding.evidence)
    features = _table("arkdev", "why")
    for feature in check.features:
        _add(features, feature.name, feature.support, feature.reason)
    for table in (capabilities, features):
        target.print()
        target.print(table)


def _table(what: str, why: str) -> Table:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column(what, no_wrap=True)
    table.add_column("works", no_wrap=True)
    table.add_column(why, overflow="fold")
    return table


def _add(table: Table, name: str, support: Support, why: str) -> None:
    from rich.text import Text

    from arkdev.cli.terminal import printable

    table.add_row(name, Text(support.value, style=_STYLES[support.value]), Text(printable(why)))
