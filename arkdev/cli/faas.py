"""`arkdev faas`: functions that stay up for use from elsewhere."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from arkdev.cli.faas_plan import PLAN_EXAMPLES, plan
from arkdev.cli.options import ApiKeyEnvOption, JobOption, JsonOption, ModelOption
from arkdev.cli.stopping_instances import STOP_INSTANCES_WITHIN_S
from arkdev.errors import ExitCode, UsageError
from arkdev.faas_emulator.choices import InstanceKind, NetworkPolicy

if TYPE_CHECKING:
    from arkdev.faas_emulator.kept_deployments import KeptDeployment
    from arkdev.flows.faas_plan import FaasPlan
    from arkdev.flows.faas_up import UpRequest

app = typer.Typer(
    name="faas", help="Plugins as cloud functions, kept up on this machine.", no_args_is_help=True
)
_LOOK_EVERY_S = 0.3

_UP_EXAMPLES = """\b
Examples:
  arkdev faas up                                   all plugins of the job, until Ctrl-C
  arkdev faas up --detach --endpoint scripted      in the background; calls to Ark are answered here
  arkdev faas up --fn plugins.random_reward:random_reward --port 8700

\b
Exit codes: 130 ended by Ctrl-C or `arkdev faas down`; 0 --detach: it is up; 2 usage, configuration,
or a plugin that cannot be imported; 4 the container engine or a declared address is not reached."""
_STATUS_EXAMPLES = """\b
Examples:
  arkdev faas status
  arkdev faas status --json

\b
Exit codes: 0, also when nothing is up."""
_LOGS_EXAMPLES = """\b
Examples:
  arkdev faas logs                                 of the workspace's deployment
  arkdev faas logs 4f1c2a --fn random_reward --follow
  arkdev faas logs --request 9b1fbc0d2e6a7c11

\b
Exit codes: 0, 2 there is no such deployment, 130 --follow was ended by Ctrl-C."""
_DOWN_EXAMPLES = """\b
Examples:
  arkdev faas down                                 the workspace's deployment
  arkdev faas down 4f1c2a
  arkdev faas down --all

\b
Exit codes: 0 nothing of it is left, 2 there is no such deployment."""


@app.callback()
def _group() -> None:
    """Plugins as cloud functions, kept up on this machine."""


@app.command(epilog=_UP_EXAMPLES)
def up(
    fn: Annotated[
        list[str] | None,
        typer.Option(
            "--fn", metavar="MODULE:FUNCTION", help="A plugin; repeatable. Default: the job's."
        ),
    ] = None,
    job: JobOption = None,
    detach: Annotated[
        bool, typer.Option("--detach", help="Stay up in the background, until `arkdev faas down`.")
    ] = False,
    port: Annotated[
        int, typer.Option("--port", min=0, max=65535, help="Of the front door; 0 takes a free one.")
    ] = 0,
    endpoint: Annotated[
        str | None,
        typer.Option(
            "--endpoint",
            metavar="NAME|URL",
            help="Send the functions' calls to Ark there: scripted, a name of yours, or a URL.",
        ),
    ] = None,
    model: ModelOption = None,
    api_key_env: ApiKeyEnvOption = None,
    faas_engine: Annotated[
        InstanceKind,
        typer.Option("--faas-engine", help="What instances are; auto: containers where it can."),
    ] = InstanceKind.AUTO,
    network: Annotated[
        NetworkPolicy, typer.Option("--network", help="What instances reach.")
    ] = NetworkPolicy.OPEN,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON document on stdout once it is up.")
    ] = False,
    deployment_id: Annotated[str, typer.Option("--id", hidden=True)] = "",
) -> None:
    """Serve plugins as cloud functions over HTTP on 127.0.0.1, until Ctrl-C."""
    from arkdev.flows.ark_endpoint import ArkEndpoint
    from arkdev.flows.faas_up import UpRequest

    if endpoint is None and (model or api_key_env):
        raise UsageError("--model and --api-key-env belong to an --endpoint")
    request = UpRequest(
        start=Path.cwd(),
        functions=tuple(fn or ()),
        job=job,
        kind=faas_engine,
        network=network,
        port=port,
        endpoint=endpoint or "",
        id=deployment_id,
    )
    target = ArkEndpoint(endpoint, model, api_key_env) if endpoint else None
    if detach:
        from arkdev.cli.faas_detached import start_deployment

        kept = start_deployment(request, target)
        _print_up(kept, as_json=as_json)
        _say(f"it stays up; `arkdev faas down {kept.id}` ends it")
        return
    raise typer.Exit(_serve(request, target, as_json=as_json))


def _serve(request: UpRequest, target: Any, *, as_json: bool) -> int:
    import sys
    from contextlib import ExitStack, redirect_stdout

    from arkdev.cli.interrupts import run_interruptible
    from arkdev.cli.streams import keep_results_apart
    from arkdev.flows.ark_endpoint import ark_served_by
    from arkdev.flows.faas_deployments import kept_deployments
    from arkdev.flows.faas_up import plan_up
    from arkdev.job.workspace import find_workspace

    # what plugins write while they are imported is no part of the result
    keep_results_apart()
    deployments = kept_deployments(_say)
    if request.id:
        deployments.make_folder(request.id)
    with ExitStack() as stack:
        if target is not None:
            spec = target.resolve(find_workspace(request.start))
            stack.enter_context(ark_served_by(spec, say=_say))
        with redirect_stdout(sys.stderr):
            plan = plan_up(request)
        for note in plan.notes:
            _say(note)
        try:
            run_interruptible(
                _serve_until_cancelled(plan, request, as_json=as_json),
                on_give_up=lambda: _say("instances may be left; the next command removes them"),
                give_up_after_s=STOP_INSTANCES_WITHIN_S,
            )
        except KeyboardInterrupt:
            _say("stopped; nothing of it is left")
    return int(ExitCode.INTERRUPTED)


async def _serve_until_cancelled(plan: FaasPlan, request: UpRequest, *, as_json: bool) -> None:
    import asyncio

    from arkdev.flows.faas_up import serving

    async with serving(plan, request, say=_say) as kept:
        _print_up(kept, as_json=as_json)
        if not request.id:
            _say("Ctrl-C stops it")
        await asyncio.Event().wait()


def _say(text: str) -> None:
    from arkdev.cli.output import console
    from arkdev.cli.terminal import printable

    console(is_stderr=True).print(printable(f"arkdev: {text}"), style="dim", soft_wrap=True)


def _print_up(kept: KeptDeployment, *, as_json: bool) -> None:
    from arkdev.cli.output import console, print_json
    from arkdev.cli.terminal import printable

    if as_json:
        print_json(_document(kept))
        return
    out = console()
    out.print(f"deployment {kept.id} is up at {kept.url}", soft_wrap=True)
    width = max(len(function.name) for function in kept.functions)
    for function in kept.functions:
        line = f"  {function.name:<{width}}  {function.url}  ({function.kind})"
        out.print(printable(line), soft_wrap=True)
    out.print(f"\n{_curl(kept)}", soft_wrap=True)


def _curl(kept: KeptDeployment) -> str:
    """A call of the first function that a shell takes as it is."""
    import json
    import shlex

    from arkdev.flows.faas_up import example_sample

    function = kept.functions[0]
    sample = example_sample(Path(kept.workspace))
    body: dict[str, Any] = {"context": {}}
    trajectory = {"messages": [*sample["messages"], {"role": "assistant", "content": "19"}]}
    if function.kind.endswith("rollout") and not kept.endpoint:
        body["proxy"] = {"url": "https://ark.cn-beijing.volces.com/api/v3", "jwt_token": "KEY"}
    body["sample"] = sample
    of_kind: dict[str, dict[str, Any]] = {
        "single_rollout": {},
        "group_rollout": {"n_sample": 2},
        "single_grader": {"trajectory": trajectory},
        "group_grader": {"trajectories": [trajectory]},
    }
    body |= of_kind[function.kind]
    return f"curl -s {function.url} -d {shlex.quote(json.dumps(body, ensure_ascii=False))}"


def _document(kept: KeptDeployment) -> dict[str, Any]:
    from dataclasses import asdict

    return {
        "id": kept.id,
        "workspace": kept.workspace,
        "url": kept.url,
        "pid": kept.pid,
        "engine": kept.engine,
        "network": kept.network,
        "endpoint": kept.endpoint,
        "started_at": kept.started_at,
        "functions": [asdict(function) for function in kept.functions],
    }


@app.command(epilog=_STATUS_EXAMPLES)
def status(
    as_json: JsonOption = False,
) -> None:
    """Show the deployments of this user that are up, and how their functions are doing."""
    from dataclasses import asdict

    from arkdev.cli.output import print_json
    from arkdev.flows.faas_deployments import kept_deployments, status_of

    found = [(kept, status_of(kept)) for kept in kept_deployments(_say).all()]
    if as_json:
        rows = [
            {**_document(kept), "functions": [asdict(function) for function in functions]}
            for kept, functions in found
        ]
        print_json({"deployments": rows})
        return
    from arkdev.cli.faas_display import print_status

    print_status(found)


@app.command(epilog=_LOGS_EXAMPLES)
def logs(
    deployment: Annotated[
        str, typer.Argument(metavar="[ID]", help="The deployment.", show_default=False)
    ] = "",
    fn: Annotated[
        str, typer.Option("--fn", metavar="NAME", help="Only of this function.", show_default=False)
    ] = "",
    request: Annotated[
        str, typer.Option("--request", metavar="ID", help="Only of this request.")
    ] = "",
    follow: Annotated[
        bool, typer.Option("--follow", help="Go on as lines come, until it ends or Ctrl-C.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Show what functions of a deployment logged and printed."""
    from arkdev.cli.faas_display import print_log_line
    from arkdev.cli.output import console, print_json
    from arkdev.faas_emulator.kept_deployments import LogReader
    from arkdev.flows.faas_deployments import chosen, kept_deployments

    if follow and as_json:
        raise UsageError("--json prints one document, so --follow has no effect")
    deployments = kept_deployments(_say)
    kept = chosen(deployments, deployment, start=Path.cwd())
    names = {function.reference: function.name for function in kept.functions}
    name = names.get(fn, fn)
    if name and name not in names.values():
        raise UsageError(f"no function {fn}", hint=f"there is {', '.join(names.values())}")
    reader = LogReader(deployments.folder / kept.id)

    def new_lines() -> list[dict[str, Any]]:
        return [
            line
            for line in reader.new_lines()
            if name in ("", line["function"]) and request in ("", line["request_id"])
        ]

    if as_json:
        print_json({"id": kept.id, "lines": new_lines()})
        return
    out = console()
    while True:
        is_up = deployments.find(kept.id) is not None and kept.is_up
        for line in new_lines():
            print_log_line(out, line)
        if not follow or not is_up:
            break
        time.sleep(_LOOK_EVERY_S)


@app.command(epilog=_DOWN_EXAMPLES)
def down(
    deployment: Annotated[
        str, typer.Argument(metavar="[ID]", help="The deployment.", show_default=False)
    ] = "",
    every: Annotated[bool, typer.Option("--all", help="All of this user on this machine.")] = False,
    as_json: JsonOption = False,
) -> None:
    """End deployments, and wait until nothing of them is left."""
    from arkdev.cli.output import console, print_json
    from arkdev.flows.faas_deployments import chosen, kept_deployments, stop

    if every and deployment:
        raise UsageError(f"--all ends every deployment, so {deployment} has no effect")
    deployments = kept_deployments(_say)
    ended = [each for each in deployments.all() if each.is_here]
    if not every:
        ended = [chosen(deployments, deployment, start=Path.cwd())]
    for kept in ended:
        stop(deployments, kept, say=_say)
    if as_json:
        print_json({"ended": [kept.id for kept in ended]})
        return
    for kept in ended:
        console().print(f"deployment {kept.id} is down", soft_wrap=True)
    if not ended:
        console().print("no deployment is up")


app.command("plan", epilog=PLAN_EXAMPLES)(plan)
