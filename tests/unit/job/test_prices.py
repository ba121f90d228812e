"""``[prices]`` of arkworkspace.toml."""

from __future__ import annotations

from pathlib import Path

import pytest

from arkdev.errors import WorkspaceError
from arkdev.job.prices import ModelPrice, Prices
from arkdev.job.workspace import find_workspace


def read(folder: Path, text: str) -> Prices:
    (folder / "arkworkspace.toml").write_text(text, encoding="utf-8")
    return find_workspace(folder).prices


def test_a_table_of_prices(tmp_path: Path) -> None:
    prices = read(
        tmp_path,
        '[prices]\ncurrency = "CNY"\ntraining_per_hour = 12\n'
        '[prices.models."m-1"]\ninput_per_million = 0.8\noutput_per_million = 2\n',
    )
    assert prices == Prices("CNY", 12, {"m-1": ModelPrice(0.8, 2)})


def test_without_a_table_there_are_no_prices(tmp_path: Path) -> None:
    assert read(tmp_path, "") == Prices()


def test_every_mistake_is_named_with_its_line(tmp_path: Path) -> None:
    text = (
        "[prices]\ntraining_per_hour = -1\n"
        '[prices.models."m"]\ninput_per_million = "0.8"\ninputs = 1\n'
    )
    with pytest.raises(WorkspaceError) as caught:
        read(tmp_path, text)
    told = str(caught.value)
    for part in (
        "toml:1: prices.currency: a word is expected",
        "toml:2: prices.training_per_hour: a number of at least 0",
        "toml:4: ",
        "input_per_million: a number of at least 0",
        "has no output_per_million",
        "'inputs'",
    ):
        assert part in told, told
