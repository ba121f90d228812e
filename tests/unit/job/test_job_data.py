"""The samples of a job: where they are, stand-ins for the platform's, mixed and split."""

import json
from collections import Counter

import pytest

from arkdev.errors import DataError, WorkspaceError
from arkdev.job.data import Data
from arkdev.job.job_data import load_job_samples, tolerance_of
from arkdev.job.workspace import find_workspace


def rows(name: str, count: int) -> str:
    samples = (
        {"messages": [{"role": "user", "content": f"{name} {n}"}], "extra": {"of": name, "n": n}}
        for n in range(count)
    )
    return "".join(json.dumps(sample) + "\n" for sample in samples)


@pytest.fixture
def workspace(tmp_path):
    (tmp_path / "plugins").mkdir()
    for name, count in (("a", 20), ("b", 10), ("v", 5), ("preset", 4)):
        (tmp_path / f"{name}.jsonl").write_text(rows(name, count), encoding="utf-8")
    (tmp_path / "arkworkspace.toml").write_text(
        '[datasets]\n"ds-a" = "a.jsonl"\n"dsv-b" = ["b.jsonl"]\n"dsv-preset" = "preset.jsonl"\n',
        encoding="utf-8",
    )
    return find_workspace(tmp_path)


def load(workspace, *, seed=0, **fields):
    return load_job_samples(Data.model_validate(fields), workspace=workspace, seed=seed)


def made_of(samples) -> Counter[str]:
    return Counter(sample.raw["extra"]["of"] for sample in samples)


LOCAL = {"local_files": ["a.jsonl", "b.jsonl"]}


def test_local_files_follow_each_other(workspace):
    found = load(workspace, training_set=LOCAL, validation_set={"local_files": ["v.jsonl"]})
    assert made_of(found.training) == {"a": 20, "b": 10}
    assert found.training[20].where.endswith("b.jsonl:1")
    assert found.validation is not None
    assert made_of(found.validation) == {"v": 5}


def test_a_validation_set_is_split_off_alike_every_time(workspace):
    found = load(workspace, training_set=LOCAL, validation_percentage=20)
    assert found.validation is not None
    wheres = [{line.where for line in samples} for samples in (found.training, found.validation)]
    assert [len(each) for each in wheres] == [24, 6]
    assert wheres[0].isdisjoint(wheres[1])
    again = load(workspace, training_set=LOCAL, validation_percentage=20)
    assert again.validation is not None
    assert [line.where for line in again.validation] == [line.where for line in found.validation]
    other = load(workspace, training_set=LOCAL, validation_percentage=20, seed=1)
    assert other.validation is not None
    assert {line.where for line in other.validation} != wheres[1]


def test_datasets_are_mixed_by_what_stands_for_them(workspace):
    found = load(
        workspace,
        training_set={
            "datasets": [
                {"dataset_id": "ds-a", "multiplier": 0.5},
                {"dataset_id": "ds-b", "dataset_version_id": "dsv-b", "sample_count": 25},
            ]
        },
        preset_dataset={"dataset_version_id": "dsv-preset", "inject_multiplier": 2},
    )
    assert made_of(found.training) == {"a": 10, "b": 25, "preset": 8}
    of_b = Counter(s.raw["extra"]["n"] for s in found.training if s.raw["extra"]["of"] == "b")
    assert set(of_b.values()) == {2, 3}


def test_preset_data_by_number_is_mixed_in(workspace):
    preset = {"dataset_version_id": "dsv-preset", "inject_sample_count": 3}
    found = load(workspace, training_set=LOCAL, preset_dataset=[preset])
    assert made_of(found.training) == {"a": 20, "b": 10, "preset": 3}


def test_no_preset_data_is_split_off_for_validation(workspace):
    found = load(
        workspace,
        training_set={"local_files": ["b.jsonl"]},
        preset_dataset={"dataset_version_id": "dsv-preset"},
        validation_percentage=50,
    )
    assert found.validation is not None
    assert (made_of(found.training), made_of(found.validation)) == (
        {"b": 5, "preset": 4},
        {"b": 5},
    )


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        (
            {"training_set": {"tos_bucket": "mine", "tos_paths": ["x/train.jsonl"]}},
            "data.training_set: tos://mine/x/train.jsonl is in object storage",
        ),
        (
            {"training_set": {"datasets": [{"dataset_id": "ds-a"}, {"dataset_id": "ds-x"}]}},
            r"data.training_set.datasets\[1\]: dataset ds-x is on the platform",
        ),
        (
            {"training_set": LOCAL, "preset_dataset": {"dataset_version_id": "dsv-x"}},
            "data.preset_dataset: dataset dsv-x is on the platform",
        ),
        (
            {"training_set": LOCAL, "validation_set": {"tos_bucket": "b", "tos_paths": ["x"]}},
            "data.validation_set: tos://b/x is in object storage",
        ),
    ],
)
def test_what_is_on_the_platform_alone_says_what_to_do_here(workspace, fields, said):
    with pytest.raises(DataError, match=said) as caught:
        load(workspace, **fields)
    assert "[datasets]" in caught.value.hint


def test_a_mix_that_gives_nothing_names_its_dataset(workspace):
    with pytest.raises(DataError, match=r"ds-a: multiplier is 0\.01: none of 20 samples"):
        load(workspace, training_set={"datasets": [{"dataset_id": "ds-a", "multiplier": 0.01}]})


def test_invalid_lines_of_each_set_are_passed_over_and_told(workspace):
    path = workspace.root / "a.jsonl"
    path.write_text("{}\n" + rows("a", 9), encoding="utf-8")
    found = load(
        workspace, training_set={"local_files": ["a.jsonl"]}, max_invalid_records_ratio=0.1
    )
    assert len(found.training) == 9
    assert found.training[0].line_number == 2
    assert {key: invalid.count for key, invalid in found.invalid.items()} == {"training_set": 1}
    with pytest.raises(DataError, match="messages is missing"):
        load(workspace, training_set={"local_files": ["a.jsonl"]}, max_invalid_records_number=0)


def test_the_limits_of_the_job_are_read():
    data = Data.model_validate({"training_set": LOCAL, "max_invalid_records_number": "3"})
    assert tolerance_of(data).number == 3


@pytest.mark.parametrize("value", ["3", "[]", '[1, "x"]', '""'])
def test_a_stand_in_is_a_path_or_several(tmp_path, value):
    (tmp_path / "arkworkspace.toml").write_text(f'[datasets]\n"ds-1" = {value}\n', encoding="utf-8")
    with pytest.raises(WorkspaceError, match=r"datasets\.ds-1: a path is expected") as caught:
        find_workspace(tmp_path)
    assert caught.value.where.endswith("arkworkspace.toml:2")
