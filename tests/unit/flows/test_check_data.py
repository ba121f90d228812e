"""The report on a job's data: every line, what the data is made of, and what does not fit."""

import json
import tracemalloc
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from arkdev.errors import DataError, ExitCode, UsageError
from arkdev.flows.check_data import CheckProgress, DataCheckRequest, check_data
from arkdev.flows.data_report import DataCheck

JOB = """
customization_type: GRPO
model_reference: {foundation_model: {name: m, model_version: "1"}}
data: %s
hyperparameters: {batch_size: 4}
custom_rl_pipeline:
  graders: [{plugin: {python_func: plugins.grader:one}, weight: 1}]
"""
GRADER = """
from arkdev import single_grader

@single_grader
def one(context, sample, trajectory):
    return float(sample.extra["answer"]) + len(sample.extra.get("hint", ""))
"""


def sample(content: Any, **extra: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": content}], "extra": extra}


class JobFolder:
    def __init__(self, root: Path) -> None:
        self.root = root
        (root / "plugins").mkdir()
        (root / "plugins" / "grader.py").write_text(GRADER, encoding="utf-8")
        self.job(training_set={"local_files": ["data.jsonl"]})

    def job(self, **data: Any) -> None:
        (self.root / "job.yaml").write_text(JOB % json.dumps(data), encoding="utf-8")

    def lines(self, lines: Iterable[Any], name: str = "data.jsonl") -> Path:
        texts = (line if isinstance(line, str) else json.dumps(line) for line in lines)
        path = self.root / name
        path.write_text("".join(f"{text}\n" for text in texts), encoding="utf-8")
        return path

    def check(self, *files: Path, **request: Any) -> DataCheck:
        made = DataCheckRequest(self.root, files=files, **request)
        return check_data(made, progress=CheckProgress())


@pytest.fixture
def folder(tmp_path: Path) -> JobFolder:
    return JobFolder(tmp_path)


def places(wheres: Iterable[str]) -> list[str]:
    return [where.rpartition("/")[2] for where in wheres]


def test_every_line_that_is_no_sample_is_told_with_its_place_and_what_to_do(folder):
    folder.lines(
        [
            sample("1", answer=1),
            {"messages": {"role": "user", "content": "x"}},
            '{"messages": [,]}',
            "",
            {**sample("2", answer=2), "answr": 1},
            {"messages": [{"role": "usr", "content": "x"}]},
        ]
    )
    found = folder.check()
    [only] = found.sets
    assert found.exit_code == ExitCode.USAGE
    assert (only.name, only.is_accepted, only.statistics.num_samples) == ("training_set", False, 2)
    assert places(line.where for line in only.errors.shown) == [
        *("data.jsonl:2", "data.jsonl:3:15", "data.jsonl:6")
    ]
    first = only.errors.shown[0]
    assert (first.message, first.fix) == ("messages is one object", "wrap it in a list: [{...}]")
    [warning] = only.warnings.shown
    assert warning.message == "unknown key 'answr'"
    assert found.job is None, "numbers of a job need data that is accepted"


def test_all_are_counted_however_few_are_shown(folder):
    bad = [{"messages": [{"role": f"r{n}", "content": ""}]} for n in range(30)]
    folder.lines([sample("ok", answer=1), *bad, *["{}"] * 5])
    [only] = folder.check(num_shown=3).sets
    assert (only.errors.count, len(only.errors.shown)) == (35, 3)
    assert only.errors.kinds == {"messages[]: unknown role …": 30, "messages is missing": 5}


@pytest.mark.parametrize(("limit", "code"), [(2, ExitCode.OK), (1, ExitCode.USAGE)])
def test_the_job_says_how_many_invalid_lines_are_good(folder, limit, code):
    folder.job(training_set={"local_files": ["data.jsonl"]}, max_invalid_records_number=limit)
    folder.lines([sample("ok", answer=1), "{}", "{}"])
    found = folder.check()
    assert found.exit_code == code
    assert found.sets[0].tolerance == f"max_invalid_records_number ({limit})"
    assert found.sets[0].errors.count == 2


def test_statistics_say_what_the_prompts_are_made_of(folder):
    picture = {"type": "image_url", "image_url": {"url": "https://x.test/a.png"}}
    folder.lines(
        [
            sample("hello", answer=1),
            {
                "messages": [
                    {"role": "system", "content": "be brief"},
                    {"role": "user", "content": [{"type": "text", "text": "what?"}, picture]},
                ],
                "temperature": 0.5,
                "thinking": {"type": "enabled"},
                "tools": [{"type": "function", "function": {"name": "f"}}],
                "extra": {"answer": 1, "level": 2},
            },
        ]
    )
    statistics = folder.check().sets[0].statistics
    assert statistics.num_samples == 2
    assert statistics.roles == {"user": 2, "system": 1}
    assert statistics.last_roles == {"user": 2}
    assert statistics.parts == {"text": 1, "image_url": 1}
    assert (statistics.num_multimodal, statistics.num_with_tools) == (1, 1)
    assert statistics.sampling == {"temperature": 1, "thinking": 1}
    assert statistics.extra_keys == {"answer": 2, "level": 1}
    assert statistics.messages is not None
    assert (statistics.messages.min, statistics.messages.max) == (1, 2)
    assert statistics.characters is not None
    assert statistics.characters.min == 5


def test_samples_without_a_key_that_a_grader_reads_are_told_with_the_graders_line(folder):
    folder.lines(
        [sample("1", answer=1), sample("2"), sample("3", answer=None), sample("4", hint="h")]
    )
    keys = folder.check().sets[0].missing_keys
    answer, hint = sorted(keys, key=lambda missing: missing.key)
    assert (answer.key, answer.grader, answer.num_samples, answer.is_required) == (
        *("answer", "one", 3, True),
    )
    assert places([answer.where]) == ["grader.py:6"]
    assert places(answer.samples) == ["data.jsonl:2", "data.jsonl:3", "data.jsonl:4"]
    assert (hint.key, hint.num_samples, hint.is_required) == ("hint", 3, False)


def test_prompts_that_are_there_again_are_told_also_across_sets(folder):
    folder.job(
        training_set={"local_files": ["data.jsonl"]}, validation_set={"local_files": ["v.jsonl"]}
    )
    part = [{"type": "text", "text": "a"}]
    folder.lines([sample("a", answer=1), sample("b", answer=1), sample(part, answer=2)])
    folder.lines([sample("c", answer=1), sample("b", answer=1)], name="v.jsonl")
    found = folder.check()
    duplicates = found.duplicates
    assert (duplicates.num_repeated, duplicates.num_conflicting, duplicates.num_leaked) == (2, 1, 1)
    assert [(places(same.places), same.differs_in_extra) for same in duplicates.shown] == [
        (["data.jsonl:1", "data.jsonl:3"], True),
        (["data.jsonl:2", "v.jsonl:2"], False),
    ]
    assert [places(pair) for pair in duplicates.leaked] == [["v.jsonl:2", "data.jsonl:2"]]
    assert found.exit_code == ExitCode.OK


def test_a_jobs_numbers_are_those_of_its_batches(folder):
    folder.job(training_set={"local_files": ["data.jsonl"]}, validation_percentage=10)
    folder.lines(sample(str(n), answer=1) for n in range(20))
    numbers = folder.check().job
    assert numbers is not None
    assert (numbers.num_training, numbers.num_validation) == (18, 2)
    assert (numbers.batch_size, numbers.steps_per_epoch, numbers.last_batch) == (4, 5, 2)


def test_files_that_are_named_stand_for_the_jobs_and_keep_its_graders(folder):
    path = folder.lines([sample("1")], name="other.jsonl")
    found = folder.check(path)
    assert [(s.name, list(s.files.values())) for s in found.sets] == [("files", [1])]
    assert [missing.key for missing in found.sets[0].missing_keys] == ["answer", "hint"]
    assert found.job is None
    (folder.root / "job.yaml").unlink()
    assert folder.check(path).sets[0].missing_keys == ()
    with pytest.raises(UsageError, match="no files"):
        folder.check()


def test_data_on_the_platform_says_what_to_do(folder):
    folder.job(training_set={"tos_bucket": "b", "tos_paths": ["p"]})
    with pytest.raises(DataError, match="object storage") as caught:
        folder.check()
    assert "job.yaml" in caught.value.where


def test_a_file_that_is_not_there_is_an_error_before_any_is_read(folder):
    with pytest.raises(DataError, match="no such data file"):
        folder.check()


def test_memory_stays_flat_over_many_lines(folder):
    """Beside 24 bytes a sample, which are kept: where it begins, and what it is compared by."""
    few = folder.lines((sample(f"{n} {'x' * 500}", answer=n) for n in range(300)), name="few.jsonl")
    many = folder.lines((sample(f"{n} {'x' * 500}", answer=n) for n in range(3000)), name="m.jsonl")
    peaks = []
    for path in (few, few, many):
        tracemalloc.start()
        try:
            assert folder.check(path).exit_code == ExitCode.OK
            peaks.append(tracemalloc.get_traced_memory()[1])
        finally:
            tracemalloc.stop()
    assert peaks[2] - peaks[1] < 2700 * 60
