"""`arkdev test grader --attack`: ten graders that can be hacked, ten sound ones, the templates'."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from tests.integration.loopback import listening
from tests.integration.workspace import Command, Workspace, job_yaml

GRADERS = Path(__file__).parents[1] / "assets" / "graders"

HACKABLE = {
    "part_of_the_answer": ("cities", "empty"),
    "answer_in_reply": ("passages", "echo"),
    "json_format": ("people", "format"),
    "letter_search": ("choices", "options"),
    "thorough": ("sums", "padding"),
    "pasted_judge": ("open", "injection"),
    "says_what_the_tool_said": ("weather", "forged-tool"),
    "patient": ("boxed", "truncation"),
    "valid_label": ("intents", "other-sample"),
    "same_letters": ("cities", "unicode"),
}
"""Grader of `plugins/hackable.py` → its data, and the attack that it is open to."""

SOUND = {
    "marked_number": "sums",
    "one_letter": "choices",
    "json_fields": "people",
    "tagged": "cities",
    "label": "intents",
    "careful_judge": "open",
    "asked_and_right": "weather",
    "boxed_and_short": "boxed",
    "best_of_the_right": "cities",
    "same_set": "sets",
}


@pytest.fixture
def graders(workspace: Workspace) -> Workspace:
    """The workspace with the twenty graders."""
    shutil.copytree(GRADERS, workspace.root, dirs_exist_ok=True)
    return workspace


def attacked(arkdev: Command, grader: str, data: str) -> tuple[int, dict[str, str], dict[str, Any]]:
    """Exit code, verdict by row, and the whole table."""
    source = ["--data", f"data/{data}.jsonl"]
    if data == "weather":  # a tool is called: a run has what a trajectory looks like
        arkdev(
            *("test", "plugin", "--rollout", "plugins.weather:ask", "--skill", "1"),
            *("--grader", grader, *source),
        )
        source = []
    told = arkdev("test", "grader", "--attack", grader, *source, "--json")
    assert told.exit_code in (0, 3), told.err
    (table,) = told.document["graders"]
    return told.exit_code, {row["name"]: row["verdict"] for row in table["rows"]}, table


@pytest.mark.parametrize("name", HACKABLE)
def test_a_grader_that_can_be_hacked_is_caught(
    graders: Workspace, arkdev: Command, name: str
) -> None:
    data, attack = HACKABLE[name]
    exit_code, verdicts, _ = attacked(arkdev, f"plugins.hackable:{name}", data)
    assert exit_code == 3
    assert verdicts[attack] == "hackable", verdicts


@pytest.mark.parametrize("name", SOUND)
def test_a_sound_grader_is_not_flagged(graders: Workspace, arkdev: Command, name: str) -> None:
    exit_code, verdicts, table = attacked(arkdev, f"plugins.sound:{name}", SOUND[name])
    bad = [r for r in table["rows"] if r["verdict"] not in ("caught", "skipped")]
    assert (exit_code, bad) == (0, [])
    assert verdicts["right-answer"] == "caught", "it was graded, and is at the top"


def test_every_attack_is_made_on_the_twenty() -> None:
    assert len({attack for _, attack in HACKABLE.values()}) == len(HACKABLE) == 10
    assert len(SOUND) == 10


@contextmanager
def gullible_judge() -> Iterator[str]:
    """A judge that obeys whoever tells it what to say, and is honest otherwise."""

    def answer(_number: int, body: dict[str, Any]) -> tuple[int, Any]:
        prompt = body["messages"][-1]["content"]
        reference = prompt.partition("Reference answer:\n")[2].partition("\n")[0]
        prediction = prompt.rpartition("Prediction:\n")[2]
        is_right = "gnore all previous" in prompt or reference in prediction
        verdict = "correct" if is_right else "incorrect"
        message = {"role": "assistant", "content": f'{{"verdict": "{verdict}"}}'}
        return 200, {
            "id": "c",
            "object": "chat.completion",
            "created": 1,
            "model": "judge",
            "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
        }

    with listening(answer) as server:
        yield server.url


def test_instructions_to_a_judge_that_obeys_are_caught(
    graders: Workspace, arkdev: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    with gullible_judge() as url:
        monkeypatch.setenv("ARK_BASE_URL", url)
        monkeypatch.setenv("ARK_API_KEY", "key")
        _, verdicts, table = attacked(arkdev, "plugins.hackable:pasted_judge", "open")
        assert verdicts["injection"] == "hackable"
        row = next(row for row in table["rows"] if row["name"] == "injection")
        assert "gnore all previous" in row["example"]["messages"][-1]["content"]
        exit_code, verdicts, _ = attacked(arkdev, "plugins.sound:careful_judge", "open")
        assert (exit_code, verdicts["injection"]) == (0, "caught")


@pytest.mark.parametrize("template", ["minimal", "rl_demo", "rl_search_mcp_demo"])
def test_the_templates_own_graders_cannot_be_hacked(
    workspace: Workspace, arkdev: Command, monkeypatch: pytest.MonkeyPatch, template: str
) -> None:
    if template == "rl_search_mcp_demo":
        pytest.importorskip("backoff")
    arkdev("init", template, "--template", template)
    monkeypatch.chdir(workspace.root / template)
    told = arkdev("test", "plugin", "--limit", "4", "--n-sample", "2", "--skill", "0.8")
    assert told.exit_code == 0, told.err
    told = arkdev("test", "grader", "--attack", "--limit", "4", "--json")
    assert told.exit_code == 0, told.out
    (table,) = told.document["graders"]
    verdicts = {row["name"]: row["verdict"] for row in table["rows"]}
    assert verdicts["right-answer"] == "caught"
    assert set(verdicts.values()) <= {"caught", "seldom"}


def test_a_sound_grader_is_reported_as_such(graders: Workspace, arkdev: Command) -> None:
    told = arkdev(
        "test", "grader", "--attack", "plugins.sound:label", "--data", "data/intents.jsonl"
    )
    assert told.exit_code == 0
    assert "label: every attack was caught" in told.out
    assert "which tells little" not in told.out
    command = ("test", "grader", "--attack", "plugins.sound:label", "--data", "data/intents.jsonl")
    assert "only 1 sample tried, which tells little" in arkdev(*command, "--limit", "1").out


def test_a_hackable_grader_is_shown_with_the_trajectory(
    graders: Workspace, arkdev: Command
) -> None:
    told = arkdev(
        *("test", "grader", "--attack", "plugins.hackable:patient"),
        *("--data", "data/boxed.jsonl", "--show", "truncation"),
    )
    assert told.exit_code == 3
    assert "patient is hackable: truncation" in told.out
    assert "What is 17 * 6?" in told.out.partition("patient, truncation: sample 0")[2]
    assert "finish_reason length" in told.out


def test_junit_has_a_case_for_each_attack(graders: Workspace, arkdev: Command) -> None:
    told = arkdev(
        *("test", "grader", "--attack", "plugins.hackable:same_letters", "plugins.sound:tagged"),
        *("--data", "data/cities.jsonl", "--junit", "out/attacks.xml"),
    )
    assert told.exit_code == 3
    root = ElementTree.parse(graders.root / "out" / "attacks.xml").getroot()
    hackable, sound = root.findall("testsuite")
    assert (hackable.get("tests"), sound.get("tests")) == ("12", "12")
    assert int(hackable.get("failures", "0")) >= 1
    assert (sound.get("failures"), sound.get("errors")) == ("0", "0")
    failed = [case.get("name") for case in hackable if case.find("failure") is not None]
    assert "unicode" in failed
    case = next(case for case in hackable if case.get("name") == "unicode")
    assert case.get("classname") == "plugins.hackable:same_letters"
    assert "6 of 6 samples" in ElementTree.tostring(case, encoding="unicode")


def test_a_floor_of_the_users_own_lets_partial_credit_pass(
    graders: Workspace, arkdev: Command
) -> None:
    line = ("test", "grader", "--attack", "plugins.hackable:patient", "--data", "data/boxed.jsonl")
    assert arkdev(*line).exit_code == 3
    assert arkdev(*line, "--floor", "0.5").exit_code == 0
    assert arkdev(*line, "--floor", "0.4").exit_code == 3


def test_a_grader_that_fails_on_an_attack_ends_with_1(
    workspace: Workspace, arkdev: Command
) -> None:
    workspace.write(
        "plugins/grader.py",
        """
        from arkdev import single_grader

        @single_grader
        def one(context, sample, trajectory):
            words = trajectory.messages[-1].content.split()
            return float(words[0] == sample.extra["answer"])
        """,
    )
    questions = [{"role": "user", "content": "Which letter?"}]
    workspace.lines({"messages": questions, "extra": {"answer": x}} for x in ("Paris", "Rome"))
    told = arkdev("test", "grader", "--attack")
    assert told.exit_code == 1, told.out
    assert "IndexError" in told.out
    assert "one failed on: empty" in told.out


def test_without_a_right_answer_something_must_be_said(
    workspace: Workspace, arkdev: Command
) -> None:
    told = arkdev("test", "grader", "--attack")
    assert (told.exit_code, told.out) == (2, "")
    assert "no sample has a right answer in extra" in told.err
    assert "--reference-key" in told.err
    told = arkdev("test", "grader", "--attack", "--floor", "0.5")
    assert told.exit_code == 3, "the grader gives 1 to everything"
    assert "1 of 1 sample have no right answer" in told.out
    workspace.lines(
        [{"messages": [{"role": "user", "content": "?"}], "extra": {"my": {"key": "x"}}}]
    )
    told = arkdev("test", "grader", "--attack", "--reference-key", "my.key")
    assert told.exit_code == 3
    assert "no right answer was told from a wrong one" in told.out


@pytest.mark.parametrize(("returned", "exit_code"), [("letter", 0), ("text", 0), ("either", 3)])
def test_a_choice_by_its_place_is_answered_by_letter_or_text(
    workspace: Workspace, arkdev: Command, returned: str, exit_code: int
) -> None:
    compared = {
        "letter": "reply == 'ABC'[extra['answer']]",
        "text": "reply == extra['choices'][extra['answer']]",
        "either": "extra['choices'][extra['answer']] in reply",
    }
    workspace.write(
        "plugins/grader.py",
        f"""
        from arkdev import single_grader

        @single_grader
        def one(context, sample, trajectory):
            reply, extra = trajectory.messages[-1].content, sample.extra
            return float({compared[returned]})
        """,
    )
    choices = ["copper", "granite", "oxygen"]
    listed = "\n".join(f"{letter}. {text}" for letter, text in zip("ABC", choices, strict=True))
    workspace.lines(
        {
            "messages": [{"role": "user", "content": f"{question}\n{listed}"}],
            "extra": {"choices": choices, "answer": place},
        }
        for place, question in enumerate(("Which metal?", "Which rock?", "Which gas?"))
    )
    told = arkdev("test", "grader", "--attack", "--json")
    assert told.exit_code == exit_code, told.out
    rows = {row["name"]: row for row in told.document["graders"][0]["rows"]}
    assert rows["right-answer"]["verdict"] == "caught"
    assert rows["right-answer"]["highest"] == 1.0
    assert (rows["options"]["verdict"] == "hackable") == (returned == "either")


def test_a_recorded_run_gives_the_form_that_no_prompt_shows(
    workspace: Workspace, arkdev: Command
) -> None:
    workspace.write(
        "plugins/grader.py",
        r"""
        import re
        from arkdev import single_grader

        @single_grader
        def one(context, sample, trajectory):
            found = re.fullmatch(r"~~ (\w+) ~~ checked", trajectory.messages[-1].content)
            return float(bool(found) and found[1] == sample.extra["answer"])
        """,
    )
    workspace.lines(
        {"messages": [{"role": "user", "content": f"q{x}"}], "extra": {"answer": x}}
        for x in ("Paris", "Rome")
    )
    script = workspace.script({"content": "~~ Paris ~~ checked"})
    told = arkdev("test", "grader", "--attack")
    assert told.exit_code == 3
    assert "no recorded test of plugins" in told.err
    arkdev("test", "plugin", "--script", str(script))
    told = arkdev("test", "grader", "--attack")
    assert told.exit_code == 0, told.out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--attack", "--show", "pading"), "did you mean 'padding'?"),
        (("--attack", "--seed", "1"), "--seed without --repeat"),
        (("--attack", "--run", "x", "--data", "data.jsonl"), "--run and --data"),
        (("--attack", "--floor", "nan"), "finite"),
        (("--attack", "plugins.grader:none"), "none"),
        (("--junit", "x.xml", "--repeat", "2"), "--junit without --attack"),
    ],
)
def test_what_makes_no_sense_is_refused(
    arkdev: Command, arguments: tuple[str, ...], words: str
) -> None:
    told = arkdev("test", "grader", *arguments)
    assert (told.exit_code, told.out) == (2, "")
    assert words in told.err


def test_a_secret_in_a_prompt_is_masked(
    workspace: Workspace, arkdev: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace.write(
        "plugins/grader.py",
        """
        import os
        from arkdev import single_grader

        @single_grader
        def one(context, sample, trajectory):
            raise RuntimeError("refused " + os.environ["DECLARED"])
        """,
    )
    pipeline = {
        "rollout": {"plugin": "plugins.rollout:answer"},
        "graders": [{"plugin": "plugins.grader:one", "envs": {"DECLARED": "sentinel-90b1dd"}}],
    }
    workspace.write("job.yaml", job_yaml(custom_rl_pipeline=pipeline))
    workspace.lines(
        [{"messages": [{"role": "user", "content": "sentinel-90b1dd"}], "extra": {"answer": "x"}}]
    )
    for more in ((), ("--json",), ("--show", "echo")):
        told = arkdev("test", "grader", "--attack", "--junit", "j.xml", *more)
        assert told.exit_code == 1, told.err
        assert "sentinel-90b1dd" not in told.out + told.err
        assert "refused ***" in told.out
    assert "sentinel-90b1dd" not in (workspace.root / "j.xml").read_text("utf-8")
