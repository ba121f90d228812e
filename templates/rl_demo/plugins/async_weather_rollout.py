"""天气问答的 rollout（异步）：与 weather_rollout.py 的过程相同。

很多轨迹共用一个事件循环，所以这里不能有会长时间阻塞的同步调用；
如果你的工具要访问网络，请用异步的库，或者改用同步的 rollout。
"""

import asyncio
import logging

from ark_sdk.resources.pipeline_plugin import rollout
from ark_sdk.types.pipeline_plugin import PluginInstance, Runtime
from ark_sdk.types.pipeline_plugin.pipeline_plugin import PluginContext, PluginStatus
from ark_sdk.types.pipeline_plugin.rollout import (
    ChatCompletionSample,
    RolloutInferenceProxy,
    RolloutResult,
)

from plugins.weather_tool import ToolCallError, rollout_tools, run_tool_calls

logger = logging.getLogger(__name__)

LOCAL_TEST_MODEL = "doubao-seed-2-0-mini-260428"  # 只在本地测试时生效，训练时用的是被训练的模型
MAX_STEPS = 6  # 一条轨迹最多请求模型几次
PENALTY = -1  # 工具调用写坏了的轨迹的得分，grader 原样采用


@rollout(
    name="demo_rollout",
    runtime=Runtime(
        instance=PluginInstance.CPU1MEM2,
        max_concurrency=100,
        min_replicas=1,
        max_replicas=10,
        timeout=900,
    ),
)
async def demo_rollout(
    context: PluginContext,
    proxy: RolloutInferenceProxy,
    sample: ChatCompletionSample,
) -> RolloutResult | None:
    """一次调用产生一条轨迹。返回 None 表示成功，轨迹由 proxy 记录。"""
    client = proxy.async_rollout_client()
    request = sample.model_dump()
    messages = request.pop("messages")
    tools = (request.pop("tools") or []) + rollout_tools

    for _ in range(MAX_STEPS):
        # 采样参数（temperature 等）属于样本和任务配置，不能写在这里
        completion = await client.chat.completions.create(
            model=LOCAL_TEST_MODEL, messages=messages, tools=tools
        )
        message = completion.choices[0].message
        messages.append(message.model_dump())
        # 看有没有工具调用，而不是看 finish_reason：不同的推理服务在这一点上并不一致
        if not message.tool_calls:
            return None
        try:
            messages += run_tool_calls(message.tool_calls)
        except ToolCallError as error:
            # 写坏的参数再发给模型服务会被拒绝，所以到此为止，用 extra 告诉 grader 扣分
            logger.warning("工具调用无法执行（%s）：%s", error.reason, error)
            return RolloutResult(status=PluginStatus.SUCCESS, extra={"reward": PENALTY})

    logger.warning("请求模型 %d 次后仍在调用工具，停止", MAX_STEPS)
    return None


async def main() -> None:
    """本地调试：先看一个样本的完整对话，再并发跑一批。不需要的部分可以注释掉。"""
    from plugins.random_reward import random_reward_fn
    from plugins.test_utils import debug_first_sample, local_endpoint, test_with_dataset

    base_url, api_key = local_endpoint()
    path = "./data/mcj_rollout_validation_dataset.jsonl"
    await debug_first_sample(path, demo_rollout, random_reward_fn, api_key, base_url=base_url)

    # 提交任务前把 max_concurrent 调到任务的 batch_size，看下游服务能否承受
    rewards = await test_with_dataset(
        path,
        demo_rollout,
        random_reward_fn,
        api_key,
        base_url=base_url,
        limit=32,
        max_concurrent=16,
        n_sample=1,
        top_p=1.0,
        temperature=1.0,
    )
    if rewards:
        logger.info("平均得分：%.3f", sum(rewards) / len(rewards))


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    for name in ("httpx", "httpx2", "openai"):
        logging.getLogger(name).setLevel(logging.WARNING)
    asyncio.run(main())
