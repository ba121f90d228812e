"""`arkdev replay`: a recorded run graded again by today's graders, without a call to its model."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from arkdev.runs.reader import RunReader
from tests.integration.loopback import listening
from tests.integration.workspace import Command, Workspace, job_yaml

SEES = """
    import json
    from pathlib import Path
    from arkdev import group_grader

    @group_grader
    def one(context, sample, trajectories):
        seen = [context.model_dump(), sample.model_dump(), sample.model_fields_set.__len__()]
        seen += [trajectory.model_dump() for trajectory in trajectories]
        with Path("seen.txt").open("a") as file:
            file.write(json.dumps(seen, sort_keys=True) + "\\n")
        sample.messages.clear()
        trajectories[0].messages.clear()
        return [float(index) for index, _ in enumerate(trajectories)]
"""

BY_INDEX = """
    from arkdev import SingleGraderResult, single_grader

    @single_grader
    def one(context, sample, trajectory):
        index = sample.extra["index"]
        {body}
"""


def indexed(number: int) -> list[dict[str, Any]]:
    """Samples that know their number."""
    messages = [{"role": "user", "content": "hello"}]
    return [{"messages": messages, "extra": {"index": index}} for index in range(number)]


def write_grader(workspace: Workspace, body: str) -> None:
    write_plugin(workspace, BY_INDEX.format(body=body))


def write_plugin(workspace: Workspace, text: str) -> None:
    """Write the grader anew, as an editor would between two commands."""
    workspace.write("plugins/grader.py", text)
    sys.modules.pop("plugins.grader", None)
    shutil.rmtree(workspace.root / "plugins" / "__pycache__", ignore_errors=True)


def lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").splitlines()


@pytest.fixture
def recorded(workspace: Workspace) -> Workspace:
    """A workspace with a run of four samples in groups of two, graded 1 each."""
    workspace.lines(indexed(4))
    write_grader(workspace, "return 1.0")
    workspace.run(num_generations=2)
    return workspace


def replayed(arkdev: Command, *arguments: str, exit_code: int = 0) -> dict[str, Any]:
    told = arkdev("replay", *(arguments or ("latest",)), "--json")
    assert told.exit_code == exit_code, told.out + told.err
    return told.document


def test_graders_are_given_what_they_were_given_in_the_run(
    workspace: Workspace, arkdev: Command
) -> None:
    workspace.write(
        "plugins/rollout.py",
        """
        from arkdev import RolloutResult, rollout

        @rollout
        def answer(context, proxy, sample):
            client = proxy.rollout_client()
            messages = sample.model_dump()["messages"]
            client.chat.completions.create(model="m", messages=messages)
            extra = {"list": [1, 2.5, None], "text": "\\u2028 ü", "deep": {"a": []}}
            return RolloutResult(extra=extra)
        """,
    )
    workspace.write("plugins/grader.py", SEES)
    tool = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
    line = {"temperature": 0.5, "tools": [tool], "own_key": {"kept": [True]}}
    workspace.lines([{**sample, **line} for sample in indexed(3)])
    tokens = {"prompt_token_ids": [1, 2], "token_ids": [3, 4, 5], "logprobs": [-0.5, -0.25, -0.125]}
    workspace.script({"content": "¿?", **tokens})
    arkdev("test", "plugin", "--n-sample", "2", "--script", "script.json")
    before = sorted(lines(workspace.root / "seen.txt"))
    (workspace.root / "seen.txt").unlink()
    workspace.lines(
        [{**sample, "messages": [{"role": "user", "content": "no"}]} for sample in indexed(3)]
    )
    (workspace.root / "plugins" / "rollout.py").unlink()  # it is not called

    document = replayed(arkdev)

    assert sorted(lines(workspace.root / "seen.txt")) == before
    assert json.loads(before[0])[3]["total_token_ids"] == [1, 2, 3, 4, 5]
    assert document["changes"]["weighted"]["num_unchanged"] == 6
    assert any("data.jsonl changed" in note for note in document["warnings"])


def test_a_replay_is_a_run_folder_of_its_own(recorded: Workspace, arkdev: Command) -> None:
    (first,) = (recorded.root / "runs").iterdir()
    document = replayed(arkdev)
    folder = Path(document["folder"])
    assert folder.parent == first.parent
    assert document["run"].split("-")[1] == "replay"
    for name in ("samples.jsonl", "trajectories.jsonl"):
        assert sorted(lines(folder / name)) == sorted(lines(first / name))
    shutil.rmtree(first)  # it needs the recorded run no more
    told = arkdev("show", document["run"])
    assert told.exit_code == 0
    assert "8 of 8 rollouts graded" in told.out
    assert "a replay: the rollouts of run" in told.err
    assert replayed(arkdev, document["run"])["changes"]["weighted"]["num_unchanged"] == 8
    assert len(json.loads(arkdev("runs", "--json").out)["runs"]) == 2


def test_latest_is_the_latest_run_that_is_no_replay(recorded: Workspace, arkdev: Command) -> None:
    first = replayed(arkdev)
    second = replayed(arkdev)
    assert first["replayed"] == second["replayed"] != first["run"]


def test_what_changed_is_counted_for_the_sum_and_for_each_grader(
    recorded: Workspace, arkdev: Command
) -> None:
    # of the eight rewards of 1: two are lowered to 0.25, two raised to 3, the rest stays
    write_grader(recorded, "return {0: 0.25, 1: 3.0}.get(index, 1.0)")
    changes = replayed(arkdev)["changes"]
    expected = {
        "num_compared": 8,
        "num_unchanged": 4,
        "num_raised": 2,
        "num_lowered": 2,
        "num_newly_graded": 0,
        "num_newly_ungraded": 0,
        "mean_before": 1.0,
        "mean_after": (0.25 * 2 + 3 * 2 + 4) / 8,
        "newly_ungraded": [],
    }
    for part in (changes["weighted"], changes["graders"][0]):
        assert {name: part[name] for name in expected} == expected
    largest = [
        (c["trajectory_id"], c["before"], c["after"]) for c in changes["weighted"]["largest"]
    ]
    assert sorted(largest[:2]) == [("1.0", 1.0, 3.0), ("1.1", 1.0, 3.0)]
    assert sorted(largest[2:]) == [("0.0", 1.0, 0.25), ("0.1", 1.0, 0.25)]
    told = arkdev("replay", "latest")
    assert "4 rewards changed, mean 1.000 → 1.312" in told.out
    assert "1.000 → 3.000" in told.out


def test_what_a_grader_no_longer_grades_is_named_and_ends_with_1(
    recorded: Workspace, arkdev: Command
) -> None:
    write_grader(recorded, "return 1.0 if index else 1 / 0")
    document = replayed(arkdev, exit_code=1)
    changes = document["changes"]
    assert changes["weighted"]["num_newly_ungraded"] == 2
    assert changes["weighted"]["newly_ungraded"] == ["0.0", "0.1"]
    assert changes["verdicts"] == [
        {"before": "success", "after": "failure", "num_groups": 1, "examples": ["0.0"]}
    ]
    assert "ZeroDivisionError" in document["summary"]["errors"][0]["message"]
    told = arkdev("replay", "latest")
    assert told.exit_code == 1
    assert "2 newly ungraded" in told.out
    assert "plugins/grader.py:7" in "".join(told.out.split())


def test_a_group_that_today_s_grader_discards_is_no_failure(
    recorded: Workspace, arkdev: Command
) -> None:
    write_grader(recorded, "return SingleGraderResult(status='discard') if not index else 1.0")
    changes = replayed(arkdev)["changes"]
    assert changes["verdicts"][0]["after"] == "discard"
    assert changes["weighted"]["num_newly_ungraded"] == 2


def test_grader_retries_count_as_in_a_test(recorded: Workspace, arkdev: Command) -> None:
    write_plugin(
        recorded,
        """
        from arkdev import group_grader

        calls = {}

        @group_grader
        async def one(context, sample, trajectories):
            index = sample.extra["index"]
            calls[index] = calls.get(index, 0) + 1
            if index == 2 and calls[index] < 3:
                raise ValueError("not yet")
            return [1.0, 1.0]
        """,
    )
    document = replayed(arkdev)
    assert document["summary"]["graders"][0]["attempts"] == {"1": 3, "3": 1}


def test_rollouts_that_failed_or_dropped_their_group_stay_as_they_were(
    workspace: Workspace, arkdev: Command
) -> None:
    workspace.write(
        "plugins/rollout.py",
        """
        from arkdev import PluginStatus, RolloutResult, rollout

        seen = set()

        @rollout
        def answer(context, proxy, sample):
            index = sample.extra["index"]
            client = proxy.rollout_client()
            client.chat.completions.create(model="m", messages=sample.model_dump()["messages"])
            if index == 0:
                return RolloutResult(status=PluginStatus.DISCARD)
            if index == 1 and proxy.jwt_token and index not in seen:
                seen.add(index)
            if index == 2:
                raise ValueError("always")
        """,
    )
    workspace.lines(indexed(4))
    write_grader(workspace, "return 1.0")
    run = workspace.run(num_generations=2, concurrency=1)
    document = replayed(arkdev)  # exit code 0: the graders did well
    after = {group.sample_index: group for group in RunReader(Path(document["folder"])).groups()}
    for group in run.groups:
        again = after[group.sample_index]
        assert (again.verdict, again.rewards) == (group.verdict, group.rewards)
        assert (again.error, again.sample_extra) == (group.error, group.sample_extra)
    assert document["changes"]["verdicts"] == []
    assert document["summary"]["verdicts"] == run.summary.to_json()["verdicts"]


def test_graders_can_be_named_with_weights(recorded: Workspace, arkdev: Command) -> None:
    recorded.write("plugins/other.py", GIVES_HALF)
    document = replayed(
        arkdev, "latest", "--grader", "plugins.grader:one=2", "--grader", "plugins.other:half"
    )
    changes = document["changes"]
    assert changes["weighted"]["mean_after"] == 2.5
    assert [part["name"] for part in changes["graders"]] == ["one"]
    assert (changes["new_graders"], changes["gone_graders"]) == (["half"], [])
    assert document["summary"]["graders"][1]["reward"]["mean"] == 0.5


GIVES_HALF = """
    from arkdev import group_grader

    @group_grader
    async def half(context, sample, trajectories):
        return [0.5] * len(trajectories)
"""


def test_the_job_s_new_weights_are_told(recorded: Workspace, arkdev: Command) -> None:
    grader = {"plugin": {"name": "one", "python_func": "plugins.grader:one"}, "weight": 0.5}
    rollout = {"plugin": {"name": "answer", "python_func": "plugins.rollout:answer"}}
    pipeline = {"rollout": rollout, "graders": [grader]}
    recorded.write("job.yaml", job_yaml(custom_rl_pipeline=pipeline))
    document = replayed(arkdev)
    assert "the graders are 0.5·one; the run had 1·one" in document["warnings"]
    assert document["changes"]["weighted"]["num_lowered"] == 8


def test_what_graders_print_is_in_the_log_and_not_on_stdout(
    recorded: Workspace, arkdev: Command
) -> None:
    write_grader(recorded, "print('looking at', index); return 1.0")
    document = replayed(arkdev)
    log = list(RunReader(Path(document["folder"])).logs())
    assert ("PRINT", "one", "looking at 0") in {(x.level, x.grader, x.text) for x in log}
    assert len(log) == 8


def test_a_judge_is_the_scripted_one_as_in_a_test(recorded: Workspace, arkdev: Command) -> None:
    write_plugin(
        recorded,
        """
        import os
        from openai import AsyncOpenAI
        from arkdev import single_grader

        @single_grader
        async def one(context, sample, trajectory):
            async with AsyncOpenAI(
                base_url=os.environ["ARK_BASE_URL"], api_key=os.environ["ARK_API_KEY"]
            ) as judge:
                messages = [{"role": "user", "content": "Is it right? Answer yes or no."}]
                await judge.chat.completions.create(model="judge", messages=messages)
            return 1.0
        """,
    )
    assert replayed(arkdev)["judge_calls"] == 8
    assert "8 model calls of graders went to the scripted model" in arkdev("replay", "latest").err


def test_a_run_that_was_cut_short_gives_its_finished_groups(
    recorded: Workspace, arkdev: Command
) -> None:
    (folder,) = (recorded.root / "runs").iterdir()
    manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
    (folder / "manifest.json").write_text(json.dumps({**manifest, "status": "running"}))
    groups = lines(folder / "groups.jsonl")
    (folder / "groups.jsonl").write_text("\n".join(groups[:3]) + "\n" + groups[3][:20])
    trajectories = [line for line in lines(folder / "trajectories.jsonl") if '"1.1"' not in line]
    (folder / "trajectories.jsonl").write_text("\n".join(trajectories) + "\n", encoding="utf-8")
    document = replayed(arkdev)
    lost_group = any('"sample_index":1,' in line for line in groups[:3])
    assert document["num_left_out"] == int(lost_group)
    assert document["changes"]["num_groups"] == 3 - lost_group
    assert "the run is killed: the groups that it finished are graded again" in document["warnings"]


@pytest.mark.parametrize("lost", ["trajectories.jsonl", "samples.jsonl"])
def test_a_run_that_lost_every_group_is_an_error_and_leaves_no_folder(
    recorded: Workspace, arkdev: Command, lost: str
) -> None:
    (folder,) = (recorded.root / "runs").iterdir()
    (folder / lost).write_text("", encoding="utf-8")
    told = arkdev("replay", "latest")
    assert (told.exit_code, told.out) == (2, "")
    assert "a line of each group is missing or was cut short (4 looked at)" in told.err
    assert list((recorded.root / "runs").iterdir()) == [folder]


def test_the_headline_says_what_was_lost(recorded: Workspace, arkdev: Command) -> None:
    (folder,) = (recorded.root / "runs").iterdir()
    kept = lines(folder / "trajectories.jsonl")[1:]
    (folder / "trajectories.jsonl").write_text("\n".join(kept) + "\n", encoding="utf-8")
    told = arkdev("replay", "latest")
    assert "6 of the run's trajectories graded again, 1 group lost: nothing changed" in told.out


def test_a_reward_that_is_no_number_is_an_error_with_its_line(
    recorded: Workspace, arkdev: Command
) -> None:
    (folder,) = (recorded.root / "runs").iterdir()
    groups = lines(folder / "groups.jsonl")
    groups[2] = groups[2].replace('"rewards":[1.0', '"rewards":[NaN', 1)
    (folder / "groups.jsonl").write_text("\n".join(groups) + "\n", encoding="utf-8")
    for arguments in ((), ("--diff", "recorded", "plugins.grader:one")):
        told = arkdev("replay", folder.name, *arguments)
        assert told.exit_code == 2
        assert "not a GroupRecord of schema version 1: nan is no finite number" in told.err
        assert f"{folder}/groups.jsonl:3" in told.err


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('"rewards":[1.0,1.0],"graders"', '"rewards":[1.0],"graders"', "1 rewards for 2"),
        (
            '"verdict":"success","rewards":[1.0,1.0],"metrics"',
            '"verdict":"success","rewards":[1.0,1.0,1.0],"metrics"',
            "3 rewards of one for 2",
        ),
        (
            '"seq_advantages":null',
            '"seq_advantages":[1.0]',
            "1 seq_advantages of one for 2",
        ),
    ],
)
def test_a_group_whose_lists_do_not_fit_is_an_error_with_its_line(
    recorded: Workspace, arkdev: Command, old: str, new: str, words: str
) -> None:
    (folder,) = (recorded.root / "runs").iterdir()
    groups = lines(folder / "groups.jsonl")
    assert old in groups[1]
    groups[1] = groups[1].replace(old, new, 1)
    (folder / "groups.jsonl").write_text("\n".join(groups) + "\n", encoding="utf-8")
    for arguments in (("replay",), ("replay", "--diff", "recorded", "plugins.grader:one")):
        told = arkdev(arguments[0], folder.name, *arguments[1:])
        assert told.exit_code == 2, told.err
        assert f"not a GroupRecord of schema version 1: {words} trajectory_ids" in told.err
        assert f"{folder}/groups.jsonl:2" in told.err
    assert arkdev("show", folder.name).exit_code == 2


def test_rewards_whose_sum_is_no_float_are_compared(recorded: Workspace, arkdev: Command) -> None:
    write_grader(recorded, "return 1.7e308 if index else -1.7e308")
    document = replayed(arkdev)
    assert document["changes"]["weighted"]["mean_after"] == pytest.approx(0.85e308)
    diff = replayed(arkdev, "latest", "--diff", "recorded", "plugins.grader:one")["diff"]
    assert diff["mean_b"] == pytest.approx(0.85e308)


def test_of_the_workspace_s_files_those_are_told_that_a_run_is_made_of(
    recorded: Workspace, arkdev: Command
) -> None:
    recorded.write("result.json", "{}")  # as `arkdev replay latest --json > result.json` leaves it
    recorded.write("notes.md", "an idea")
    assert replayed(arkdev)["warnings"] == []
    recorded.write("plugins/rubric.md", "be strict")
    recorded.write("helper.py", "")
    (note,) = replayed(arkdev)["warnings"]
    assert note.startswith("since the run helper.py is new; plugins/rubric.md is new (")


def test_where_there_is_no_run_a_folder_can_be_named(recorded: Workspace, arkdev: Command) -> None:
    (folder,) = (recorded.root / "runs").iterdir()
    folder.rename(recorded.root / "elsewhere")
    told = arkdev("replay", "latest")
    assert told.exit_code == 2
    assert "--out" in told.err
    assert "arkdev replay DIR" in told.err
    assert replayed(arkdev, "elsewhere")["changes"]["weighted"]["num_unchanged"] == 8


def test_limit_is_the_number_of_groups(recorded: Workspace, arkdev: Command) -> None:
    document = replayed(arkdev, "latest", "--limit", "2", "--out", "here")
    assert document["changes"]["num_groups"] == 2
    assert Path(document["folder"]) == recorded.root / "here"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("nothing",), "no run 'nothing'"),
        (("latest", "--grader", "plugins.grader:none"), "plugins.grader has no 'none'"),
        (("latest", "--grader", "plugins.rollout:answer"), "not a grader"),
        (("latest", "--diff", "recorded", "recorded"), "compares the run with itself"),
        (("latest", "--diff", "recorded", "no.py:f"), "there is no such file"),
        (("latest", "--diff", "recorded", "plugins.grader:one@HEAD"), "git has no"),
        (("latest", "--diff", "recorded", "plugins.grader:one", "--grader", "a:b"), "--diff names"),
    ],
)
def test_what_cannot_be_graded_again_is_2(
    recorded: Workspace, arkdev: Command, arguments: tuple[str, ...], says: str
) -> None:
    told = arkdev("replay", *arguments)
    assert (told.exit_code, told.out) == (2, "")
    assert says in told.err


def test_a_run_without_its_samples_is_refused(recorded: Workspace, arkdev: Command) -> None:
    (folder,) = (recorded.root / "runs").iterdir()
    (folder / "samples.jsonl").unlink()
    told = arkdev("replay", "latest")
    assert told.exit_code == 2
    assert "does not hold its samples" in told.err


def test_an_interrupt_ends_with_130_and_says_where_it_stands(recorded: Workspace) -> None:
    write_grader(recorded, "import time; time.sleep(0 if index < 2 else 600); return 1.0")
    process = recorded.start("replay", "latest")
    deadline = time.monotonic() + 60
    folder = None
    while time.monotonic() < deadline and folder is None:
        folder = next(
            (path.parent for path in recorded.root.glob("runs/*-replay-*/groups.jsonl")), None
        )
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=300)
    assert process.returncode == 130, said
    assert b"of 4 groups; what was graded is in" in said
    assert folder is not None
    assert RunReader(folder).manifest.status == "interrupted"


def test_two_versions_of_a_grader_are_compared(recorded: Workspace, arkdev: Command) -> None:
    """Three ways to name a version: a commit, a file, the recorded rewards."""
    order = "return float(trajectory.finish_reason == 'stop') + {}"
    write_grader(recorded, order.format("hash(str(trajectory.usage)) * 0"))
    for command in (("init", "-q"), ("add", "-A"), ("commit", "-q", "-m", "first")):
        who = ("-c", "user.name=n", "-c", "user.email=e@example.org")
        subprocess.run(["git", *who, *command], cwd=recorded.root, check=True)
    shutil.copy(recorded.root / "plugins" / "grader.py", recorded.root / "old.py")
    write_grader(recorded, "return 0.5")
    for old in ("plugins.grader:one@HEAD", "old.py:one"):
        diff = replayed(arkdev, "latest", "--diff", old, "plugins.grader:one")["diff"]
        assert (diff["a"], diff["b"]) == (old, "plugins.grader:one")
        assert (diff["mean_a"], diff["mean_b"]) == (1.0, 0.5)
        assert diff["signal"]["num_neither"] == 4
        assert diff["gradient"]["flipped"] is None
    told = arkdev("replay", "latest", "--diff", "recorded", "plugins.grader:one")
    assert told.exit_code == 0
    assert "A = recorded" in told.out
    assert "recorded gives no signal" in told.out


@pytest.mark.parametrize(("at_once", "expected"), [(3, 3), (8, 8)])
def test_graders_that_wait_run_beside_each_other_up_to_the_limit(
    workspace: Workspace, arkdev: Command, at_once: int, expected: int
) -> None:
    workspace.lines(indexed(24))
    workspace.run()
    write_plugin(
        workspace,
        """
        import asyncio
        from pathlib import Path
        from arkdev import single_grader

        running = most = 0

        @single_grader
        async def one(context, sample, trajectory):
            global running, most
            running += 1
            most = max(most, running)
            Path("most.txt").write_text(str(most))
            await asyncio.sleep(0.1)
            running -= 1
            return 1.0
        """,
    )
    replayed(arkdev, "latest", "--concurrency", str(at_once))
    assert (workspace.root / "most.txt").read_text() == str(expected)


def test_a_resumed_run_can_be_graded_again_whole(recorded: Workspace, arkdev: Command) -> None:
    (folder,) = (recorded.root / "runs").iterdir()
    manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
    (folder / "manifest.json").write_text(json.dumps({**manifest, "status": "interrupted"}))
    groups = lines(folder / "groups.jsonl")
    (folder / "groups.jsonl").write_text("\n".join(groups[:2]) + "\n", encoding="utf-8")
    assert arkdev("test", "plugin", "--resume", folder.name).exit_code == 0
    samples = [json.loads(line)["sample_index"] for line in lines(folder / "samples.jsonl")]
    assert sorted(samples) == [0, 1, 2, 3]
    assert replayed(arkdev)["changes"]["weighted"]["num_unchanged"] == 8


def test_tools_of_graders_are_held_to_their_limits_as_in_a_test(
    recorded: Workspace, arkdev: Command
) -> None:
    """Eight calls to a service that takes one at a time, and 50 ms for each."""
    at_once: list[int] = [0, 0]
    lock = threading.Lock()

    def policy(_number: int, _body: dict[str, Any]) -> tuple[int, Any]:
        with lock:
            at_once[0] += 1
            at_once[1] = max(at_once)
        time.sleep(0.05)
        with lock:
            at_once[0] -= 1
        return 200, {}

    with listening(policy) as service:
        host = service.url.removeprefix("http://")
        recorded.write("arkworkspace.toml", f'[tools."{host}"]\nmax_in_flight = 1\n')
        write_plugin(
            recorded,
            f"""
            import httpx
            from arkdev import single_grader

            @single_grader
            async def one(context, sample, trajectory):
                async with httpx.AsyncClient(trust_env=False) as client:
                    await client.post("{service.url}/x", json={{}})
                return 1.0
            """,
        )
        replayed(arkdev)
        assert len(service.requests) == 8
    assert at_once[1] == 1
