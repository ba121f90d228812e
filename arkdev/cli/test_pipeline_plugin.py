"""``arkdev test pipeline_plugin``: one documented request to a plugin as a cloud function."""

from __future__ import annotations

import json
import os
import sys
from contextlib import ExitStack, redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from arkdev.cli.options import ApiKeyEnvOption, JsonOption, ModelOption
from arkdev.cli.stopping_instances import STOP_INSTANCES_WITHIN_S
from arkdev.errors import UsageError
from arkdev.faas_emulator.choices import InstanceKind, NetworkPolicy

if TYPE_CHECKING:
    from arkdev.flows.test_instances import InstanceSettings, RequestOutcome
    from arkdev.observe.log_lines import LogLine

_EXAMPLES = """\b
Examples:
  arkdev test pipeline_plugin --fn plugins.random_reward:random_reward --request @request.json
  arkdev test pipeline_plugin --fn plugins.weather_rollout:demo_rollout --sync \\
      --endpoint scripted --request '{"sample": {"messages": [...], "extra": {}}}'

\b
A request has "context" (may be left out), "sample", and
  of a rollout        "proxy": {"url": ..., "jwt_token": ...}; of a group rollout also "n_sample"
  of a single grader  "trajectory" (or "completion"); of a group grader "trajectories"

\b
Without --sync the code goes on that an earlier call deployed, as in the cloud; a notice names the
files that differ. It is forgotten when it was not called for 7 days.

\b
Exit codes: 0 the plugin answered, 1 it failed, ran out of time or memory, 2 usage, configuration,
or no request of the plugin's, 4 an address or the container engine cannot be reached."""


def register(app: typer.Typer) -> None:
    """Add the command `pipeline_plugin` to the group `test`."""
    app.command("pipeline_plugin", epilog=_EXAMPLES)(pipeline_plugin)


def pipeline_plugin(
    fn: Annotated[
        str, typer.Option("--fn", metavar="MODULE:FUNCTION", help="The plugin.", show_default=False)
    ],
    request: Annotated[
        str,
        typer.Option(
            "--request",
            metavar="JSON|@FILE|-",
            help="The request; @FILE reads a file, - reads stdin.",
            show_default=False,
        ),
    ],
    sync: Annotated[bool, typer.Option("--sync", help="Deploy the code of now first.")] = False,
    endpoint: Annotated[
        str | None,
        typer.Option(
            "--endpoint",
            metavar="NAME|URL",
            help="Send calls to Ark there: scripted, a name of yours, or a URL. A rollout's "
            "request needs no proxy then.",
        ),
    ] = None,
    model: ModelOption = None,
    api_key_env: ApiKeyEnvOption = None,
    faas_engine: Annotated[
        InstanceKind,
        typer.Option("--faas-engine", help="What the instance is; auto: a container where it can."),
    ] = InstanceKind.AUTO,
    network: Annotated[
        NetworkPolicy, typer.Option("--network", help="What the instance reaches.")
    ] = NetworkPolicy.OPEN,
    as_json: JsonOption = False,
) -> None:
    """Call one plugin as a cloud function with a documented request, and print its answer.

    The plugin runs in an emulated instance; what it logs and prints goes to stderr.
    """
    from arkdev.cli.streams import keep_results_apart
    from arkdev.flows.ark_endpoint import ArkEndpoint, ark_served_by
    from arkdev.flows.test_instances import InstanceSettings, workspace_reference
    from arkdev.job.workspace import find_workspace
    from arkdev.plugin import ark_sdk

    reference = workspace_reference(fn)
    body = _body(request)
    if endpoint is None and (model or api_key_env):
        raise UsageError("--model and --api-key-env belong to an --endpoint")
    settings = InstanceSettings(faas_engine, network)
    workspace = find_workspace(Path.cwd())
    ark_sdk.install()
    # what plugins write while they are imported is no part of the answer
    keep_results_apart()
    with ExitStack() as stack:
        stack.enter_context(redirect_stdout(sys.stderr))
        if endpoint is not None:
            target = ArkEndpoint(endpoint, model, api_key_env).resolve(workspace)
            stack.enter_context(ark_served_by(target, say=_say))
            body.setdefault("proxy", {})
        outcome = _call(reference, body, workspace=workspace, settings=settings, sync=sync)
    if as_json:
        _print_document(outcome)
    else:
        _print(outcome)
    raise typer.Exit(int(outcome.exit_code))


def _body(request: str) -> dict[str, Any]:
    where, text = "--request", request
    if request == "-":
        where, text = "standard input", sys.stdin.read()
    elif request.startswith("@"):
        where = request[1:]
        try:
            text = Path(where).read_text(encoding="utf-8-sig")
        except UnicodeDecodeError as error:
            raise UsageError(f"not UTF-8 text (byte {error.start})", where=where) from error
        except OSError as error:
            raise UsageError(
                f"the request cannot be read: {error.strerror}", where=where
            ) from error
    try:
        body = json.loads(text)
    except (ValueError, RecursionError) as error:
        hint = "" if request.startswith(("{", "@", "-")) else "a file is named by --request @FILE"
        raise UsageError(f"the request is not JSON: {error}", where=where, hint=hint) from error
    if not isinstance(body, dict):
        raise UsageError(f"the request is a JSON {type(body).__name__}, not an object", where=where)
    return body


def _say(text: str) -> None:
    from arkdev.cli.output import console
    from arkdev.cli.terminal import printable

    console(is_stderr=True).print(printable(f"arkdev: {text}"), style="dim", soft_wrap=True)


def _log(line: LogLine) -> None:
    from arkdev.cli.output import console
    from arkdev.cli.terminal import printable

    console(is_stderr=True).print(printable(str(line)), soft_wrap=True)


def _call(
    reference: str,
    body: dict[str, Any],
    *,
    workspace: Any,
    settings: InstanceSettings,
    sync: bool,
) -> RequestOutcome:
    from arkdev.cli.interrupts import run_interruptible
    from arkdev.flows.test_instances import TestInstance, Told

    async def work() -> RequestOutcome:
        instance = TestInstance(
            reference, workspace=workspace, settings=settings, told=Told(_say, _log)
        )
        try:
            return await instance.request(body, sync=sync)
        finally:
            await instance.close()

    return run_interruptible(
        work(),
        on_give_up=lambda: _say("instances may be left; the next command removes them"),
        give_up_after_s=STOP_INSTANCES_WITHIN_S,
    )


def _answer(outcome: RequestOutcome) -> dict[str, Any]:
    """The answer as it is shown: secrets masked, every field of a result, in JSON alone."""
    from pydantic_core import to_jsonable_python

    from arkdev.runs.lines import cleaned

    document = outcome.answer.document
    if outcome.exit_code == 0:
        document = {"result": outcome.result().model_dump()}
    plain = to_jsonable_python(document)
    # under the name of a field that may hold anything
    answer: dict[str, Any] = cleaned({"extra": plain}, secrets=outcome.secrets)["extra"]
    return answer


def _print(outcome: RequestOutcome) -> None:
    from arkdev.cli.output import console, print_error
    from arkdev.errors import ArkdevError, ExitCode
    from arkdev.flows.test_instances import REQUESTS
    from arkdev.job.paths import readable

    answer = _answer(outcome)
    if outcome.exit_code is ExitCode.OK:
        text = json.dumps(answer["result"], ensure_ascii=False, indent=2)
        console().print(readable(text), soft_wrap=True)
        return
    error = answer.get("error") or {}
    if os.environ.get("ARKDEV_DEBUG", "") not in ("", "0") and error.get("traceback"):
        sys.stderr.write(error["traceback"])
    is_plugins = outcome.exit_code is ExitCode.SOME_FAILED
    kind = f"{error.get('type')}: " if is_plugins and error.get("type") else ""
    print_error(
        ArkdevError(
            f"{kind}{error.get('message', '')}",
            where=str(error.get("where") or outcome.code.function.place),
            hint=str(error.get("hint") or ("" if is_plugins else REQUESTS)),
        )
    )


def _print_document(outcome: RequestOutcome) -> None:
    from arkdev.cli.output import print_json
    from arkdev.runs.writer import iso_time

    answer = _answer(outcome)
    code = outcome.code
    print_json(
        {
            "exit_code": int(outcome.exit_code),
            "function": code.function.reference,
            "request_id": outcome.request_id,
            "status": outcome.answer.status,
            "result": answer.get("result"),
            "error": answer.get("error"),
            "code": {
                "deployed_at": iso_time(code.deployed_at),
                "was_deployed_now": outcome.was_deployed,
                "changed": list(outcome.changes.changed),
                "added": list(outcome.changes.added),
                "removed": list(outcome.changes.removed),
            },
        }
    )
