"""Graders of tool use that hold."""

import json
import re

from arkdev import group_grader, single_grader
from plugins.reply import final_text


def answered_calls(messages):
    """Pairs of a call of the model and the text of the result with its id, in order."""
    calls = {}
    for message in messages:
        if message.role == "assistant":
            calls.update({call.id: call.function for call in message.tool_calls or ()})
        elif message.role == "tool" and (message.get("tool_call_id") in calls):
            yield calls.pop(message["tool_call_id"]), message.content


@single_grader
def balance_by_call_id(context, sample, trajectory):
    """The reply states one amount: the reference, which the tool's answered call also gave."""
    amounts = re.findall(r"[0-9][0-9,]*\.[0-9]+|[0-9][0-9,]*", final_text(trajectory))
    if amounts != [sample.extra["target"]]:
        return 0.0
    for function, content in answered_calls(trajectory.messages):
        result = json.loads(content)
        if function.name == "get_balance" and f"{result['cents'] / 100:.2f}" == amounts[0]:
            return 1.0
    return 0.0


@group_grader
async def booking_by_call(context, sample, trajectories):
    """The call was made with the right arguments, and the reply gives the one code it returned."""
    rewards = []
    for trajectory in trajectories:
        codes = re.findall(r"\b[A-Z]{3}-[0-9]{4}\b", final_text(trajectory))
        booked = [
            json.loads(content)["code"]
            for function, content in answered_calls(trajectory.messages)
            if function.name == "book_table"
            and json.loads(function.arguments) == sample.extra["arguments"]
        ]
        rewards.append(float(codes == booked == [sample.extra["expected"]]))
    return rewards
