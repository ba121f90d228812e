"""What ``--replay`` runs: the plugins as they are now, on what the tape holds.

Rollout, graders, samples, rollouts of each sample, sampling and seeds are the tape's. Of the
command line only what chooses among its samples, or says what to do with the results, may differ.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from arkdev.endpoints.spec import EndpointSpec
from arkdev.errors import TapeError, UsageError
from arkdev.flows.fingerprints import fingerprints
from arkdev.flows.named_plugins import named_graders, named_rollout
from arkdev.flows.test_plan import PluginTestPlan, context_of, joined_envs, serve_ark_sdk
from arkdev.flows.test_request import PluginTestRequest, shown
from arkdev.harness.rollouts import SampleToRun
from arkdev.job.job import Job
from arkdev.job.paths import filesystem_path
from arkdev.job.reader import read_job
from arkdev.job.workspace import find_workspace
from arkdev.plugin import redirect
from arkdev.tape.format import Tape, TapeHeader, read_tape
from arkdev.tape.shape import problem_of_settings

_CHOSEN_ANEW = (
    "limit",
    "sample",
    "concurrency",
    "success_threshold",
    "min_reward_mean",
    "min_success_rate",
)
"""Flags that a replay may have of its own."""
_NOT_NEEDED = ("data", "script", "limit", "sample", "concurrency")
"""Flags of the recording that a replay does without."""
_FLAG_NAMES = {
    "num_generations": "--n-sample",
    "graders": "--grader",
    "uses_real_ark_sdk": "--real-ark-sdk",
    "sampling": "--temperature, --top-p, --max-new-tokens",
}


@dataclass(frozen=True, kw_only=True)
class ReplayPlan(PluginTestPlan):
    """A replay that can run."""

    source: Tape
    chosen: tuple[int, ...]
    """Indices of the samples that run."""

    @property
    def can_be_resumed(self) -> bool:
        """Never: a replay is begun again."""
        return False

    def samples(self) -> Iterator[SampleToRun]:
        """Return the samples, in order."""
        wanted = set(self.chosen)
        for line in self.source.samples:
            if line["index"] in wanted:
                yield SampleToRun(line["index"], line["line"], line["sampling"])

    def settings(self) -> dict[str, Any]:
        """Return what the run folder keeps of this plan."""
        recorded = self.source.header.settings
        kept = {name: recorded.get(name) for name in ("data", "endpoint", "skill", "script")}
        return {**super().settings(), **kept, "replay": shown(self.source.path)}

    def hashes(self) -> dict[str, str]:
        """Return SHA-256 of the workspace's files, the job file and the tape."""
        files = [self.source.path, *([self.job.source] if self.job else [])]
        return fingerprints(self.workspace.root, files=files)


def plan_replay(request: PluginTestRequest) -> ReplayPlan:
    """Resolve and check a replay. Raises `ConfigurationError` for whatever cannot run."""
    if request.replay is None:
        raise UsageError("no tape", hint="name one with --replay FILE")
    _check_flags(request)
    tape = read_tape(request.replay)
    return planned(request, tape)


def planned(request: PluginTestRequest, tape: Tape) -> ReplayPlan:
    """Resolve and check a replay of a tape that was read."""
    workspace = find_workspace(request.start)
    header = tape.header
    _check_settings(tape)
    request = _as_recorded(request, header, root=workspace.root)
    notes = serve_ark_sdk(request)
    if header.is_judge_scripted:
        redirect.install()  # before any plugin is imported
    job = read_job(workspace.root, request.job)
    rollout, envs = named_rollout(request, job, root=workspace.root)
    graders = named_graders(request, job, root=workspace.root)
    chosen = _chosen(request, tape)
    plan = ReplayPlan(
        request=request,
        workspace=workspace,
        job=job,
        rollout=rollout,
        graders=tuple(grader for grader, _ in graders),
        endpoint=_endpoint(header.settings["endpoint"]),
        files=(),
        line=None,
        num_samples=len(chosen),
        num_generations=header.settings["num_generations"],
        concurrency=request.concurrency or os.cpu_count() or 1,
        context=context_of(job),
        envs=joined_envs([envs, *(envs for _, envs in graders)]),
        source=tape,
        chosen=chosen,
    )
    _check_samples(plan)
    _check_plugins(plan, header.settings)
    told = (*notes, *(job.warnings if job else ()), *_notes(plan, job))
    return replace(plan, notes=told)


def _check_settings(tape: Tape) -> None:
    problem = problem_of_settings(tape.header.settings, tape.header.flags)
    if problem is not None:
        raise TapeError(
            f"this is no header of a tape: {problem}",
            where=f"{tape.path}:1",
            hint="record it anew with `arkdev test plugin --record FILE`",
        )


def _check_flags(request: PluginTestRequest) -> None:
    for name, value in (("--record", request.record), ("--resume", request.resume)):
        if value is not None:
            raise UsageError(f"{name} and --replay do not go together")
    if request.faas or request.faas_engine or request.network:
        raise UsageError("--replay runs the plugins' code in processes of its own: no --faas")


def _as_recorded(
    request: PluginTestRequest, header: TapeHeader, *, root: Path
) -> PluginTestRequest:
    """Return the request with what the tape says; raises `UsageError` where they contradict."""
    recorded = header.flags
    for name, value in request.flags().items():
        if name not in _CHOSEN_ANEW and not _is_as_recorded(name, value, recorded.get(name)):
            flag = _FLAG_NAMES.get(name, f"--{name.replace('_', '-')}")
            was = f"it was {recorded[name]}" if name in recorded else "it was not given"
            raise UsageError(
                f"{flag}: a replay takes this from the tape, where {was}",
                hint="leave it out, or record another tape",
            )
    flags = {name: value for name, value in recorded.items() if name not in _NOT_NEEDED}
    if "job" in flags:
        flags["job"] = _moved(flags["job"], header.settings["workspace"], root=root)
    return request.with_flags(flags)


def _is_as_recorded(name: str, value: Any, recorded: Any) -> bool:
    if name == "sampling":
        return all((recorded or {}).get(key) == item for key, item in value.items())
    return bool(value == recorded)


def _moved(path: str, recorded_root: str, *, root: Path) -> str:
    """Return where a file of the recorded workspace is in this one."""
    file, before = filesystem_path(path), filesystem_path(recorded_root)
    return shown(root / file.relative_to(before)) if file.is_relative_to(before) else path


def _chosen(request: PluginTestRequest, tape: Tape) -> tuple[int, ...]:
    indices = [line["index"] for line in tape.samples]
    if not indices:
        raise TapeError("the tape holds no sample that came to its end", where=str(tape.path))
    if request.sample is not None:
        if not request.sample.strip().isdecimal() or int(request.sample) not in indices:
            raise UsageError(
                f"--sample {request.sample}: the tape has no such sample",
                hint=f"it has {', '.join(map(str, indices[:10]))}"
                + (", ..." if len(indices) > 10 else ""),
            )
        return (int(request.sample),)
    return tuple(indices[: request.limit])


def _check_samples(plan: ReplayPlan) -> None:
    for sample in plan.samples():
        try:
            sample.fresh()
        except ValidationError as error:
            problem = error.errors(include_url=False, include_input=False)[0]
            place = ".".join(str(part) for part in problem["loc"])
            raise TapeError(
                f"sample {sample.index} of the tape is no sample: {place}: {problem['msg']}",
                where=str(plan.source.path),
                hint="record it anew with `arkdev test plugin --record FILE`",
            ) from error


def _endpoint(recorded: Mapping[str, Any]) -> EndpointSpec:
    return EndpointSpec(
        name=recorded["name"],
        base_url=recorded["base_url"],
        model=recorded["model"],
        api_key_env=None,
        family="generic",
        source="the tape",
    )


def _check_plugins(plan: ReplayPlan, recorded: Mapping[str, Any]) -> None:
    """Raise `TapeError` when the job names other plugins by now."""
    now = plan.settings()
    for name in ("rollout", "graders"):
        if _without_places(now[name]) != _without_places(recorded[name]):
            raise TapeError(
                f"the tape was recorded with {name} {_named(recorded[name])}; "
                f"the job has {_named(now[name])}",
                where=str(plan.source.path),
                hint="record it anew, or put the job back as it was",
            )


def _without_places(plugins: Any) -> Any:
    """Leave out where plugins are: a line was added above one, or the workspace is elsewhere."""
    if isinstance(plugins, str):
        return plugins
    return [{n: value for n, value in each.items() if n != "place"} for each in plugins]


def _named(plugins: Any) -> str:
    if isinstance(plugins, str):
        return plugins
    return " + ".join(f"{plugin['reference']}={plugin['weight']:g}" for plugin in plugins)


def _notes(plan: ReplayPlan, job: Job | None) -> Iterator[str]:
    tape = plan.source
    if tape.num_unfinished:
        is_one = tape.num_unfinished == 1
        begun = (
            "1 sample that had begun is" if is_one else f"{tape.num_unfinished} begun samples are"
        )
        yield f"the recording was cut short: {begun} left out"
    before, now = tape.header.hashes, plan.hashes()
    apart = {shown(tape.path), tape.path.name, *({shown(job.source)} if job else ())}
    changed = [n for n in now if n in before and before[n] != now[n] and n not in apart]
    if changed:
        more = f" and {len(changed) - 5} more" if len(changed) > 5 else ""
        yield f"changed since the recording: {', '.join(changed[:5])}{more}"
