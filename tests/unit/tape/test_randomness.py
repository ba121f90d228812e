"""Each attempt draws from generators of its own, which a seed makes again."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

from arkdev.tape.callers import Workspace
from arkdev.tape.randomness import Generators, random_drawn_from
from tests.unit.tape.attempts import module_at

SOURCE = """
import os, random, secrets, uuid
from random import choice, shuffle
import numpy
from numpy.random import rand

def draw():
    items = list(range(20))
    shuffle(items)
    return [
        choice("abcdefgh"), random.random(), random.randint(0, 10**9), items,
        random.Random().random(), random.SystemRandom().random(),
        secrets.token_hex(8), secrets.choice(range(10**9)), secrets.randbelow(10**9),
        secrets.randbits(64), secrets.token_urlsafe(8),
        os.urandom(8), str(uuid.uuid4()), float(rand()), float(numpy.random.random()),
        float(numpy.random.default_rng().random()),
    ]
def fixed():
    return [random.Random(3).random(), float(numpy.random.default_rng(3).random())]
def seeded():
    random.seed(5)
    return random.random()
def library():
    return random.Random
"""


def drawn(tmp_path: Path, *place: str | int) -> list[Any]:
    generators = Generators(7, *place)
    with random_drawn_from(lambda: generators, Workspace(tmp_path)):
        code = module_at(tmp_path / "plugin.py", SOURCE)
        return [*code["draw"](), *code["fixed"](), code["seeded"]()]


def test_the_same_place_draws_the_same_numbers(tmp_path: Path) -> None:
    assert drawn(tmp_path, "0.0", 0) == drawn(tmp_path, "0.0", 0)


def test_attempts_draw_different_numbers_but_where_the_code_fixes_the_seed(tmp_path: Path) -> None:
    first, second = drawn(tmp_path, "0.0", 0), drawn(tmp_path, "0.0", 1)
    same = [a == b for a, b in zip(first, second, strict=True)]
    assert same == [False] * 16 + [True] * 3
    assert first[16] == random.Random(3).random()
    assert first[18] == random.Random(5).random()


def test_numbers_of_others_are_undisturbed(tmp_path: Path) -> None:
    random.seed(1)
    expected = [random.random(), random.random()]
    random.seed(1)
    generators = Generators(7)
    with random_drawn_from(lambda: generators, Workspace(tmp_path / "ws")):
        seen = [random.random()]
        module_at(tmp_path / "ws" / "plugin.py", SOURCE)["draw"]()
        seen.append(random.random())
    assert seen == expected
    assert random.random.__self__ is random._inst  # type: ignore[attr-defined]
