"""What `arkdev replay` would grade again, with what: resolved and checked before it starts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from arkdev.endpoints.spec import EndpointSpec
from arkdev.errors import RunError, UsageError
from arkdev.flows.debug_plan import DebugPlan
from arkdev.flows.environment import expect_judge, resolved_endpoint, secrets_of
from arkdev.flows.fingerprints import fingerprinted_name, fingerprints
from arkdev.flows.grader_versions import RECORDED, load_version
from arkdev.flows.named_plugins import named_graders, with_distinct_names
from arkdev.flows.resume import changed_files
from arkdev.flows.test_plan import PluginTestPlan, context_of, joined_envs, serve_ark_sdk
from arkdev.flows.test_request import PluginTestRequest, shown
from arkdev.harness.grading import Grader
from arkdev.job.job import Job
from arkdev.job.paths import filesystem_path
from arkdev.job.reader import read_job
from arkdev.job.workspace import Workspace, find_workspace
from arkdev.runs.reader import RunReader, find_run, list_runs
from arkdev.runs.recorded import RecordedGroups
from arkdev.types import PluginContext

KIND = "replay"
DEFAULT_CONCURRENCY = 32
"""Groups that are graded at once; a grader's `request_concurrency` limits its calls besides."""

_MAX_CHANGED = 5


@dataclass(frozen=True)
class ReplayRequest:
    """What the command line said; None is unset."""

    start: Path
    """Where to look for the workspace."""
    run: str
    """Id, its unique beginning or end, a path, or ``latest``."""
    graders: tuple[str, ...] = ()
    """``module:function`` or ``module:function=weight``."""
    diff: tuple[str, str] | None = None
    """Two graders to compare, or one and ``recorded``."""
    limit: int | None = None
    concurrency: int | None = None
    out: Path | None = None


@dataclass(frozen=True)
class ReplayPlan:
    """A run that can be graded again."""

    request: ReplayRequest
    workspace: Workspace
    source: RunReader
    groups: RecordedGroups
    graders: tuple[Grader, ...]
    diff_names: tuple[str, str] | None
    """The two sides of ``--diff``: names of `graders`, or ``recorded``."""
    num_generations: int
    success_threshold: float
    context: PluginContext
    endpoint: EndpointSpec
    """The run's; it only decides whether graders that call a model get a scripted one."""
    envs: Mapping[str, str]
    flags: Mapping[str, Any]
    hashes: Mapping[str, str]
    notes: tuple[str, ...] = ()

    @property
    def concurrency(self) -> int:
        """Groups that are graded at once."""
        return self.request.concurrency or DEFAULT_CONCURRENCY

    @property
    def secrets(self) -> tuple[str, ...]:
        """What must not show in anything that is written."""
        return secrets_of(self.endpoint, self.envs)

    def settings(self) -> dict[str, Any]:
        """Return what the run folder keeps: the settings of the recorded run, with what is new."""
        return {
            **self.source.manifest.settings,
            "graders": [
                {"name": g.name, "reference": g.loaded.reference, "weight": g.weight}
                for g in self.graders
            ],
            "success_threshold": self.success_threshold,
            "concurrency": self.concurrency,
            "flags": dict(self.flags),
            "regraded": {
                "run": self.source.manifest.run_id,
                "folder": shown(self.source.folder),
                "limit": self.request.limit,
                "diff": list(self.diff_names) if self.diff_names else None,
            },
        }


def plan_replay(request: ReplayRequest) -> ReplayPlan:
    """Resolve and check. Raises `ConfigurationError` for whatever cannot be done."""
    if request.diff is not None and request.graders:
        raise UsageError(
            "--diff names the graders itself; it does not go with --grader",
            hint="compare two graders with --diff, or grade with some of your own with --grader",
        )
    workspace = find_workspace(request.start)
    source = recorded_run(workspace.root / "runs", request.run)
    groups = RecordedGroups(source, limit=request.limit)
    settings = source.manifest.settings
    flags = dict(settings.get("flags") or {})
    if request.graders:
        flags["graders"] = list(request.graders)
    test = PluginTestRequest(start=request.start).with_flags(flags)
    notes = serve_ark_sdk(test)
    endpoint = resolved_endpoint(test, workspace)
    expect_judge(endpoint)  # before any plugin is imported
    job = read_job(workspace.root, test.job)
    if request.diff is None:
        graders, envs = _graders(request, test, job, root=workspace.root, settings=settings)
        names = None
    else:
        graders, names = _sides(request.diff, root=workspace.root)
        envs = joined_envs([reference.envs for reference in job.graders]) if job else {}
    hashes = _hashes(workspace.root, settings)
    is_default = not request.graders and request.diff is None
    notes = (*notes, *_notes(source, hashes, graders, root=workspace.root, is_default=is_default))
    threshold = test.success_threshold
    return ReplayPlan(
        request=request,
        workspace=workspace,
        source=source,
        groups=groups,
        graders=graders,
        diff_names=names,
        num_generations=_whole(settings.get("num_generations")),
        success_threshold=sum(g.weight for g in graders if g.weight > 0)
        if threshold is None
        else threshold,
        context=context_of(job),
        endpoint=endpoint,
        envs=envs,
        flags=flags,
        hashes=hashes,
        notes=notes,
    )


def recorded_run(runs: Path, name: str) -> RunReader:
    """Find a run to grade again; ``latest`` is the latest test of plugins.

    A replay can be named; a debug run cannot.
    """
    if name == "latest":
        listed = list_runs(runs)
        found = next((run for run in listed if run.kind == PluginTestPlan.kind), None)
        if found is None:
            num_debug = sum(run.kind == DebugPlan.kind for run in listed)
            raise RunError(
                f"{runs} has no test of plugins to grade again"
                + (f"; of debug runs it has {num_debug}, which cannot be" if num_debug else ""),
                hint="`arkdev test plugin` makes one; name a run that was written elsewhere with "
                "--out by its folder: `arkdev replay DIR`",
            )
        return RunReader(found.folder)
    reader = RunReader(find_run(runs, name))
    if reader.manifest.kind == DebugPlan.kind:
        raise RunError(
            f"run {reader.manifest.run_id} is a debug run: its graders were told of each step, and "
            "a sample may have several groups in it, and others in its rounds of validation",
            hint="grade the same samples again from a test: `arkdev test plugin --n-sample "
            f"{_whole(reader.manifest.settings.get('num_generations'))}`, then `arkdev replay "
            "latest`; `arkdev test grader --repeat 5` measures noise on that run too",
        )
    return reader


def _graders(
    request: ReplayRequest,
    test: PluginTestRequest,
    job: Job | None,
    *,
    root: Path,
    settings: Mapping[str, Any],
) -> tuple[tuple[Grader, ...], Mapping[str, str]]:
    """Return the graders that are named, else those of the run's flags and today's job."""
    named = named_graders(test, job, root=root)
    graders = tuple(grader for grader, _ in named)
    if request.graders:
        graders = _with_names_of_the_run(graders, settings)
    return graders, joined_envs([envs for _, envs in named])


def _with_names_of_the_run(
    graders: Sequence[Grader], settings: Mapping[str, Any]
) -> tuple[Grader, ...]:
    """Call a function as the run did, whose job may have another name for it."""
    names = {g["reference"]: g["name"] for g in settings.get("graders") or []}
    renamed = [
        Grader(g.loaded, name=names.get(g.loaded.reference, g.name), weight=g.weight)
        for g in graders
    ]
    return tuple(with_distinct_names(renamed))


def _sides(diff: tuple[str, str], *, root: Path) -> tuple[tuple[Grader, ...], tuple[str, str]]:
    """Load the graders of ``--diff``; the first one is only observed where there are two."""
    if diff == (RECORDED, RECORDED):
        raise UsageError("--diff recorded recorded compares the run with itself")
    loaded = [(text, load_version(text, root=root)) for text in diff if text != RECORDED]
    is_pair = len(loaded) == 2
    graders = with_distinct_names(
        [
            Grader(plugin, name=text, weight=0.0 if is_pair and not number else 1.0)
            for number, (text, plugin) in enumerate(loaded)
        ]
    )
    names = iter([grader.name for grader in graders])
    first, second = (RECORDED if text == RECORDED else next(names) for text in diff)
    return tuple(graders), (first, second)


def _hashes(root: Path, settings: Mapping[str, Any]) -> dict[str, str]:
    return fingerprints(root, files=[path for path in _named_files(settings) if path.is_file()])


def _named_files(settings: Mapping[str, Any]) -> list[Path]:
    """Return the job, the data and the script of a run."""
    named = [settings.get("job"), settings.get("script"), *(settings.get("data") or [])]
    return [filesystem_path(name) for name in named if isinstance(name, str)]


def _that_matter(hashes: Mapping[str, str], source: RunReader, *, root: Path) -> dict[str, str]:
    """Return the hashes of what a run is made of; a workspace also holds what commands wrote.

    These are Python files, the job, data and script, and all that lies where the plugins do.
    """
    settings = source.manifest.settings
    named = {fingerprinted_name(root, path) for path in _named_files(settings)}
    references = [settings.get("rollout"), *(g["reference"] for g in settings.get("graders") or [])]
    packages = {str(reference).partition(":")[0].partition(".")[0] for reference in references}
    return {
        name: digest
        for name, digest in hashes.items()
        if name in named or name.endswith(".py") or name.partition("/")[0] in packages
    }


def _notes(
    source: RunReader,
    hashes: Mapping[str, str],
    graders: Sequence[Grader],
    *,
    root: Path,
    is_default: bool,
) -> list[str]:
    """Say what is different from the run, beside the graders' code."""
    manifest = source.manifest
    notes = []
    if source.status != "finished":
        notes.append(f"the run is {source.status}: the groups that it finished are graded again")
    changed = changed_files(
        _that_matter(manifest.hashes, source, root=root), _that_matter(hashes, source, root=root)
    )
    if changed:
        shown_ones = "; ".join(changed[:_MAX_CHANGED])
        more = f"; and {len(changed) - _MAX_CHANGED} more" if len(changed) > _MAX_CHANGED else ""
        notes.append(
            f"since the run {shown_ones}{more} (samples and trajectories are those of the run)"
        )
    was = [(g.get("name"), g.get("weight")) for g in manifest.settings.get("graders") or []]
    now = [(grader.name, grader.weight) for grader in graders]
    if is_default and was != now:
        notes.append(f"the graders are {_listed(now)}; the run had {_listed(was)}")
    return notes


def _listed(graders: Sequence[tuple[Any, Any]]) -> str:
    return " + ".join(f"{weight:g}·{name}" for name, weight in graders) or "none"


def _whole(value: Any) -> int:
    return value if isinstance(value, int) else 1
