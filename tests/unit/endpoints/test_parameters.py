"""Sampling parameters on the wire."""

import json
import re
from pathlib import Path

import pytest

from arkdev.endpoints.parameters import FAMILIES, WIRE_RULES, write_sampling
from arkdev.errors import ConfigurationError

DOCUMENT = Path(__file__).parents[3] / "docs" / "sampling-parameters.md"


@pytest.mark.parametrize("family", FAMILIES)
def test_max_new_tokens_is_max_tokens_on_every_wire(family):
    assert write_sampling({"max_new_tokens": 64}, family=family) == {"max_tokens": 64}


@pytest.mark.parametrize("family", FAMILIES)
def test_unset_and_off_are_not_sent_but_a_set_default_is(family):
    sampling = {"temperature": None, "top_k": 0, "n": 1, "top_p": 1.0}
    assert write_sampling(sampling, family=family) == {"top_p": 1.0}


def test_top_k_is_sent_where_the_family_has_it_and_refused_elsewhere():
    assert write_sampling({"top_k": 20}, family="generic") == {"top_k": 20}
    with pytest.raises(ConfigurationError, match="top_k = 20") as caught:
        write_sampling({"top_k": 20}, family="ark")
    assert "top_k = 0" in caught.value.hint


def test_thinking_takes_each_familys_form():
    thinking = {"type": "disabled"}
    assert write_sampling({"thinking": thinking}, family="ark") == {"thinking": thinking}
    assert write_sampling({"thinking": thinking}, family="generic") == {
        "chat_template_kwargs": {"enable_thinking": False}
    }
    assert write_sampling({"thinking": {"type": "auto"}}, family="generic") == {}


@pytest.mark.parametrize("family", ["ark", "generic"])
@pytest.mark.parametrize("value", [{"type": "custom"}, {}, "enabled"])
def test_a_thinking_value_without_a_wire_form_is_refused_by_name(family, value):
    with pytest.raises(ConfigurationError, match="thinking"):
        write_sampling({"thinking": value}, family=family)


def test_a_seed_that_the_endpoint_cannot_take_is_refused():
    assert write_sampling({"seed": 7}, family="generic") == {"seed": 7}
    with pytest.raises(ConfigurationError, match="seed = 7"):
        write_sampling({"seed": 7}, family="ark")


def test_several_answers_per_call_are_refused():
    with pytest.raises(ConfigurationError, match="n = 4"):
        write_sampling({"n": 4}, family="scripted")


def test_an_unknown_name_lists_the_known_ones():
    with pytest.raises(ConfigurationError, match="max_tokenz") as caught:
        write_sampling({"max_tokenz": 1}, family="generic")
    assert "max_new_tokens" in caught.value.hint


def _cell(rule):
    text = f"`{rule.wire_name}`" if rule.wire_name else "refused"
    if rule.left_out_at:
        text += f", left out at `{json.dumps(rule.left_out_at[0])}`"
    return text


def test_the_document_shows_the_same_table():
    rows = re.findall(
        r"^\| `(\w+)` \| (.*) \|$", DOCUMENT.read_text(encoding="utf-8"), re.MULTILINE
    )
    shown = {name: cells.split(" | ") for name, cells in rows}
    assert shown == {
        name: [_cell(WIRE_RULES[family][name]) for family in FAMILIES]
        for name in WIRE_RULES["scripted"]
    }
