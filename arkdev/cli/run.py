"""``arkdev run FILE``: a user's own script, with `ark_sdk` resolved to arkdev."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from arkdev.cli.options import ApiKeyEnvOption, ModelOption
from arkdev.errors import ExitCode, UsageError

if TYPE_CHECKING:
    from arkdev.flows.ark_endpoint import ArkEndpoint
    from arkdev.job.capture import SubmittedJob
    from arkdev.observe.log_lines import LogLine

_EXAMPLES = """\b
Examples:
  arkdev run plugins/rollout.py                         against Ark, as python would
  arkdev run plugins/rollout.py --endpoint scripted     offline: calls to Ark are answered here
  arkdev run --endpoint http://127.0.0.1:8000/v1 --model qwen3 evaluate.py 8

\b
What follows FILE belongs to the script, but for --endpoint directly after it (and --model and
--api-key-env after that); -- ends them."""

_OWN_AFTER_FILE = ("--endpoint", "--model", "--api-key-env")


def register(app: typer.Typer) -> None:
    """Add the command `run` to `app`."""
    app.command(
        name="run",
        epilog=_EXAMPLES,
        context_settings={"allow_interspersed_args": False},
    )(run)


def run(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A Python file of the workspace.")],
    arguments: Annotated[
        list[str] | None, typer.Argument(metavar="[ARGS]...", help="The script's own arguments.")
    ] = None,
    endpoint: Annotated[
        str | None,
        typer.Option(
            "--endpoint",
            metavar="NAME|URL",
            help="Send calls to Ark's public hosts there: scripted, ark, a name of yours, or a "
            "URL.",
        ),
    ] = None,
    model: ModelOption = None,
    api_key_env: ApiKeyEnvOption = None,
) -> None:
    """Run a Python file of the workspace as a script.

    It can import ark_sdk and the workspace's own modules.
    """
    given = {"--endpoint": endpoint, "--model": model, "--api-key-env": api_key_env}
    own, rest = _own_after_file(arguments or [])
    raise typer.Exit(_run(file, rest, {**given, **own}))


def _own_after_file(arguments: list[str]) -> tuple[dict[str, str], list[str]]:
    """Split what follows FILE into options of ours and the script's arguments."""
    own: dict[str, str] = {}
    rest = list(arguments)
    while rest:
        name, has_value, value = rest[0].partition("=")
        if name not in (_OWN_AFTER_FILE if own else _OWN_AFTER_FILE[:1]):
            break
        if not has_value and len(rest) < 2:
            raise UsageError(f"{name} needs a value")
        own[name] = value if has_value else rest[1]
        del rest[: 1 if has_value else 2]
    return own, rest[1:] if rest[:1] == ["--"] else rest


def _run(file: Path, arguments: list[str], options: dict[str, str | None]) -> int:
    from arkdev.cli.output import console
    from arkdev.cli.terminal import printable
    from arkdev.flows.ark_endpoint import ArkEndpoint
    from arkdev.flows.run_file import ScriptError, run_file
    from arkdev.plugin.source import users_traceback

    def say(text: str) -> None:
        console(is_stderr=True).print(f"arkdev: {text}", style="dim", soft_wrap=True)

    def on_log(line: LogLine) -> None:
        console(is_stderr=True).print(printable(str(line)), style="dim", soft_wrap=True)

    endpoint, model, api_key_env = (options[name] for name in _OWN_AFTER_FILE)
    if endpoint is None and (model or api_key_env):
        raise UsageError("--model and --api-key-env belong to an --endpoint")
    target = ArkEndpoint(endpoint, model, api_key_env) if endpoint else None
    codes: list[int] = []

    def on_submit(config: Any) -> SubmittedJob:
        submitted, code = _debug(config, file, target)
        codes.append(code)
        return submitted

    try:
        run_file(
            file,
            arguments=arguments,
            endpoint=target,
            say=say,
            on_submit=on_submit,
            on_log=on_log,
        )
    except SystemExit as end:
        return _code_of(end)
    except ScriptError as failed:
        sys.stderr.write(users_traceback(failed.error))
        return ExitCode.SOME_FAILED
    return next((code for code in codes if code), ExitCode.OK)


def _debug(config: Any, file: Path, target: ArkEndpoint | None) -> tuple[SubmittedJob, int]:
    """Rehearse the job that a script submits; its id and report are the job's id and page."""
    from arkdev.cli.debug import run_and_show
    from arkdev.cli.html_report import NAME
    from arkdev.errors import ExitCode
    from arkdev.flows.debug_request import DebugRequest
    from arkdev.job.capture import SubmittedJob
    from arkdev.job.reader import job_of_script
    from arkdev.job.workspace import find_workspace

    path = file.absolute()
    root = find_workspace(path.resolve().parent).root
    request = DebugRequest(
        start=path.parent,
        job=path,
        endpoint=target.name_or_url if target else None,
        model=target.model if target else None,
        api_key_env=target.api_key_env if target else None,
    )
    job = job_of_script(config, path=path, root=root)
    outcome = run_and_show(request, job=job, as_json=False)
    is_failed = outcome.exit_code is ExitCode.JOB_FAILED
    page = (outcome.folder / NAME).absolute()
    submitted = SubmittedJob(outcome.job_id, page.as_uri(), "Failed" if is_failed else "Completed")
    return submitted, int(outcome.exit_code)


def _code_of(end: SystemExit) -> int:
    """Return the exit code that Python gives; a text goes to stderr."""
    if end.code is None or isinstance(end.code, int):
        return end.code or ExitCode.OK
    sys.stderr.write(f"{end.code}\n")
    return ExitCode.SOME_FAILED
