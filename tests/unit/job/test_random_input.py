"""Readers on random input: a value, or an error of arkdev's own with a place; nothing else."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import given, settings
from hypothesis import strategies as st

from arkdev.errors import DataError, JobError
from arkdev.job.dataset import read_files, read_samples
from arkdev.job.json_line import JsonProblem, parse_json
from arkdev.job.reader import read_job
from arkdev.job.yaml_tree import parse_yaml

quick = settings(max_examples=40, database=None, deadline=None, derandomize=True)
plain = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | plain,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(plain, inner, max_size=4),
    max_leaves=12,
)
# texts that are nearly JSON or YAML find more than letters do
MARKS = [*"{}[]\":,\\-|>#%@'?0é", "\\ud83d", "null", "1e999", "&a", "*a", "!!x", "<<", "NaN"]
pieces = st.lists(
    st.sampled_from([*MARKS, "\n", "  ", "- ", "\t", "\x00"]) | plain, max_size=25
).map("".join)


@quick
@given(text=pieces)
def test_any_text_is_json_or_has_a_problem(text):
    try:
        value, _ = parse_json(text)
    except JsonProblem as problem:
        assert str(problem)
    else:
        assert json.loads(json.dumps(value)) == value


@quick
@given(value=values)
def test_what_json_writes_is_read_as_it_was(value):
    assert parse_json(json.dumps(value, ensure_ascii=False)) == (value, False)


@quick
@given(text=pieces)
def test_any_text_is_yaml_or_has_problems_with_lines(text):
    tree = parse_yaml(text, source="job.yaml")
    assert all(problem.where.startswith("job.yaml:") for problem in tree.problems)


KEYS = ["customization_type", "data", "custom_rl_pipeline", "hyperparameters", "model_reference"]
job_texts = st.dictionaries(
    st.sampled_from([*KEYS, "training_set", "envs"]) | plain, values, max_size=5
).map(lambda value: json.dumps(value, ensure_ascii=False))


@quick
@given(text=pieces | job_texts)
def test_any_job_yaml_is_a_job_or_its_own_error(text):
    with TemporaryDirectory() as folder:
        path = Path(folder) / "job.yaml"
        path.write_bytes(text.encode("utf-8"))
        try:
            assert read_job(Path(folder)) is not None
        except JobError as error:
            assert error.message
            assert error.where or error.problems


messages = st.lists(
    st.dictionaries(
        st.sampled_from(["role", "content", "tool_calls", "tool_call_id", "name"]),
        st.sampled_from(["user", "assistant", "system", "tool", ""]) | values,
        max_size=4,
    ),
    max_size=3,
)
lines = st.dictionaries(
    st.sampled_from(["messages", "extra", "tools", "thinking", "n", "temperature", "stop"]) | plain,
    messages | values,
    max_size=4,
).map(lambda value: json.dumps(value, ensure_ascii=False))


@quick
@given(rows=st.lists(lines | pieces, min_size=1, max_size=5), end=st.sampled_from(["", "\n"]))
def test_any_file_is_samples_or_its_own_error(rows, end):
    with TemporaryDirectory() as folder:
        path = Path(folder) / "data.jsonl"
        path.write_bytes(("\n".join(rows) + end).encode("utf-8"))
        try:
            read = list(read_samples(path))
        except DataError as error:
            assert error.message
        else:
            assert [line.index for line in read] == list(range(len(read)))
            assert all(line.sample.messages for line in read)


@quick
@given(content=st.binary(max_size=60))
def test_any_bytes_are_samples_or_their_own_error(content):
    with TemporaryDirectory() as folder:
        path = Path(folder) / "data.jsonl"
        path.write_bytes(content)
        try:
            list(read_files([path]))
        except DataError as error:
            assert error.message


PROBE = """
import json
from arkdev.job.batches import BatchPlan
from arkdev.job.mixing import Mix, MixPart, split_off
from arkdev.job.shuffling import drawn, shuffled
parts = [MixPart(range(20), 1.5), MixPart(range(20, 33), None, 17)]
kept, held = split_off(parts, percentage=30, seed=4)
print(json.dumps([
    list(shuffled(40, seed=7, labels=("epoch", 1))),
    list(drawn(9, size=40, seed=7, labels=("mix", 1))),
    list(held),
    list(Mix(kept, seed=4)),
    [batch.indices for batch in BatchPlan(11, 4, seed=2, num_steps=7).batches()],
]))
"""


def test_orders_draws_splits_mixes_and_batches_are_the_same_in_every_process():
    """Whatever the seed of Python's own hashes is."""
    told = {
        subprocess.run(
            [sys.executable, "-c", PROBE],
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(sys.path)},
            check=True,
            capture_output=True,
            text=True,
            encoding="utf-8",
        ).stdout
        for seed in ("0", "1")
    }
    assert len(told) == 1
