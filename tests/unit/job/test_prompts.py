"""When two prompts are the same, how long they are, and what is found of it in millions."""

import random

from arkdev.job.duplicates import PromptIndex
from arkdev.job.length_distribution import LengthDistribution
from arkdev.job.prompts import json_hash, prompt_hash, prompt_size

USER = {"role": "user", "content": "hello"}
AS_PART = {"role": "user", "content": [{"type": "text", "text": "hello"}], "name": None}


def test_the_form_of_a_prompt_does_not_matter():
    same = [
        {"messages": [USER]},
        {"messages": [AS_PART], "tools": [], "extra": {"answer": 1}, "temperature": 0.5},
        {"messages": [{"content": "hello", "role": "user"}], "tools": None},
    ]
    assert len({prompt_hash(line) for line in same}) == 1
    others = [
        {"messages": [{**USER, "content": "hello "}]},
        {"messages": [{**USER, "role": "system"}]},
        {"messages": [USER, USER]},
        {"messages": [USER], "tools": [{"function": {"name": "f"}}]},
    ]
    assert len({prompt_hash(line) for line in [same[0], *others]}) == 5


def test_a_hash_is_the_same_in_every_process():
    assert prompt_hash({"messages": [USER]}) == 17945357707547498425
    assert json_hash({"b": [1, None], "a": "北京"}) == json_hash({"a": "北京", "b": [1, None]})


def test_the_size_of_a_prompt_counts_texts_calls_and_tools_but_no_pictures():
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 9999}}
    call = {"function": {"name": "f", "arguments": "{}"}}
    line = {
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "a" * 40}, picture]},
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "content": "北京" * 15},
        ]
    }
    size = prompt_size(line)
    assert size.num_characters == 40 + 3 + 30
    assert size.num_tokens == round(43 / 4 + 30 / 1.5 + 3 * 4)
    assert prompt_size({**line, "tools": [{"a": "b"}]}).num_characters == 73 + len('[{"a":"b"}]')


def index_of(*pairs) -> PromptIndex:
    index = PromptIndex()
    for prompt, extra in pairs:
        index.add(prompt << 48, extra=extra)
    return index


def test_repeated_conflicting_and_leaked_prompts_are_found():
    found = index_of((7, 1), (8, 1), (7, 1), (9, 1), (8, 2), (7, 1), (300, 5)).find(
        size_of_first_set=4
    )
    assert (found.num_repeated, found.num_conflicting, found.num_leaked) == (3, 1, 2)
    assert [(same.samples, same.differs_in_extra) for same in found.shown] == [
        ((0, 2, 5), False),
        ((1, 4), True),
    ]
    assert found.leaked == ((4, 1), (5, 0))


def test_a_prompt_twice_in_validation_alone_is_no_leak():
    found = index_of((1, 1), (2, 1), (2, 1)).find(size_of_first_set=1)
    assert (found.num_repeated, found.num_leaked) == (1, 0)


def test_ten_are_shown_however_many_there_are():
    found = index_of(*((n % 400, 0) for n in range(2000))).find(size_of_first_set=2000)
    assert found.num_repeated == 1600
    assert [same.count for same in found.shown] == [5] * 10
    assert index_of(*[(1, 0)] * 500).find(size_of_first_set=500).shown[0].count == 500


def test_lengths_are_summed_up_exactly_below_a_thousand_and_closely_above():
    values = [random.Random(4).randrange(1, 900) for _ in range(501)]
    distribution = LengthDistribution()
    for value in values:
        distribution.add(value)
    summary, ordered = distribution.summary(), sorted(values)
    assert summary is not None
    assert (summary.count, summary.total, summary.min, summary.max) == (
        *(501, sum(values), ordered[0], ordered[-1]),
    )
    assert (summary.p50, summary.p90, summary.p99) == (ordered[250], ordered[450], ordered[495])
    big = LengthDistribution()
    for value in values:
        big.add(value * 7919)
    found = big.summary()
    assert found is not None
    assert 0.99 < found.p50 / (ordered[250] * 7919) <= 1
    assert found.max == ordered[-1] * 7919
    assert len(big._counts) <= 900 * 4
    assert LengthDistribution().summary() is None
