"""Messages and ids by real tokenizers and templates; field cases 1.1, 1.2, 1.5 and 1.6."""

import json
import random

import pytest

from arkdev.backends.local.conversations import Conversations
from arkdev.backends.local.rendering import AnsweredHistory, open_rendering
from arkdev.backends.local.text_stream import TextStream
from arkdev.errors import ConfigurationError
from arkdev.plugin.evidence import TokenRecordBuilder
from tests.local.template_folders import KEEPS_REASONING, LLAMA, QWEN3, write_folder
from tests.running import WEATHER_TOOL, tool_call, with_tokens

SYSTEM = {"role": "system", "content": "Be brief."}
USER = {"role": "user", "content": "How is the weather in Oslo?"}
TEMPLATES = {"keeps": KEEPS_REASONING, "qwen3": QWEN3, "llama": LLAMA}
CHATML_CALL = '<tool_call>\n{"name": "get_weather", "arguments": {"city":"Oslo"}}\n</tool_call>'
LLAMA_CALL = '{"name": "get_weather", "parameters": {"city":"Oslo"}}'


@pytest.fixture(scope="session")
def folders(tmp_path_factory):
    root = tmp_path_factory.mktemp("models")
    types = {"keeps": "qwen2", "qwen3": "qwen3", "llama": "llama"}
    return {
        name: write_folder(root / name, template, model_type=types[name])
        for name, template in TEMPLATES.items()
    }


@pytest.fixture(scope="session")
def renderings(folders):
    return {name: open_rendering(folder) for name, folder in folders.items()}


def tool(content, number=0):
    return {"role": "tool", "tool_call_id": f"call_{number}", "content": content}


def sampled(rendering, text, end=None):
    """Ids of a text as a model may sample it: in pieces that the tokenizer would not choose."""
    encode = rendering._tokenizer.encode
    pieces = text.split("ell") if "ell" in text else [text]
    ids = []
    for number, piece in enumerate(pieces):
        if number:
            ids += [token for letter in "ell" for token in encode(letter, add_special_tokens=False)]
        ids += encode(piece, add_special_tokens=False)
    return [*ids, end if end is not None else rendering._tokenizer.eos_token_id]


def converse(rendering, turns, *, tools=(WEATHER_TOOL,), thinking=None):
    """Turns of (answer's text, messages that follow); return messages and evidence."""
    conversations, record = Conversations(rendering), TokenRecordBuilder()
    messages = [USER]
    for number, (text, following) in enumerate(turns):
        prompt = conversations.prompt(messages, tools=tools, thinking=thinking)
        ids = sampled(rendering, text)
        logprobs = [-float(number + 1)] * len(ids)
        message = rendering.parse(ids, prompt_token_ids=prompt.token_ids).message
        conversations.remember(
            f"r{number}", prompt=prompt, message=message, token_ids=ids, logprobs=logprobs
        )
        record.add_call(with_tokens(list(prompt.token_ids), ids, logprobs))
        messages = [*messages, message, *following]
    return messages, record.built(), conversations


def test_a_family_is_known_by_what_its_template_writes(renderings, tmp_path):
    assert renderings["qwen3"].name == "renderer qwen3"
    assert renderings["keeps"].name == "chat template"
    other = write_folder(tmp_path / "other", KEEPS_REASONING, model_type="qwen3")
    assert open_rendering(other).name == "chat template", "a fine-tune with a template of its own"


@pytest.mark.parametrize("name", TEMPLATES)
@pytest.mark.parametrize("tools", [None, [WEATHER_TOOL]])
def test_a_prompt_is_what_the_chat_template_writes(renderings, name, tools):
    rendering = renderings[name]
    call = {"role": "assistant", "content": None, "tool_calls": [tool_call()]}
    for messages in ([USER], [SYSTEM, USER], [SYSTEM, USER, call, tool("rain")]):
        plain = [{**message, "content": message["content"] or ""} for message in messages]
        for message in plain:
            if "tool_calls" in message:
                message["tool_calls"] = [tool_call() | {"function": {"name": "get_weather"}}]
                message["tool_calls"][0]["function"]["arguments"] = {}
        expected = rendering._tokenizer.apply_chat_template(
            plain, tools=tools, add_generation_prompt=True, return_dict=False
        )
        assert rendering.render(messages, tools=tools) == expected


@pytest.mark.parametrize("name", TEMPLATES)
def test_sampled_ids_survive_tool_rounds_and_nothing_between_turns_is_lost(renderings, name):
    """Field cases 1.1 and 1.2: byte for byte what the template writes, ids as they were sampled."""
    rendering = renderings[name]
    call = LLAMA_CALL if name == "llama" else CHATML_CALL
    call = call.replace(":", ": ") if name == "llama" else call
    turns = [(call, [tool("hello")]), (call, [tool("yellow")]), ("hello", ())]
    messages, evidence, _ = converse(rendering, turns)
    trained = [
        token
        for token, weight in zip(evidence.token_ids, evidence.loss_weight, strict=True)
        if weight
    ]
    expected = [token for text, _ in turns for token in sampled(rendering, text)]
    assert trained == expected
    assert [logprob for logprob in evidence.logprobs if logprob][-1] == -3.0
    text = rendering.decode(evidence.token_ids)
    whole = rendering._tokenizer.apply_chat_template(
        [
            json.loads(json.dumps(message).replace('"content": null', '"content": ""'))
            for message in messages
        ],
        tools=[WEATHER_TOOL],
        tokenize=False,
    )
    end = rendering._tokenizer.eos_token
    if name == "keeps":  # Qwen3's puts an empty reasoning block around a last answer
        assert text == whole[: whole.rindex(end) + len(end)]
    if name == "llama":  # whose template writes the arguments' text once more as text
        assert text.count(end) == whole.count(end)
    if name != "llama":
        assert f"{end}\n<|im_start|>user\n<tool_response>\nhello\n</tool_response>{end}\n" in text


@pytest.mark.parametrize("name", ["keeps", "qwen3"])
def test_parallel_tool_results_stand_in_one_turn(renderings, name):
    rendering = renderings[name]
    turns = [(f"{CHATML_CALL}\n{CHATML_CALL}", [tool("one"), tool("two", 1)]), ("hello", ())]
    _, evidence, conversations = converse(rendering, turns)
    text = rendering.decode(evidence.token_ids)
    assert (
        "<|im_end|>\n<|im_start|>user\n<tool_response>\none\n</tool_response>\n"
        "<tool_response>\ntwo\n</tool_response><|im_end|>\n<|im_start|>assistant\nh"
    ) in text
    assert conversations.counts.extended == 1


def test_reasoning_that_the_template_drops_is_cut_and_counted(renderings):
    rendering = renderings["qwen3"]
    turns = [("<think>\nhm\n</think>\n\nhello", [USER]), ("hello", ())]
    messages, evidence, conversations = converse(rendering, turns, tools=None)
    assert conversations.counts.written_anew == 1
    assert "<think>" not in rendering.decode(evidence.token_ids)
    assert evidence.num_trainable == len(sampled(rendering, "hello"))
    assert messages[1]["reasoning_content"] == "hm"


def test_reasoning_within_a_tool_round_is_kept(renderings):
    rendering = renderings["qwen3"]
    turns = [(f"<think>\nhm\n</think>\n\n{CHATML_CALL}", [tool("rain")]), ("hello", ())]
    _, evidence, conversations = converse(rendering, turns)
    assert conversations.counts.extended == 1
    assert evidence.num_trainable == sum(len(sampled(rendering, text)) for text, _ in turns)


@pytest.mark.parametrize("name", ["keeps", "qwen3"])
def test_an_empty_reasoning_block_is_no_reason_to_cut(renderings, name):
    """With the switch off the prompt ends in one, which templates leave out of later prompts."""
    rendering = renderings[name]
    turns = [("hello", [USER]), (CHATML_CALL, [tool("rain")]), ("hello", ())]
    _, evidence, conversations = converse(rendering, turns, thinking=False)
    assert conversations.counts.extended == 2
    assert rendering.decode(evidence.token_ids).count("<think>\n\n</think>\n\nh") == 2
    assert evidence.num_trainable == sum(len(sampled(rendering, text)) for text, _ in turns)


@pytest.mark.parametrize("name", TEMPLATES)
def test_a_cut_answer_is_closed_as_the_template_closes_it(renderings, name):
    rendering = renderings[name]
    prompt = rendering.render([USER])
    ids = sampled(rendering, "hello")[:-1]
    after = AnsweredHistory(2, prompt, ids)
    answer = {"role": "assistant", "content": "hello"}
    added = rendering.extend([USER, answer, USER], after=after)
    assert added[0] == rendering._tokenizer.eos_token_id
    whole = rendering.decode([*prompt, *ids, *added])
    assert whole == rendering.decode(rendering.render([USER, answer, USER]))


@pytest.mark.parametrize("name", ["keeps", "qwen3"])
def test_arguments_that_are_no_json_reach_the_plugin_and_stay_sampled(renderings, name):
    broken = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Oslo"}\n</tool_call>'
    turns = [(broken, [tool("not JSON")]), ("hello", ())]
    messages, evidence, _ = converse(renderings[name], turns)
    (call,) = messages[1]["tool_calls"]
    assert call["function"]["name"] == "get_weather"
    with pytest.raises(ValueError):
        json.loads(call["function"]["arguments"])
    assert broken in renderings[name].decode(evidence.token_ids)


@pytest.mark.parametrize("name", ["keeps", "qwen3"])
def test_well_formed_arguments_are_the_text_that_was_sampled(renderings, name):
    parsed = renderings[name].parse(sampled(renderings[name], CHATML_CALL))
    assert parsed.tool_calls[0]["function"]["arguments"] == '{"city":"Oslo"}'
    assert parsed.message["content"] is None


@pytest.mark.parametrize("name", TEMPLATES)
@pytest.mark.parametrize(
    "arguments",
    ['{"a": ' * 3000, "[" * 3000, r'{"a": "\ud83d"}', '{"a": ' + "9" * 5000 + "}"],
)
def test_arguments_that_no_template_can_write_stay_sampled(renderings, name, arguments):
    key = "parameters" if name == "llama" else "arguments"
    call = f'{{"name": "get_weather", "{key}": {arguments}}}'
    text = call if name == "llama" else f"<tool_call>\n{call}\n</tool_call>"
    messages, evidence, _ = converse(renderings[name], [(text, [USER]), ("hello", ())])
    assert text in renderings[name].decode(evidence.token_ids)
    renderings[name].render(messages, tools=[WEATHER_TOOL])


@pytest.mark.parametrize("name", ["keeps", "qwen3"])
@pytest.mark.parametrize("called", ["5", r'"\ud83d"', '""'])
def test_a_call_of_what_is_no_name_stays_in_the_text(renderings, name, called):
    text = f'<tool_call>\n{{"name": {called}, "arguments": {{}}}}\n</tool_call>'
    parsed = renderings[name].parse(sampled(renderings[name], text))
    assert (parsed.content, parsed.tool_calls) == (text, ())


PIECES = (
    *(
        "<tool_call>",
        "</tool_call>",
        '{"name": "f", "arguments": {}}',
        '{"name":"f"',
        '"arguments"',
    ),
    *("<think>", "</think>", "<tool_response>", "hello", " \n", "🌧", "{", "}", "null"),
    '{"name": "f", "parameters": {"a": [1, {"b": null}]}}',
)


def anything(rendering, chance):
    """Ids of an answer that is mostly nonsense."""
    tokenizer = rendering._tokenizer
    if chance.random() < 0.5:
        ids = [chance.randrange(len(tokenizer)) for _ in range(chance.randint(0, 12))]
    else:
        text = "".join(chance.choice(PIECES) for _ in range(chance.randint(0, 7)))
        ids = tokenizer.encode(text, add_special_tokens=False)
    end = [min(rendering.stop_token_ids)] if chance.random() < 0.8 else []
    return [token for token in ids if token not in rendering.stop_token_ids] + end


@pytest.mark.parametrize("name", TEMPLATES)
@pytest.mark.parametrize("seed", range(25))
def test_whatever_was_sampled_the_next_prompt_begins_with_it(renderings, name, seed):
    rendering, chance = renderings[name], random.Random(seed)
    conversations, messages, before = Conversations(rendering), [USER], ()
    for number in range(4):
        prompt = conversations.prompt(messages, tools=[WEATHER_TOOL])
        assert number == 0 or prompt.follows is not None
        if not prompt.is_written_anew:
            assert prompt.token_ids[: len(before)] == before
        ids = anything(rendering, chance)
        message = rendering.parse(ids, prompt_token_ids=prompt.token_ids).message
        before = (*prompt.token_ids, *ids)
        conversations.remember(
            str(number), prompt=prompt, message=message, token_ids=ids, logprobs=[0.0] * len(ids)
        )
        results = [tool("ok") for _ in message.get("tool_calls", ())]
        messages = [*messages, message, *(results or [USER])]
    if name == "llama":
        assert conversations.counts.written_anew == 0


def test_the_end_tokens_of_folder_and_tokenizer_all_count(tmp_path):
    """Field case 1.5: one completion ends on 9, one on 7, one is cut; padding shares an id."""
    folder = write_folder(tmp_path / "m", KEEPS_REASONING, model_type="qwen2")
    tokenizer = open_rendering(folder)._tokenizer
    end, other = tokenizer.eos_token_id, tokenizer.convert_tokens_to_ids("<|im_start|>")
    folder = write_folder(
        tmp_path / "m", KEEPS_REASONING, model_type="qwen2", end_token_ids=[end, other]
    )
    rendering = open_rendering(folder)
    assert rendering.stop_token_ids == {end, other}
    completions = [[5, other], [5, end], [5, 6]]
    was_cut = [ids[-1] not in rendering.stop_token_ids for ids in completions]
    assert sum(was_cut) / len(was_cut) == 1 / 3
    assert [rendering.parse(ids).content for ids in completions[:2]] == [rendering.decode([5])] * 2


def test_the_token_that_the_template_closes_an_answer_with_ends_it(tmp_path):
    folder = write_folder(tmp_path / "m", KEEPS_REASONING, model_type="qwen2")
    config = json.loads((folder / "tokenizer_config.json").read_text("utf-8"))
    config["eos_token"] = "<|endoftext|>"
    (folder / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")
    rendering = open_rendering(folder)
    ids = rendering._tokenizer.convert_tokens_to_ids(["<|endoftext|>", "<|im_end|>"])
    assert rendering.stop_token_ids == set(ids)


def test_an_emoji_over_four_tokens_is_streamed_whole(renderings):
    """Field case 1.6."""
    rendering = renderings["keeps"]
    ids = rendering._tokenizer.encode("a🌧b", add_special_tokens=False)
    assert len(ids) == 6
    stream = TextStream(rendering.decode)
    assert [stream.push([token]) for token in ids] == ["a", "", "", "", "🌧", "b"]
    assert rendering.parse(ids).content == "a🌧b"


def test_a_prompt_that_opens_reasoning_is_told_by_its_ids(tmp_path):
    template = KEEPS_REASONING.replace(
        "{%- if enable_thinking is defined and enable_thinking is false %}",
        "{{- '<think>\\n' }}{%- if false %}",
    )
    rendering = open_rendering(write_folder(tmp_path / "m", template, model_type="qwen2"))
    prompt = rendering.render([USER])
    ids = sampled(rendering, "hm\n</think>\n\nhello")
    assert rendering.parse(ids, prompt_token_ids=prompt).message == {
        "role": "assistant",
        "content": "hello",
        "reasoning_content": "hm",
    }


def test_a_switch_that_a_template_lacks_is_an_error(renderings):
    with pytest.raises(ConfigurationError, match="no such switch"):
        renderings["llama"].render([USER], thinking=True)
    assert renderings["llama"].render([USER], thinking=False)
    on, off = (renderings["qwen3"].render([USER], thinking=switch) for switch in (True, False))
    assert on != off


def test_messages_that_a_template_refuses_are_an_error_with_its_words(renderings):
    two = {"role": "assistant", "content": None, "tool_calls": [tool_call(), tool_call(id="b")]}
    with pytest.raises(ConfigurationError, match="one tool call at a time"):
        renderings["llama"].render([USER, two, tool("rain")])


def test_a_folder_without_a_tokenizer_or_template_is_refused(tmp_path):
    with pytest.raises(ConfigurationError, match="there is no folder"):
        open_rendering(tmp_path / "none")
    with pytest.raises(ConfigurationError, match="no tokenizer_config"):
        open_rendering(tmp_path)
    folder = write_folder(tmp_path / "m", KEEPS_REASONING, model_type="qwen2")
    (folder / "chat_template.jinja").unlink(missing_ok=True)
    config = json.loads((folder / "tokenizer_config.json").read_text("utf-8"))
    config.pop("chat_template", None)
    (folder / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")
    with pytest.raises(ConfigurationError, match="no chat template"):
        open_rendering(folder)
