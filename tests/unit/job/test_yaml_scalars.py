"""What an author writes in job.yaml is what arkdev has: YAML 1.2, and text where text is meant."""

from __future__ import annotations

import string

from hypothesis import given, settings
from hypothesis import strategies as st

from arkdev.job.hyperparameters import MAX_WHOLE_NUMBER, check_value
from arkdev.job.yaml_tree import PlainScalar, parse_yaml

REPEATABLE = settings(max_examples=60, derandomize=True, database=None, deadline=None)
PLAIN = string.ascii_letters + string.digits + "._+-:/~%中文é"
CONFUSING = st.sampled_from(
    [
        *("no", "on", "yes", "off", "y", "NO", "True", "012345", "0123", "12:30", "1:20:30"),
        *("2024-01-01", "1e3", "0x1F", "0o17", "1_000", ".5", "1.10", "250115", "+1", "-0"),
        *("1e-5", ".inf"),
    ]
)
PLAIN_WORDS = st.text(PLAIN, min_size=1, max_size=12).filter(
    lambda text: text[0] not in "-:~%" and text[-1] != ":" and text.lower() != "null"
)
ANY_TEXT = st.text(
    st.characters(exclude_categories=["Cs", "Cc", "Zl", "Zp"], exclude_characters="\ufeff\x85"),
    max_size=30,
)


@given(st.one_of(CONFUSING, PLAIN_WORDS))
@REPEATABLE
def test_an_unquoted_scalar_is_its_own_text(text: str) -> None:
    tree = parse_yaml(f"envs: {{A: 1}}\nversion: {text}  # a comment\n", source="job.yaml")
    assert tree.problems == []
    assert tree.value["version"] == text
    assert isinstance(tree.value["version"], str)
    assert tree.lines[("version",)] == 2


@given(ANY_TEXT)
@REPEATABLE
def test_a_quoted_scalar_is_text_and_is_never_typed(text: str) -> None:
    quoted = "'" + text.replace("'", "''") + "'"
    tree = parse_yaml(f"name: {quoted}\n", source="job.yaml")
    assert tree.problems == []
    assert tree.value["name"] == text
    assert not isinstance(tree.value["name"], PlainScalar)


@given(st.floats(min_value=1e-300, max_value=1e300))
@REPEATABLE
def test_a_number_is_the_same_bare_and_quoted(number: float) -> None:
    bare = PlainScalar(repr(number)).as_typed()
    assert check_value("lr", bare) == check_value("lr", repr(number)) == number


@given(st.integers(min_value=1, max_value=MAX_WHOLE_NUMBER))
@REPEATABLE
def test_a_whole_number_stays_whole(number: int) -> None:
    for written in (PlainScalar(number).as_typed(), str(number), float(number)):
        value = check_value("num_steps", written)
        assert value == number and type(value) is int
