"""Models and weights in a folder."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from arkdev.backends.local.vllm.saved_weights import vocabulary_size, weights_in
from arkdev.errors import ConfigurationError


def test_an_adapter_is_known_by_its_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="no weights"):
        weights_in(tmp_path)
    (tmp_path / "adapter_model.safetensors").write_bytes(b"")
    assert not weights_in(tmp_path).is_adapter
    (tmp_path / "adapter_config.json").write_text("{}", encoding="utf-8")
    assert weights_in(tmp_path).is_adapter


def test_the_vocabulary_is_that_of_the_text_part(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps({"vocab_size": 700}), encoding="utf-8")
    assert vocabulary_size(tmp_path) == 700
    path.write_text(json.dumps({"text_config": {"vocab_size": 9}}), encoding="utf-8")
    assert vocabulary_size(tmp_path) == 9


@pytest.mark.parametrize("text", ["{}", "[]", "{", None])
def test_a_folder_of_no_model_is_named(tmp_path: Path, text: str | None) -> None:
    if text is not None:
        (tmp_path / "config.json").write_text(text, encoding="utf-8")
    with pytest.raises(ConfigurationError, match="no model could be read") as caught:
        vocabulary_size(tmp_path)
    assert caught.value.where == str(tmp_path / "config.json")
