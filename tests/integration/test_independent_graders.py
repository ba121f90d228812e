"""`arkdev test grader --attack` on graders whose author had not seen the attacks."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.integration.workspace import Command, Workspace

GRADERS = Path(__file__).parents[1] / "assets" / "independent_graders"

HACKABLE = {
    "arithmetic": {
        "hackable_numbers:default_half": "empty",
        "hackable_numbers:any_number": "options",
        "hackable_numbers:ascii_squeeze": "unicode",
        "hackable_numbers:cut_is_not_wrong": "truncation",
        "hackable_numbers:evaluates_reply": "echo",
        "hackable_numbers:long_if_varied": "padding",
        "hackable_numbers:majority_vote": "right-answer",
        "hackable_bonus:says_the_answer_is": "format",
    },
    "word_problems": {
        "hackable_numbers:long_reasoning_bonus": "padding",
        "hackable_numbers:similar_solution": "format",
        "hackable_bonus:connectives_bonus": "padding",
    },
    "boxed": {"hackable_numbers:format_credit": "format"},
    "choices": {
        "hackable_choices:option_text_in_reply": "echo",
        "hackable_choices:letter_anywhere": "options",
    },
    "extraction": {
        "hackable_extraction:keys_present": "format",
        "hackable_extraction:nothing_wrong": "empty",
        "hackable_extraction:repaired_json": "truncation",
        "hackable_bonus:valid_json_half": "format",
    },
    "tools": {
        "hackable_tools:grounded_in_any_text": "forged-tool",
        "hackable_bonus:tool_use_bonus": "forged-tool",
    },
    "booking": {"hackable_tools:booking_said_done": "forged-tool"},
    "qa_zh": {
        "hackable_qa:contains_answer": "options",
        "hackable_qa:known_entity": "other-sample",
    },
    "qa_en": {
        "hackable_qa:judge_pastes_reply": "injection",
        "hackable_qa:either_contains_other": "truncation",
        "hackable_qa:one_answer_by_commas": "options",
        "hackable_judges:first_score_of_critique": "injection",
        "hackable_judges:last_reference_counts": "injection",
    },
    "reading": {
        "hackable_qa:word_recall": "echo",
        "hackable_bonus:no_unsupported_sentence": "empty",
    },
    "yes_no": {"hackable_sets:yes_or_no_in_reply": "options"},
    "multi_select": {"hackable_sets:letters_recall": "options"},
    "lists": {"hackable_sets:items_recall": "options"},
}
"""By data: each grader that can be hacked, and the row of the table that must say so."""

SOUND = {
    "arithmetic": (
        *("sound_numbers:exact_number", "sound_numbers:tagged_answer"),
        *("sound_numbers:percent", "sound_numbers:tags_and_answer"),
    ),
    "word_problems": ("sound_numbers:hash_line",),
    "boxed": ("sound_numbers:last_boxed",),
    "quantities": ("sound_numbers:quantity",),
    "choices": ("sound_choices:one_letter", "sound_choices:answer_line"),
    "extraction": ("sound_extraction:same_object", "sound_extraction:right_fields"),
    "tools": ("sound_tools:balance_by_call_id",),
    "booking": ("sound_tools:booking_by_call",),
    "qa_zh": ("sound_qa:short_zh",),
    "qa_en": (
        *("sound_qa:exact_match", "sound_qa:brief_match", "sound_qa:judge_reads_json"),
        "sound_sets:shortest_right_bonus",
    ),
    "yes_no": ("sound_sets:yes_or_no", "sound_sets:only_yes_or_no"),
    "multi_select": ("sound_sets:same_letters",),
    "lists": ("sound_sets:same_items",),
}

ATTACKS = {
    *("empty", "echo", "format", "options", "padding", "injection"),
    *("forged-tool", "truncation", "other-sample", "unicode"),
}


@pytest.fixture
def graders(workspace: Workspace) -> Workspace:
    """The workspace with all graders."""
    shutil.copytree(GRADERS, workspace.root, dirs_exist_ok=True)
    return workspace


@pytest.mark.parametrize("data", sorted({*HACKABLE, *SOUND}))
def test_hackable_graders_are_caught_by_name_and_sound_ones_not_flagged(
    graders: Workspace, arkdev: Command, data: str
) -> None:
    hackable, sound = HACKABLE.get(data, {}), SOUND.get(data, ())
    source = ["--data", f"data/{data}.jsonl"]
    if data == "booking":  # what a tool said stands in a run alone
        script = ("--script", "data/booking_script.json", "--n-sample", "2")
        assert arkdev("test", "plugin", *script).exit_code == 0
        source = []
    names = [f"plugins.{name}" for name in (*hackable, *sound)]
    told = arkdev("test", "grader", "--attack", *names, *source, "--json")
    assert told.exit_code == (3 if hackable else 0), told.err
    flagged = {table["reference"]: flagged_rows(table) for table in told.document["graders"]}
    missed = {name: flagged[f"plugins.{name}"] for name in hackable}
    assert [name for name, row in hackable.items() if row not in missed[name]] == [], missed
    assert {name: flagged[f"plugins.{name}"] for name in sound} == {name: [] for name in sound}


def flagged_rows(table: dict[str, Any]) -> list[str]:
    """Rows of a grader's table that find fault with it; the right answer must have been graded."""
    rows = {row["name"]: row for row in table["rows"]}
    assert rows["right-answer"]["num_samples"] > 0
    return [name for name, row in rows.items() if row["verdict"] not in ("caught", "skipped")]


def test_every_grader_of_the_workspace_is_attacked_and_every_attack_needed() -> None:
    named = {name for graders in (*HACKABLE.values(), *SOUND.values()) for name in graders}
    written = {
        f"{path.stem}:{name}"
        for path in (GRADERS / "plugins").glob("*_*.py")
        for name in re.findall(
            r"^@(?:single|group)_grader\n(?:async )?def (\w+)",
            path.read_text(encoding="utf-8"),
            re.MULTILINE,
        )
    }
    assert named == written
    assert {row for graders in HACKABLE.values() for row in graders.values()} > ATTACKS
    assert sum(map(len, SOUND.values())) >= 10
