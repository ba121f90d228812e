"""The built-in rollout of a job that names none: one model call (CT-11, PIPE-08)."""

from __future__ import annotations

from arkdev.plugin.decorators import single_rollout
from arkdev.plugin.proxy import RolloutInferenceProxy
from arkdev.types import ChatCompletionSample, PluginContext


@single_rollout(name="single_turn", description="one model call with the sample's messages")
async def single_turn(
    context: PluginContext, proxy: RolloutInferenceProxy, sample: ChatCompletionSample
) -> None:
    """Send the sample's messages and tools, and end."""
    request = sample.model_dump(include={"messages", "tools"})
    client = proxy.async_rollout_client()
    await client.chat.completions.create(
        model="", messages=request["messages"], tools=request["tools"]
    )
