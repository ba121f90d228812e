"""Books tables by a tool, so that a recorded run has calls and results."""

import json

from arkdev import rollout

CODES = {
    "Osteria Lupo": "LUP-4471",
    "Green Lotus": "GLO-0982",
    "Chez Albert": "ALB-3310",
    "Tapas 21": "TAP-7726",
    "Hanok": "HAN-5104",
    "Fjord": "FJO-6639",
}


def book_table(arguments):
    order = json.loads(arguments)
    if order["restaurant"] not in CODES:
        return json.dumps({"status": "error", "code": None})
    return json.dumps({"status": "confirmed", "code": CODES[order["restaurant"]]})


@rollout
async def booking(context, proxy, sample):
    client = proxy.async_rollout_client()
    request = sample.model_dump()
    messages, tools = request["messages"], request["tools"]
    for _ in range(4):
        completion = await client.chat.completions.create(
            model="doubao-seed-2-0-mini-260428", messages=messages, tools=tools
        )
        message = completion.choices[0].message
        messages.append(message.model_dump())
        if not message.tool_calls:
            return
        for call in message.tool_calls:
            messages.append(
                {
                    "role": "tool",
                    "tool_call_id": call.id,
                    "content": book_table(call.function.arguments),
                }
            )
