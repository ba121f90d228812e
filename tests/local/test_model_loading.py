"""A model's files are loaded whole, or it is said what is wrong with them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from arkdev.backends.local.model_loading import load_model
from arkdev.backends.local.policy import Policy
from arkdev.backends.local.sampler.engine import TorchEngine
from arkdev.errors import ConfigurationError
from tests.local.random_models import random_model

WEIGHTS = "model.safetensors"
A_WEIGHT = "model.layers.1.self_attn.q_proj.weight"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    random_model().save_pretrained(tmp_path / "model")
    return tmp_path / "model"


def _changed(folder: Path, change: Callable[[dict[str, torch.Tensor]], None]) -> None:
    weights = load_file(folder / WEIGHTS)
    change(weights)
    save_file(weights, folder / WEIGHTS, metadata={"format": "pt"})


def _configured(folder: Path, **values: object) -> None:
    path = folder / "config.json"
    document = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps({**document, **values}), encoding="utf-8")


def test_weights_that_are_missing_are_an_error_and_not_drawn_at_random(folder, capfd):
    _changed(folder, lambda weights: weights.pop(A_WEIGHT))
    with pytest.raises(ConfigurationError, match="lack weights: " + A_WEIGHT) as caught:
        Policy.load(folder)
    assert caught.value.where == str(folder)
    assert capfd.readouterr() == ("", "")


def test_weights_of_another_shape_are_named_with_both_shapes(folder, capfd):
    _changed(folder, lambda weights: weights.update({A_WEIGHT: weights[A_WEIGHT][:-8].clone()}))
    with pytest.raises(ConfigurationError, match=rf"{A_WEIGHT} has the shape \(24, 32\)"):
        load_model(folder, dtype=torch.float32)
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("kept", [0, 100, -1])
def test_weights_that_were_cut_are_an_error(folder, kept):
    data = (folder / WEIGHTS).read_bytes()
    (folder / WEIGHTS).write_bytes(data[:kept])
    with pytest.raises(ConfigurationError, match="cannot be loaded"):
        Policy.load(folder)


def test_code_of_a_folder_is_neither_run_nor_asked_about(folder, monkeypatch):
    ran = folder / "ran"
    code = f"open({str(ran)!r}, 'w')\n"
    for name in ("configuration_own.py", "modeling_own.py"):
        (folder / name).write_text(code, encoding="utf-8")
    own = {"AutoConfig": "configuration_own.Own", "AutoModelForCausalLM": "modeling_own.Own"}
    _configured(folder, model_type="own", architectures=["Own"], auto_map=own)

    def asked(*_: object) -> str:
        raise AssertionError("somebody was asked")

    monkeypatch.setattr("builtins.input", asked)
    with pytest.raises(ConfigurationError, match="code of its own"):
        Policy.load(folder)
    assert not ran.exists()


@pytest.mark.parametrize(
    "values", [{"hidden_size": "32"}, {"model_type": "t5"}, {"quantization_config": {"bits": 4}}]
)
def test_a_config_that_cannot_be_used_is_said_in_a_few_words(folder, values):
    _configured(folder, **values)
    with pytest.raises(ConfigurationError, match="cannot be loaded") as caught:
        Policy.load(folder)
    assert len(caught.value.message) < 400


def test_weights_that_are_no_numbers_are_called_damaged(folder):
    _changed(folder, lambda weights: weights[A_WEIGHT].fill_(float("nan")))
    model = load_model(folder, dtype=torch.float32)
    with pytest.raises(ConfigurationError, match="damaged"):
        TorchEngine(model, device="cpu", max_context_tokens=64)


def test_extra_weights_are_passed_over_and_any_precision_is_taken(folder):
    expected = load_file(folder / WEIGHTS)[A_WEIGHT].bfloat16().float()

    def halved(weights: dict[str, torch.Tensor]) -> None:
        weights.update({name: weight.bfloat16() for name, weight in weights.items()})
        weights["more.weight"] = torch.zeros(3)

    _changed(folder, halved)
    model = load_model(folder, dtype=torch.float32)
    assert torch.equal(model.state_dict()[A_WEIGHT], expected)
