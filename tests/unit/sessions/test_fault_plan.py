"""Where faults strike: a function of the seed and the place, in the shares that were asked for."""

import json
from collections import Counter
from hashlib import blake2b

from arkdev.runs.records import FaultSide
from arkdev.sessions.faults.grammar import parse_faults
from arkdev.sessions.faults.plan import FaultPlace, FaultPlan, number_drawn


def places(count):
    return [FaultPlace(FaultSide.MODEL, f"{i}.0", attempt=1, call="1") for i in range(count)]


def test_the_number_is_the_documented_digest():
    place = FaultPlace(FaultSide.GRADER, "7.0+7.1 天气", attempt=2)
    text = '[3, "grader", "7.0+7.1 \\u5929\\u6c14", 2, "", 1]'
    assert json.loads(text) == [3, "grader", "7.0+7.1 天气", 2, "", 1]
    digest = blake2b(text.encode(), digest_size=8).digest()
    assert number_drawn(3, place) == int.from_bytes(digest, "big")


def test_each_fault_strikes_in_its_share_and_at_most_one_at_a_place():
    plan = FaultPlan(parse_faults("model.429=10%,model.500=2%,model.slow=5%:1s"), seed=1)
    strikes = [plan.strike(place) for place in places(20_000)]
    counts = Counter(strike.fault.kind for strike in strikes if strike)
    assert abs(counts["429"] - 2000) < 200
    assert abs(counts["500"] - 400) < 100
    assert abs(counts["slow"] - 1000) < 150


def test_every_part_of_a_place_and_the_seed_give_another_draw():
    base = FaultPlace(FaultSide.MODEL, "0.0", attempt=1, call="1", send=1)
    others = [
        FaultPlace(FaultSide.TOOL, "0.0", attempt=1, call="1", send=1),
        FaultPlace(FaultSide.MODEL, "0.1", attempt=1, call="1", send=1),
        FaultPlace(FaultSide.MODEL, "0.0", attempt=2, call="1", send=1),
        FaultPlace(FaultSide.MODEL, "0.0", attempt=1, call="2", send=1),
        FaultPlace(FaultSide.MODEL, "0.0", attempt=1, call="1", send=2),
    ]
    numbers = {number_drawn(0, base), number_drawn(1, base), *(number_drawn(0, o) for o in others)}
    assert len(numbers) == 7


def test_a_hundred_percent_strikes_always_and_other_sides_are_left_alone():
    plan = FaultPlan(parse_faults("model.raise=100%"), seed=0)
    assert all(plan.strike(place) for place in places(500))
    assert plan.strike(FaultPlace(FaultSide.TOOL, "0.0", attempt=1)) is None
    assert plan.has(FaultSide.MODEL) and not plan.has(FaultSide.TOOL, FaultSide.GRADER)
