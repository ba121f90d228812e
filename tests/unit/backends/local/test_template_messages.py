"""Messages as templates want them."""

import pytest

from arkdev.backends.local.template_messages import template_messages
from arkdev.errors import ConfigurationError
from tests.running import tool_call


def test_what_says_nothing_is_left_out_and_text_is_text():
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    assert template_messages(
        [
            {"role": "user", "content": parts, "name": None},
            {"role": "assistant", "content": None, "tool_calls": [], "refusal": None},
        ]
    ) == [{"role": "user", "content": "ab"}, {"role": "assistant", "content": ""}]


@pytest.mark.parametrize(
    ("arguments", "kept", "blanked"),
    [
        ('{"a": 1}', {"a": 1}, {"a": 1}),
        ('{"a": 1', '{"a": 1', {}),
        ("[1]", "[1]", {}),
        ("", "", {}),
        (r'{"a": "\u00e9"}', {"a": "é"}, {"a": "é"}),
        (r'{"a": "\ud83d"}', r'{"a": "\ud83d"}', {}),  # half a character
        ('{"a": ' * 50_000, '{"a": ' * 50_000, {}),
    ],
)
def test_arguments_are_objects_where_they_are_and_stay_what_they_are(arguments, kept, blanked):
    message = {"role": "assistant", "tool_calls": [tool_call("f", arguments)]}
    for blank_broken, expected in ((False, kept), (True, blanked)):
        (plain,) = template_messages([message], blank_broken=blank_broken)
        assert plain["tool_calls"][0]["function"]["arguments"] == expected
    assert message["tool_calls"][0]["function"]["arguments"] == arguments


def test_an_image_is_refused_by_its_type():
    with pytest.raises(ConfigurationError, match="image_url"):
        template_messages([{"role": "user", "content": [{"type": "image_url"}]}])


@pytest.mark.parametrize(
    "message",
    [
        {"role": "user", "content": [1]},
        {"role": "user", "content": {"text": "a"}},
        {"role": "user", "content": [{"type": "text"}]},
        {"role": "assistant", "tool_calls": [{"id": "a"}]},
        {"role": "assistant", "tool_calls": [{"id": "a", "function": {"arguments": "{}"}}]},
        {"role": "assistant", "tool_calls": [tool_call("f", [1])]},
        {"role": "assistant", "tool_calls": [tool_call("f", 5)]},
    ],
)
def test_what_is_no_message_is_refused_with_a_hint(message):
    with pytest.raises(ConfigurationError) as caught:
        template_messages([message])
    assert caught.value.hint
