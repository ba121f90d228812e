"""The embedded models' generated data, and their files: what can be said without torch."""

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from random import Random

import pytest

from tools.tiny_model import arithmetic, echo, search, weather
from tools.tiny_model.dialogue import Dialogue, HeldOutError, check_held_out, question
from tools.tiny_model.workspaces import held_out_prompts, template_module, validation_samples

EMBEDDED = Path(__file__).resolve().parents[3] / "arkdev" / "backends" / "local" / "embedded"
DOMAINS = {"weather": weather, "arithmetic": arithmetic, "search": search, "echo": echo}
LARGEST_MODEL = 8_000_000  # bytes


@pytest.mark.parametrize("domain", DOMAINS)
@pytest.mark.parametrize("is_mixture", [False, True])
def test_no_validation_question_is_generated(domain, is_mixture):
    rng = Random(1)
    for _ in range(300):
        check_held_out(DOMAINS[domain].dialogue(rng, is_mixture=is_mixture))


def test_the_check_finds_a_held_out_question_in_any_turn():
    held_out = sorted(held_out_prompts())[0]
    with pytest.raises(HeldOutError, match="held out"):
        check_held_out(Dialogue([question("你好"), question(held_out)]))


def test_the_training_questions_of_the_template_are_generated():
    rng = Random(2)
    generated = {
        weather.dialogue(rng, is_mixture=False).messages[0]["content"] for _ in range(2000)
    }
    assert "请问武汉的气温是多少摄氏度？" in generated


def test_held_out_sums_are_left_out_in_every_form():
    rng = Random(3)
    drawn = {arithmetic._drawn_operands(rng, larger=40, larger_share=0.25) for _ in range(5000)}
    assert not drawn & arithmetic.held_out_operands()
    assert len(drawn) > 500
    assert len(arithmetic.held_out_operands()) == len(validation_samples("minimal"))


def test_the_same_seed_gives_the_same_dialogues():
    first, second = Random(4), Random(4)
    for _ in range(20):
        assert search.dialogue(first, is_mixture=True) == search.dialogue(second, is_mixture=True)


def test_a_search_result_is_what_the_templates_server_answers():
    server = template_module(search.WORKSPACE, "plugins.search_server")
    world = search.own_world()
    for name in sorted(world.documents):
        assert search.found(name, world.documents[name]) == server.web_search(name, 1)


def test_a_mixture_of_the_weather_is_right_about_a_third_of_the_time():
    rng = Random(5)
    drawn = Counter(weather.Behaviour.drawn(rng) == weather.Behaviour() for _ in range(4000))
    assert 0.28 < drawn[True] / 4000 < 0.38


@pytest.mark.parametrize("name", ["tiny", "tiny-teacher"])
def test_a_model_is_whole_and_small_enough_for_the_wheel(name):
    files = {path.name: path.stat().st_size for path in (EMBEDDED / name).iterdir()}
    expected = {"config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"}
    expected |= {"chat_template.jinja", "generation_config.json", "README.md"}
    assert set(files) == expected
    assert sum(files.values()) <= LARGEST_MODEL


def test_words_come_in_the_same_order_in_every_process():
    program = (
        "from tools.tiny_model import search, weather\nprint([*search.words(), *weather.words()])"
    )
    outputs = {
        subprocess.run(
            [sys.executable, "-c", program],
            cwd=EMBEDDED.parents[3],
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONIOENCODING": "utf-8"},
            check=True,
            capture_output=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(outputs) == 1


def test_a_package_of_the_same_name_elsewhere_does_not_hide_a_templates(tmp_path, monkeypatch):
    (tmp_path / "plugins").mkdir()
    (tmp_path / "plugins" / "__init__.py").write_text("", encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    template_module.cache_clear()
    assert template_module("rl_search_mcp_demo", "plugins.search_corpus").make_world()
