"""The templates' datasets: made by their script, closed, disjoint, and answered by the tool."""

from __future__ import annotations

import importlib.util
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from arkdev.flows.init_workspace import templates_root
from arkdev.types import ChatCompletionSample

FILES = {
    "rl_demo": ("mcj_rollout_test_dataset.jsonl", "mcj_rollout_validation_dataset.jsonl"),
    "minimal": ("train.jsonl", "validation.jsonl"),
    "rl_search_mcp_demo": ("search_dataset.jsonl", "search_dataset_dev_100.jsonl"),
}
TEMPLATES = sorted(FILES)


def read_lines(template: str, name: str) -> list[dict[str, Any]]:
    path = templates_root() / template / "data" / name
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def all_lines(template: str) -> list[dict[str, Any]]:
    return [line for name in FILES[template] for line in read_lines(template, name)]


def question(line: dict[str, Any]) -> str:
    text = line["messages"][-1]["content"]
    assert isinstance(text, str)
    return text


@pytest.fixture(scope="module")
def weather_tool() -> ModuleType:
    path = templates_root() / "rl_demo/plugins/weather_tool.py"
    spec = importlib.util.spec_from_file_location("rl_demo_weather_tool", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("template", TEMPLATES)
def test_the_shipped_files_are_what_the_script_makes(tmp_path: Path, template: str) -> None:
    source = templates_root() / template
    for folder in ("data", "plugins"):
        shutil.copytree(
            source / folder, tmp_path / folder, ignore=shutil.ignore_patterns("*.jsonl")
        )
    command = [sys.executable, "-m", "data.make_data"]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, timeout=300)
    for name in FILES[template]:
        assert (tmp_path / "data" / name).read_bytes() == (source / "data" / name).read_bytes()


@pytest.mark.parametrize("template", TEMPLATES)
def test_every_line_is_a_sample_with_an_answer(template: str) -> None:
    for line in all_lines(template):
        sample = ChatCompletionSample(**line)
        assert sample.messages[-1].role == "user"
        assert sample.extra is not None
        assert sample.extra["answer"]
        assert not sample.model_extra, "an unknown key in the line"


@pytest.mark.parametrize("template", TEMPLATES)
def test_there_is_enough_data_and_no_question_twice(template: str) -> None:
    train, validation = (read_lines(template, name) for name in FILES[template])
    assert len(train) >= 128
    assert len(validation) >= 32
    lines = [*train, *validation]
    assert len({question(line) for line in lines}) == len(lines)
    assert len({line["extra"]["prompt_id"] for line in lines}) == len(lines)


@pytest.mark.parametrize("template", TEMPLATES)
def test_lines_are_short_enough_for_a_small_model(template: str) -> None:
    # one Chinese character is about one token, or more of them
    assert max(len(question(line)) for line in all_lines(template)) <= 20


def test_every_weather_answer_is_what_the_tool_reports(weather_tool: ModuleType) -> None:
    cities, units = "|".join(weather_tool.WEATHER), "|".join(weather_tool.UNITS)
    for line in all_lines("rl_demo"):
        (city,) = re.findall(cities, question(line))
        (unit,) = re.findall(units, question(line))
        report = weather_tool.get_current_weather(city, unit=unit)
        assert report.split("，")[1] == line["extra"]["answer"]


def test_weather_questions_use_a_closed_vocabulary(weather_tool: ModuleType) -> None:
    words = "|".join([*weather_tool.WEATHER, *weather_tool.UNITS])
    forms = {re.sub(words, "_", question(line)) for line in all_lines("rl_demo")}
    assert len(weather_tool.WEATHER) == 32
    assert len(forms) == 3


def test_no_two_cities_share_a_reading(weather_tool: ModuleType) -> None:
    for unit in weather_tool.UNITS:
        readings = {weather_tool.reading(city, unit) for city in weather_tool.WEATHER}
        assert len(readings) == len(weather_tool.WEATHER)


def test_every_arithmetic_answer_is_right() -> None:
    for line in all_lines("minimal"):
        match = re.fullmatch(r"(\d+) ([+-]) (\d+) = \?", question(line))
        assert match is not None
        left, sign, right = int(match[1]), match[2], int(match[3])
        assert line["extra"]["answer"] == str(left + right if sign == "+" else left - right)
