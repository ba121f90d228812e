"""A rollout that asks a tool for the temperature."""

import json

from arkdev import rollout

TEMPERATURES = {"Oslo": 4, "Cairo": 31, "Lima": 19, "Quito": 14, "Perth": 23, "Kyoto": 17}
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "get_temperature",
            "description": "The temperature of a city in degrees.",
            "parameters": {
                "type": "object",
                "properties": {"city": {"type": "string", "description": "name of the city"}},
                "required": ["city"],
            },
        },
    }
]


@rollout
def ask(context, proxy, sample):
    client = proxy.rollout_client()
    messages = [message.model_dump(exclude_none=True) for message in sample.messages]
    for _ in range(4):
        completion = client.chat.completions.create(model="m", messages=messages, tools=TOOLS)
        message = completion.choices[0].message
        messages.append(message.model_dump(exclude_none=True))
        if not message.tool_calls:
            return
        for call in message.tool_calls:
            city = json.loads(call.function.arguments).get("city")
            result = {"city": city, "temperature": TEMPERATURES.get(city)}
            messages.append(
                {"role": "tool", "tool_call_id": call.id, "content": json.dumps(result)}
            )
