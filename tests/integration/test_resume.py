"""`--resume`: a run that was cut short goes on, with nothing lost and nothing twice."""

from __future__ import annotations

import json
import multiprocessing
import random
import shutil
import signal
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from arkdev.errors import RunError, UsageError
from arkdev.flows.resume import check_unchanged
from arkdev.runs.reader import RunReader
from arkdev.runs.records import Manifest
from arkdev.runs.writer import RunWriter
from tests.integration import resuming
from tests.integration.workspace import Command, Run, Workspace, job_yaml

NUM_KILLS = 50


@pytest.fixture
def sums(workspace: Workspace) -> Workspace:
    """A workspace of which one sample is discarded, one fails, and the rest gets mixed rewards."""
    workspace.write("plugins/rollout.py", resuming.ROLLOUT)
    workspace.write("plugins/grader.py", resuming.GRADER)
    workspace.samples(*resuming.QUESTIONS)
    return workspace


def result_of(folder: Path) -> dict[int, tuple[Any, ...]]:
    """What came of each sample; fails when a group or a trajectory is there twice, or missing."""
    reader = RunReader(folder)
    groups = list(reader.groups())
    assert max(Counter(group.sample_index for group in groups).values()) == 1
    trajectories = [record.trajectory_id for record in reader.trajectories()]
    named = [name for group in groups for name in group.trajectory_ids]
    assert sorted(trajectories) == sorted(named)
    assert reader.torn == []
    return {group.sample_index: (group.verdict, group.rewards) for group in groups}


def counts_of(run: Run | RunReader) -> dict[str, Any]:
    """The numbers of a report that do not depend on time or order."""
    summary = (run.reader if isinstance(run, Run) else run).manifest.summary
    assert summary is not None
    names = ("num_rollouts", "verdicts", "attempts", "num_graded", "num_dropped", "reward")
    names += ("groups", "graders", "turns", "completion_tokens", "num_model_calls", "num_pending")
    return without_times({name: summary[name] for name in names})


def without_times(value: Any) -> Any:
    if isinstance(value, dict):
        timed = ("latency", "slowest")
        return {k: without_times(v) for k, v in value.items() if not k.endswith(timed)}
    return [without_times(item) for item in value] if isinstance(value, list) else value


class Killer:
    """Runs in processes of their own, each killed at a moment of its own unless it is faster."""

    def __init__(self, root: Path, *, out: Path, seed: int) -> None:
        self._root = root
        self.out = out
        self._random = random.Random(seed)
        # forked from a server of its own: this process has threads
        self._processes = multiprocessing.get_context("forkserver")
        self._processes.set_forkserver_preload(list(resuming.SLOW_IMPORTS))
        self.num_kills = 0

    @property
    def status(self) -> str | None:
        """The run's status; None when there is no run."""
        return RunReader(self.out).status if (self.out / "manifest.json").exists() else None

    def run(self, *, within_s: float) -> None:
        """Start or resume the run, and kill it at a random moment; it may be faster."""
        process = self._begun()
        process.join(self._random.uniform(0, within_s))
        if process.exitcode is None:
            process.kill()
        process.join()
        is_killed = process.exitcode == -signal.SIGKILL
        self.num_kills += is_killed
        assert is_killed or process.exitcode == 0

    def run_to_its_end(self) -> None:
        """Resume the run, unless it is finished already."""
        if self.status != "finished":
            process = self._begun()
            process.join()
            assert process.exitcode == 0

    def _begun(self) -> multiprocessing.process.BaseProcess:
        receiver, sender = self._processes.Pipe(duplex=False)
        process = self._processes.Process(
            target=resuming.run_here,
            args=(self._root, self.out, sender),
            kwargs={"is_resumed": self.status is not None},
        )
        process.start()
        sender.close()
        with receiver, suppress(EOFError):
            receiver.recv()
        return process


@pytest.mark.slow
def test_50_kills_at_random_moments_lose_nothing_and_repeat_nothing(sums: Workspace) -> None:
    whole = sums.run(**resuming.REQUEST)
    began = time.perf_counter()
    again = sums.run(**resuming.REQUEST)  # by now everything is imported, as in the processes
    took_s = time.perf_counter() - began
    expected = result_of(whole.outcome.folder)
    assert result_of(again.outcome.folder) == expected
    assert len(expected) == len(resuming.QUESTIONS)
    assert len({verdict for verdict, _ in expected.values()}) == 3
    killer = Killer(sums.root, out=sums.root / "killed", seed=5)
    num_completed = 0
    while killer.num_kills < NUM_KILLS or killer.status is not None:
        is_last = killer.num_kills == NUM_KILLS or killer.num_kills % 5 == 4
        killer.run(within_s=1.5 * took_s)
        if is_last and killer.status is not None:
            killer.run_to_its_end()
        if killer.status == "finished":
            assert result_of(killer.out) == expected
            assert counts_of(RunReader(killer.out)) == counts_of(whole)
            num_completed += 1
        if killer.status in ("finished", None):  # None: killed before there was a run
            shutil.rmtree(killer.out, ignore_errors=True)
    assert num_completed >= NUM_KILLS // 5


@pytest.fixture
def cut(sums: Workspace) -> Path:
    """A run that was killed after 5 of its 12 groups, while it wrote a line of the sixth."""
    sums.write("job.yaml", job_yaml(hyperparameters={"batch_size": 4, "temperature": 0.5}))
    run = sums.run(num_generations=2, seed=11, skill=0.6, sampling={"top_p": 0.9}, concurrency=2)
    return cut_short(run.outcome.folder, num_groups=5)


def cut_short(folder: Path, *, num_groups: int) -> Path:
    """Make of a finished run what a kill leaves."""
    manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
    manifest |= {"status": "running", "finished_at": None, "summary": None}
    (folder / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")
    groups = (folder / "groups.jsonl").read_bytes().splitlines(keepends=True)
    whole, torn = groups[:num_groups], groups[num_groups][:30]
    (folder / "groups.jsonl").write_bytes(b"".join([*whole, torn]))
    return folder


def test_a_resumed_run_reports_as_if_it_had_never_stopped(
    sums: Workspace, cut: Path, arkdev: Command
) -> None:
    whole = sums.run(num_generations=2, seed=11, skill=0.6, sampling={"top_p": 0.9})
    told = arkdev("test", "plugin", "--resume", cut.name, "--json")
    assert told.exit_code == 1  # one sample fails, as it would have
    assert f"going on with run {cut.name}: 5 of 12 samples are finished and kept" in told.err
    assert told.document["folder"] == str(cut)
    assert result_of(cut) == result_of(whole.outcome.folder)
    assert counts_of(RunReader(cut)) == counts_of(whole)
    assert arkdev("show", cut.name, "--json").document["torn"] == []


def test_a_part_of_a_run_is_named_by_its_end_by_latest_or_by_its_path(
    sums: Workspace, arkdev: Command
) -> None:
    for name in (lambda folder: folder.name[-4:], lambda _: "latest", str):
        folder = cut_short(sums.run(limit=2).outcome.folder, num_groups=1)
        assert arkdev("test", "plugin", "--resume", name(folder)).exit_code == 0
        assert RunReader(folder).status == "finished"


def test_the_list_says_that_a_run_was_resumed_and_how_long_it_worked(
    cut: Path, arkdev: Command
) -> None:
    manifest = json.loads((cut / "manifest.json").read_text(encoding="utf-8"))
    assert "killed" in arkdev("runs").out
    assert "--resume" in arkdev("show", cut.name).err
    manifest["started_at"] = "2020-01-01T00:00:00.000000Z"
    manifest |= {"status": "interrupted", "finished_at": "2020-01-01T00:01:40.000000Z"}
    (cut / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")
    arkdev("test", "plugin", "--resume", cut.name)
    assert "finished, resumed " in arkdev("runs").out
    (run,) = arkdev("runs", "--json").document["runs"]
    assert run["num_resumed"] == 1
    assert 100 < run["worked_s"] < 160  # and not the years in between
    (event,) = [event for event in RunReader(cut).events() if event["kind"] == "resumed"]
    assert event["num_lines_dropped"] > 1


def test_a_model_that_was_exported_into_the_workspace_changes_nothing(
    cut: Path, arkdev: Command, workspace: Workspace
) -> None:
    """`arkdev export latest --to my-model`, as the README has it."""
    for name in ("config.json", "tokenizer.json", "chat_template.jinja", "model.safetensors"):
        workspace.write(f"my-model/{name}", "{}")
    assert "are finished and kept" in arkdev("test", "plugin", "--resume", cut.name).err


def test_of_a_setting_with_parts_those_that_changed_are_named_alone() -> None:
    manifest = Manifest(
        schema_version=1,
        run_id="run-1",
        kind="train",
        status="interrupted",
        started_at="2026-01-01T00:00:00.000000Z",
        settings={"hyperparameters": {"lr": 0.1, "top_p": 1.0}},
        hashes={},
        versions={},
    )
    with pytest.raises(RunError, match=r"was \{'lr': 0.1\}, is \{'lr': 0.2\}"):
        check_unchanged(
            manifest, settings={"hyperparameters": {"lr": 0.2, "top_p": 1.0}}, hashes={}
        )


CHANGES: dict[str, tuple[Callable[[Workspace], object], str]] = {
    "plugin code": (
        lambda workspace: workspace.write("plugins/grader.py", resuming.GRADER + "\n# better"),
        "plugins/grader.py changed",
    ),
    "a new module": (
        lambda workspace: workspace.write("plugins/more.py", ""),
        "plugins/more.py is new",
    ),
    "a prompt": (
        lambda workspace: workspace.write("plugins/prompt.txt", "Be brief."),
        "plugins/prompt.txt is new",
    ),
    "data": (
        lambda workspace: workspace.samples(*resuming.QUESTIONS[:-1], "What is 1 plus 1?"),
        "data.jsonl changed",
    ),
    "the job": (
        lambda workspace: workspace.write("job.yaml", job_yaml()),
        "job.yaml changed",
    ),
}


@pytest.mark.parametrize("what", CHANGES)
def test_a_run_whose_files_changed_is_refused_by_their_names(
    sums: Workspace, cut: Path, what: str, arkdev: Command
) -> None:
    change, said = CHANGES[what]
    before = contents(cut)
    change(sums)
    told = arkdev("test", "plugin", "--resume", cut.name)
    assert told.exit_code == 2
    assert f"cannot be resumed: {said}" in told.err
    assert contents(cut) == before


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (("--seed", "12"), "seed was 11, is 12"),
        (("--skill", "1"), "skill was 0.6, is 1.0"),
        (("--n-sample", "3"), "num_generations was 2, is 3"),
        (("--limit", "6"), "limit was None, is 6; num_samples was 12, is 6"),
        (("--top-p", "1"), "sampling was {'top_p': 0.9}, is {'top_p': 1.0}"),
        (("--endpoint", "http://127.0.0.1:9/v1", "--model", "m"), "endpoint was {'name': 'scr"),
        (("--grader", "plugins.grader:one=2"), "graders was [{'name': 'one'"),
    ],
)
def test_a_flag_that_changes_results_is_refused_by_its_name(
    cut: Path, flags: tuple[str, ...], said: str, arkdev: Command
) -> None:
    before = contents(cut)
    told = arkdev("test", "plugin", "--resume", cut.name, *flags)
    assert told.exit_code == 2
    assert said in told.err
    assert contents(cut) == before


def test_the_same_flags_again_and_another_concurrency_are_accepted(
    cut: Path, arkdev: Command
) -> None:
    flags = ("--seed", "11", "--n-sample", "2", "--concurrency", "3", "--json")
    told = arkdev("test", "plugin", "--resume", cut.name, *flags)
    assert told.exit_code == 1
    assert "3 rollouts at once now, 2 when the run began" in told.err
    assert len(result_of(cut)) == len(resuming.QUESTIONS)


def test_several_changes_are_told_at_once(sums: Workspace, cut: Path) -> None:
    sums.samples("What is 1 plus 1?")
    sums.write("plugins/grader.py", resuming.GRADER + "\n")
    with pytest.raises(RunError) as refused:
        sums.run(resume=cut.name, seed=3)
    assert refused.value.problems == (
        "data.jsonl changed",
        "plugins/grader.py changed",
        "num_samples was 12, is 1",
        "seed was 11, is 3",
    )


def test_a_finished_run_is_not_resumed(sums: Workspace) -> None:
    folder = sums.run(limit=1).outcome.folder
    with pytest.raises(RunError, match="is finished: there is nothing left of it to do"):
        sums.run(resume=folder.name)


def test_latest_is_the_newest_run_that_the_command_can_go_on_with(
    sums: Workspace, cut: Path, arkdev: Command
) -> None:
    other = RunWriter.create(sums.root / "runs", kind="train", settings={}, hashes={}, versions={})
    other.finish("interrupted", {})
    told = arkdev("test", "plugin", "--resume", "latest")
    assert f"going on with run {cut.name}" in told.err
    assert RunReader(cut).status == "finished"
    told = arkdev("test", "plugin", "--resume", other.run_id)
    assert told.exit_code == 2
    assert f"run {other.run_id} is not a test of plugins" in told.err
    assert "arkdev runs" in told.err


def test_a_run_that_is_alive_is_not_resumed(sums: Workspace) -> None:
    writer = RunWriter.create(sums.root / "runs", kind="test", settings={}, hashes={}, versions={})
    with pytest.raises(RunError, match="is still running: another process is writing it"):
        sums.run(resume=writer.run_id)
    writer.finish("interrupted", {})


def test_a_run_of_another_schema_version_is_not_resumed(sums: Workspace, cut: Path) -> None:
    text = (cut / "manifest.json").read_text(encoding="utf-8")
    (cut / "manifest.json").write_text(text.replace('"schema_version": 1', '"schema_version": 2'))
    with pytest.raises(RunError, match="schema version 2; this arkdev reads version 1"):
        sums.run(resume=str(cut))


def test_a_resumed_run_has_no_other_folder(sums: Workspace, cut: Path) -> None:
    with pytest.raises(UsageError, match="--out is for a new run"):
        sums.run(resume=cut.name, out=sums.root / "other")


def test_one_sample_of_the_command_line_is_resumed(sums: Workspace, arkdev: Command) -> None:
    line = json.dumps({"messages": [{"role": "user", "content": "What is 1 plus 2?"}]})
    folder = sums.run(sample=line).outcome.folder
    (folder / "groups.jsonl").unlink()
    cut_manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
    cut_manifest["status"] = "interrupted"
    (folder / "manifest.json").write_text(json.dumps(cut_manifest), encoding="utf-8")
    other = line.replace("1 plus 2", "1 plus 3")
    refused = arkdev("test", "plugin", "--resume", "latest", "--sample", other)
    assert refused.exit_code == 2 and "--sample changed" in refused.err
    assert arkdev("test", "plugin", "--resume", "latest").exit_code == 0
    assert list(result_of(folder)) == [0]


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}
