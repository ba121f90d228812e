"""What `--inject` may say, and how it is told what it may not."""

from fractions import Fraction

import pytest

from arkdev.errors import UsageError
from arkdev.runs.records import FaultSide
from arkdev.sessions.faults.grammar import described, parse_faults


def read(text):
    return [(f.side.value, f.kind, float(f.rate), f.duration_s) for f in parse_faults(text)]


def test_a_side_a_kind_a_rate_and_a_duration_are_read():
    assert read("model.429=10%:2s, tool.slow=0.5%:50ms ,rollout.raise=100%,model.503=1%") == [
        ("model", "429", 0.1, 2.0),
        ("tool", "slow", 0.005, 0.05),
        ("rollout", "raise", 1.0, None),
        ("model", "503", 0.01, None),
    ]


def test_a_kind_without_a_side_strikes_where_it_makes_sense_but_never_a_rollout_s_call():
    assert [side for side, *_ in read("timeout=1%")] == ["model", "tool", "grader"]
    assert [side for side, *_ in read("garbage=1%")] == ["model", "tool"]
    assert [side for side, *_ in read("500=1%")] == ["model", "tool"]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "is not of the form"),
        ("429=1%,", "is not of the form"),
        ("429=10", "is not of the form"),
        ("429=٣%", "is not of the form"),
        ("timeot=5%", "did you mean 'timeout'?"),
        ("cut-json=5%", "did you mean 'cut_json'?"),
        ("xyzzy=5%", "a status of 400 to 599"),
        ("200=5%", "400 to 599"),
        ("tols.429=5%", "did you mean 'tool'?"),
        ("grader.429=5%", "the call of a grader cannot answer 429"),
        ("rollout.empty=5%", "the call of a rollout cannot answer empty"),
        ("raise=0%", "has no effect"),
        ("raise=100.5%", "more often than always"),
        ("slow=5%", "says not how slow"),
        ("slow=5%:0ms", "a duration of nothing"),
        ("raise=5%:1s", "raise takes no duration"),
        ("429=5%:500ms", "not in whole seconds"),
        ("429=5%,429=1%", "429=5% and 429=1% both say"),
        ("raise=5%,grader.raise=1%", "strikes on the side grader"),
        ("model.429=60%,model.raise=40.5%", "add up to 100.5 %: model.429=60%, model.raise=40.5%"),
    ],
)
def test_what_cannot_be_injected_is_told_with_the_item(text, told):
    with pytest.raises(UsageError) as raised:
        parse_faults(text)
    assert told in raised.value.message
    assert raised.value.hint


def test_rates_that_add_up_to_exactly_all_are_right():
    faults = parse_faults("model.429=33.3%,model.500=33.4%,model.raise=33.3%")
    assert sum((fault.rate for fault in faults), Fraction()) == 1


def test_the_description_names_every_side_once():
    text = described(parse_faults("429=10%:2s,grader.raise=2.5%"))
    assert text == "model and tool: 429 10% (2 s); grader: raise 2.5%"
    assert {fault.side for fault in parse_faults("429=1%")} == {FaultSide.MODEL, FaultSide.TOOL}
