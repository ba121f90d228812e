"""Which folder a model's name stands for."""

import json

import pytest

from arkdev.backends.local.model_files import newest_trained, resolve_model
from arkdev.errors import ConfigurationError, RunError
from arkdev.runs.saved_models import SavedModels
from arkdev.runs.writer import RunWriter


def write_model(folder, *, without=""):
    folder.mkdir(parents=True, exist_ok=True)
    files = {
        "config.json": '{"model_type": "qwen3"}',
        "model.safetensors": "weights",
        "tokenizer.json": "{}",
    }
    for name, text in files.items():
        if name != without:
            (folder / name).write_text(text, encoding="utf-8")
    return folder


def training_run(runs, *scores, kind="train", write=write_model, status="finished"):
    """A run that saved a model after each of its steps; returns its id."""
    run = RunWriter.create(runs, kind=kind, settings={}, hashes={}, versions={})
    saved = SavedModels(run.folder, run_id=run.run_id)
    for step, score in enumerate(scores, start=1):
        saved.save(step, write, score=score, facts={})
    run.finish(status, summary={})
    return run.run_id


def test_a_folder_is_a_model_that_is_found_again_by_its_name(tmp_path, monkeypatch):
    folder = write_model(tmp_path / "model")
    monkeypatch.chdir(tmp_path)
    files = resolve_model("model")
    assert files.folder == files.tokenizer_folder == folder and files.adapter is None
    assert resolve_model(files.name).folder == folder and files.num_bytes == len("weights")


@pytest.mark.parametrize(
    ("part", "said"),
    [
        ("config.json", "no config.json"),
        ("model.safetensors", "no weights"),
        ("tokenizer.json", "no tokenizer"),
    ],
)
def test_each_missing_part_is_named(tmp_path, part, said):
    with pytest.raises(ConfigurationError, match=said) as caught:
        resolve_model(str(write_model(tmp_path / "model", without=part)))
    assert caught.value.where == str(tmp_path / "model")


def test_weights_in_parts_must_all_be_there(tmp_path):
    folder = write_model(tmp_path / "model", without="model.safetensors")
    names = {"a": "model-1-of-2.safetensors", "b": "model-2-of-2.safetensors"}
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": names}), encoding="utf-8")
    (folder / names["a"]).write_text("some", encoding="utf-8")
    with pytest.raises(ConfigurationError, match="model-2-of-2"):
        resolve_model(str(folder))
    (folder / names["b"]).write_text("more", encoding="utf-8")
    assert resolve_model(str(folder)).num_bytes == 8


def test_an_index_of_another_form_is_said(tmp_path):
    folder = write_model(tmp_path, without="model.safetensors")
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": ["a.safetensors"]}), encoding="utf-8")
    with pytest.raises(ConfigurationError, match="weight_map") as caught:
        resolve_model(str(folder))
    assert caught.value.where == str(index)


def test_what_is_no_model_is_said(tmp_path):
    folder = write_model(tmp_path / "model")
    (folder / "model.safetensors").write_bytes(b"version https://git-lfs.github.com/spec/v1\n")
    with pytest.raises(ConfigurationError, match="Git LFS"):
        resolve_model(str(folder))
    (tmp_path / "q4.gguf").write_bytes(b"GGUF")
    for path in (tmp_path, tmp_path / "q4.gguf"):
        with pytest.raises(ConfigurationError, match="GGUF"):
            resolve_model(str(path))
    with pytest.raises(ConfigurationError, match="not downloaded") as caught:
        resolve_model("Qwen/Qwen3-0.6B")
    assert "hf download" in caught.value.hint
    with pytest.raises(ConfigurationError, match="no model 'tinny'") as caught:
        resolve_model("tinny", runs=tmp_path / "runs")
    assert "tiny-teacher" in caught.value.hint


def test_a_run_stands_for_its_best_model_or_its_last(tmp_path):
    runs = tmp_path / "runs"
    validated = training_run(runs, 0.2, 0.9, 0.5)
    blind = training_run(runs, None, None)
    best = resolve_model(validated, runs=runs)
    assert best.name == f"{validated}@2" and "0.900" in best.source
    assert resolve_model(best.name, runs=runs).folder == best.folder
    assert resolve_model(blind, runs=runs).folder.name == "step-2"
    assert resolve_model(f"{validated}@last", runs=runs).folder.name == "step-3"
    assert resolve_model(f"{validated}@1", runs=runs).folder.name == "step-1"
    by_path = resolve_model(str(runs / validated))
    assert by_path.folder == best.folder
    assert resolve_model(by_path.name).folder == best.folder
    with pytest.raises(RunError, match="no saved model of 7 steps"):
        resolve_model(f"{validated}@7", runs=runs)


def test_the_newest_finished_training_is_found(tmp_path):
    runs = tmp_path / "runs"
    assert newest_trained(runs) is None
    wanted = training_run(runs, 0.1)
    training_run(runs)  # saved nothing
    training_run(runs, 0.5, status="failed")
    tested = training_run(runs, kind="test")
    assert newest_trained(runs) == wanted
    assert resolve_model("latest@1", runs=runs).name.endswith("@1")
    with pytest.raises(RunError, match="test run"):
        resolve_model(tested, runs=runs)


def test_an_adapter_comes_with_its_base_where_it_is_taken(tmp_path):
    base = write_model(tmp_path / "base")

    def write_adapter(folder):
        config = {"base_model_name_or_path": str(base)}
        (folder / "adapter_config.json").write_text(json.dumps(config), encoding="utf-8")

    runs = tmp_path / "runs"
    run = training_run(runs, 0.5, write=write_adapter)
    with pytest.raises(ConfigurationError, match="LoRA adapter") as caught:
        resolve_model(run, runs=runs)
    assert f"arkdev export {run}" in caught.value.hint
    files = resolve_model(run, runs=runs, takes_adapter=True)
    assert files.folder == base and files.adapter == files.tokenizer_folder
    with pytest.raises(ConfigurationError, match="LoRA adapter"):
        resolve_model(str(files.adapter))
    base.rename(tmp_path / "elsewhere")
    with pytest.raises(ConfigurationError, match="is not there"):
        resolve_model(run, runs=runs, takes_adapter=True)
