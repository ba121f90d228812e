"""搜索问答的 rollout（草稿）：由 Arkitect 的 Context 驱动。

工具来自 mcp_config.json 里的 MCP 服务器。任务默认不用它。
优点是换工具只要改 mcp_config.json；缺点是工具的定义由服务器决定，写坏的参数也不扣分，
而且每条轨迹启动一个自己的服务器，慢得多。
需要可选的 arkitect，安装方法见 requirements.txt。
"""

import logging
from pathlib import Path

from ark_sdk.core.plugin.rollout.proxy import wrap_async_client_inplace
from ark_sdk.resources.pipeline_plugin import rollout
from ark_sdk.types.pipeline_plugin import PluginInstance, Runtime
from ark_sdk.types.pipeline_plugin.pipeline_plugin import PluginContext
from ark_sdk.types.pipeline_plugin.rollout import (
    ChatCompletionSample,
    RolloutInferenceProxy,
    RolloutResult,
)

from plugins.coze_monitor import coze_monitor

try:
    from arkitect.core.component.context.context import Context
    from arkitect.core.component.context.hooks import HookInterruptException, PreLLMCallHook
    from arkitect.core.component.tool.builder import build_mcp_clients_from_config
    from volcenginesdkarkruntime import AsyncArk
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        "draft_rollout_arkitect.py 需要 arkitect，它是可选的：安装方法见 requirements.txt",
        name=error.name,
    ) from error

logger = logging.getLogger(__name__)

LOCAL_TEST_MODEL = "doubao-seed-2-0-mini-260428"  # 只在本地测试时生效，训练时用的是被训练的模型
MAX_STEPS = 6  # 一条轨迹最多请求模型几次
CONFIG_FILE_PATH = str(Path(__file__).resolve().parent.parent / "mcp_config.json")


class StepLimit(PreLLMCallHook):
    """Context 自己会一直循环到没有工具调用为止；请求够了 MAX_STEPS 次就打断它。"""

    def __init__(self):
        self.num_steps = 0

    async def pre_llm_call(self, state):
        """在每次请求模型之前。"""
        if self.num_steps == MAX_STEPS:
            raise HookInterruptException(reason="max_steps")
        self.num_steps += 1
        return state


@rollout(
    name="search_rollout_arkitect",
    runtime=Runtime(
        instance=PluginInstance.CPU2MEM4,
        max_concurrency=100,
        min_replicas=1,
        max_replicas=10,
        timeout=900,
    ),
)
@coze_monitor
async def demo_rollout(
    context: PluginContext,
    proxy: RolloutInferenceProxy,
    sample: ChatCompletionSample,
) -> RolloutResult | None:
    """一次调用产生一条轨迹。返回 None 表示成功，轨迹由 proxy 记录。"""
    mcp_clients, cleanup = build_mcp_clients_from_config(CONFIG_FILE_PATH)
    try:
        ctx = Context(
            model=LOCAL_TEST_MODEL,
            tools=[*mcp_clients.values()],
            client=AsyncArk(base_url=proxy.url, api_key=proxy.jwt_token),
        )
        wrap_async_client_inplace(ctx, proxy=proxy)
        ctx.set_pre_llm_call_hook(StepLimit())
        await ctx.init()
        await ctx.completions.create(messages=sample.model_dump()["messages"], stream=False)
    finally:
        await cleanup()
    return None
