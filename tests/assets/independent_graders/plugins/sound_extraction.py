"""Graders of extraction to JSON that hold."""

import json

import jsonschema

from arkdev import GroupGraderResult, PluginStatus, group_grader, single_grader
from plugins.reply import final_text

SCHEMA = jsonschema.Draft202012Validator(
    {
        "type": "object",
        "properties": {
            "vendor": {"type": "string", "minLength": 1},
            "date": {"type": "string", "pattern": "^[0-9]{4}-[0-9]{2}-[0-9]{2}$"},
            "total": {"type": "number"},
            "currency": {"enum": ["EUR", "USD", "GBP", "CNY", "JPY"]},
        },
        "required": ["vendor", "date", "total", "currency"],
        "additionalProperties": False,
    }
)


def valid_object(text):
    """The object that the text is, when it keeps the schema, else None."""
    text = text.strip().removeprefix("```json").removesuffix("```")
    try:
        found = json.loads(text)
    except ValueError:
        return None
    return found if SCHEMA.is_valid(found) else None


@group_grader
async def same_object(context, sample, trajectories):
    """All fields are right, or nothing is."""
    expected = sample.extra.get("expected")
    if not isinstance(expected, dict):
        return GroupGraderResult(status=PluginStatus.DISCARD, error="no extra.expected")
    return GroupGraderResult(
        rewards=[float(valid_object(final_text(t)) == expected) for t in trajectories]
    )


@single_grader
def right_fields(context, sample, trajectory):
    """The share of right fields of an object that keeps the schema; anything else gets nothing."""
    found, expected = valid_object(final_text(trajectory)), sample.extra["expected"]
    if found is None:
        return 0.0
    return sum(found[key] == value for key, value in expected.items()) / len(expected)
