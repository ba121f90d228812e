"""The embedded models load, render stably, and can do what their cards say."""

from itertools import pairwise
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from tools.tiny_model import search, weather
from tools.tiny_model.dialogue import answer, call, question, result
from tools.tiny_model.evaluation import mean_reward
from tools.tiny_model.workspaces import template_module

EMBEDDED = Path(__file__).resolve().parents[2] / "arkdev" / "backends" / "local" / "embedded"
NAMES = ["tiny", "tiny-teacher"]
CONVERSATION = [
    {"role": "system", "content": "你是天气助手。"},
    question("北京现在多少摄氏度？"),
    call("get_current_weather", {"location": "北京", "unit": "摄氏度"}, "要查北京。"),
    result("晴，26摄氏度"),
    result("阴，25摄氏度"),
    answer("北京现在26摄氏度。", "知道了。"),
    {"role": "user", "content": [{"type": "text", "text": "谢谢"}]},
    {"role": "assistant", "content": None},
]


@pytest.fixture(scope="module", params=NAMES)
def name(request):
    return request.param


@pytest.fixture(scope="module")
def tokenizer(name):
    return AutoTokenizer.from_pretrained(EMBEDDED / name)


@pytest.fixture(scope="module")
def model(name):
    return AutoModelForCausalLM.from_pretrained(EMBEDDED / name)


@pytest.fixture(scope="module")
def tools():
    return template_module(weather.WORKSPACE, "plugins.weather_tool").rollout_tools


def test_it_is_a_plain_qwen3_in_float32(model, tokenizer):
    assert type(model).__name__ == "Qwen3ForCausalLM"
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}
    assert model.config.tie_word_embeddings
    assert model.config.head_dim % 32 == 0
    assert model.config.vocab_size == len(tokenizer)
    stops = [tokenizer.convert_tokens_to_ids(t) for t in ("<|im_end|>", "<|endoftext|>")]
    assert model.generation_config.eos_token_id == stops


def test_text_survives_the_tokenizer_and_every_digit_is_a_token(tokenizer):
    text = "<tool_call>\n{}\n</tool_call> −12.5°C, 零下３度 émoji 🌧"
    ids = tokenizer.encode(text)
    assert tokenizer.decode(ids) == text
    digits = tokenizer.encode("2026")
    assert [tokenizer.decode([one]) for one in digits] == list("2026")


def test_marks_of_tool_calls_and_reasoning_are_single_tokens_that_stay_in_the_text(tokenizer):
    for mark in ("tool_call", "think", "tool_response"):
        for text in (f"<{mark}>", f"</{mark}>"):
            ids = tokenizer.encode(text)
            assert len(ids) == 1
            assert tokenizer.decode(ids, skip_special_tokens=True) == text


@pytest.mark.parametrize("thinking", [False, True])
def test_what_is_rendered_of_a_conversation_does_not_change_as_it_grows(tokenizer, tools, thinking):
    rendered = [
        tokenizer.apply_chat_template(
            CONVERSATION[:length], tools=tools, tokenize=False, enable_thinking=thinking
        )
        for length in range(1, len(CONVERSATION) + 1)
    ]
    for shorter, longer in pairwise(rendered):
        assert longer.startswith(shorter)
    assert ("要查北京。" in rendered[-1]) == thinking


def test_the_template_writes_tools_by_their_names_and_calls_in_hermes_form(tokenizer, tools):
    text = tokenizer.apply_chat_template(
        CONVERSATION[:4], tools=tools, tokenize=False, add_generation_prompt=True
    )
    assert text == (
        "<|im_start|>system\n你是天气助手。\n"
        "# tools\nget_current_weather(location, unit)<|im_end|>\n"
        "<|im_start|>user\n北京现在多少摄氏度？<|im_end|>\n"
        '<|im_start|>assistant\n<tool_call>\n{"name": "get_current_weather", "arguments": '
        '{"location": "北京", "unit": "摄氏度"}}\n</tool_call><|im_end|>\n'
        "<|im_start|>user\n<tool_response>\n晴，26摄氏度\n</tool_response><|im_end|>\n"
        "<|im_start|>assistant\n"
    )


def test_arguments_may_be_an_object_and_a_tool_may_be_flat(tokenizer, tools):
    as_text, as_object = CONVERSATION[2], call("get_current_weather", {}, "")
    as_object["tool_calls"][0]["function"]["arguments"] = {"location": "北京", "unit": "摄氏度"}
    flat = [{"type": "function", **tools[0]["function"]}]
    rendered = {
        tokenizer.apply_chat_template([CONVERSATION[1], turn], tools=given, tokenize=False)
        for turn in (as_text, as_object)
        for given in (tools, flat)
    }
    assert len(rendered) == 1


def test_a_tool_without_parameters_and_a_call_beside_text_are_rendered(tokenizer):
    turn = {**call("now", {}), "content": "好。"}
    tools = [{"type": "function", "function": {"name": "now"}}, search.search_tool()]
    text = tokenizer.apply_chat_template([question("几点"), turn], tools=tools, tokenize=False)
    assert "# tools\nnow()\nweb_search(Query, Count)<|im_end|>" in text
    assert '好。\n<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call><|im_end|>' in text


def test_the_teacher_is_right_and_tiny_is_right_about_a_third_of_the_time(name, model, tokenizer):
    torch.manual_seed(0)
    reward = mean_reward(model, tokenizer, "weather", limit=16, repeats=8)
    if name == "tiny-teacher":
        assert reward >= 0.9
    else:
        assert 0.2 <= reward <= 0.5
