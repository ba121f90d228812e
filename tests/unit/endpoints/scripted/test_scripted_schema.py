"""Arguments are valid for any usual JSON Schema; jsonschema judges."""

from __future__ import annotations

import json
from random import Random
from typing import Any

import jsonschema
import pytest

from arkdev.endpoints.scripted.evidence import Evidence
from arkdev.endpoints.scripted.generation import value_for
from arkdev.endpoints.scripted.policy import answer
from arkdev.endpoints.scripted.schema import SchemaError, checked, fits

QUESTIONS = (
    "北京和上海今天多少摄氏度？",
    "What is the weather in Paris and Rome for 3 days?",
    "12 + 7",
    "",
    "send 'hi' to a@b.co on 2025-03-04",
)
TREE = {
    "type": "object",
    "properties": {"next": {"$ref": "#/$defs/tree"}, "v": {"type": "integer"}},
    "required": ["v"],
}


def some_schema(random: Random, depth: int) -> dict[str, Any]:
    low = random.randint(0, 9)
    if depth == 3:
        return {"type": random.choice(["string", "integer", "boolean"])}
    inner = some_schema(random, depth + 1)
    return random.choice(
        [
            {"type": "string", "minLength": low, "maxLength": low + 12},
            {"type": "string", "description": "a place, e.g. Paris, Rome"},
            {"type": "string", "pattern": random.choice([r"^\d{4}-\d{2}$", r"^(n|s)[A-Z]{2}$"])},
            {"type": "string", "format": random.choice(["date", "email", "uuid"])},
            {"type": "integer", "minimum": low, "maximum": low + 5, "multipleOf": 5},
            {"type": "number", "exclusiveMinimum": low, "exclusiveMaximum": low + 0.5},
            {"enum": random.sample(["a", "Paris", "北京", 3, True, None], 3)},
            {"type": "array", "items": inner, "minItems": low % 3, "maxItems": 4},
            {"type": "array", "items": {"type": "string"}, "uniqueItems": True, "minItems": 3},
            {"anyOf": [{"type": "null"}, inner]},
            {"allOf": [{"type": "string", "minLength": 3}, {"maxLength": 8}]},
            {"oneOf": [{"type": "string"}, some_object(random, depth + 1)]},
            {"const": random.choice([1, "x", None])},
            {"$ref": "#/$defs/tree"},
            {"type": ["null", "string"]},
            some_object(random, depth + 1),
        ]
    )


def some_object(random: Random, depth: int = 0) -> dict[str, Any]:
    names = random.sample(["city", "query", "count", "id", "unit", "flag"], random.randint(0, 4))
    properties = {name: some_schema(random, depth) for name in names}
    required = [name for name in names if random.random() < 0.6]
    return {
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": False,
    }


@pytest.mark.parametrize("skill", [1.0, 0.0])
def test_arguments_are_valid_whatever_the_schema(skill: float) -> None:
    for index in range(100):
        random = Random(index)
        schema = {**some_object(random), "$defs": {"tree": TREE}}
        body = {
            "messages": [{"role": "user", "content": random.choice(QUESTIONS)}],
            "tools": [{"type": "function", "function": {"name": "f", "parameters": schema}}],
            "tool_choice": "required",
        }
        choice = answer(body, seed=index, skill=skill)["choices"][0]
        for call in choice["message"]["tool_calls"]:
            arguments = json.loads(call["function"]["arguments"])
            jsonschema.validate(arguments, schema)
            assert fits(schema, arguments, schema)


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"type": "integer"}, True),
        ({"enum": [1]}, True),
        ({"type": "string", "pattern": "^a"}, "b"),
        ({"oneOf": [{"type": "string"}, {"minLength": 1}]}, "a"),
        ({"type": "object", "additionalProperties": False}, {"a": 1}),
        ({"type": "array", "items": {"type": "string"}, "uniqueItems": True}, ["a", "a"]),
    ],
)
def test_a_value_that_breaks_the_schema_does_not_fit(schema: dict[str, Any], value: object) -> None:
    assert not fits(schema, value, schema)


@pytest.mark.parametrize(
    ("schema", "text", "value"),
    [
        ({"type": "string"}, "What is it like in New York today?", "New York"),
        ({"type": "string"}, "呼和浩特今天热不热？", "呼和浩特"),
        ({"type": "string"}, "weather in tokyo please", "tokyo"),
        ({"type": "number"}, "convert 12.5 USD", 12.5),
        ({"type": "integer", "maximum": 10}, "give me 50", 10),
        ({"enum": ["celsius", "fahrenheit"]}, "上海多少华氏度", "fahrenheit"),
        ({"type": "string", "format": "date"}, "on 2025-03-04 please", "2025-03-04"),
        ({"type": "array", "items": {"type": "string"}}, "北京和上海", ["北京", "上海"]),
        ({"type": "string", "description": "城市，例如大理、丽江"}, "丽江冷吗", "丽江"),
    ],
)
def test_a_value_is_taken_from_the_text(schema: dict[str, Any], text: str, value: object) -> None:
    assert value_for(schema, Evidence(text), root=schema) == value


def test_a_malformed_schema_is_named_with_its_place() -> None:
    schema = {"type": "object", "properties": {"city": {"type": "string", "required": True}}}
    with pytest.raises(SchemaError, match=r"tool\.properties\.city: required is True"):
        checked(schema, where="tool")


def test_schemas_that_contain_themselves_end() -> None:
    endless = {
        "properties": {"next": {"$ref": "#"}},
        "required": ["next"],
        "allOf": [{"$ref": "#"}],
    }
    assert "next" in value_for(endless, Evidence("x"), root=endless)
