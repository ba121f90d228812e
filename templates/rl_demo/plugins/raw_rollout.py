"""天气问答的 rollout（底层写法）：客户端没有被包装，轨迹由我们自己报告给 proxy。

每次请求前用 update_state_from_messages 报告历史，请求带上 proxy 的 extra_body 和 headers，
收到回复后用 process_completion 报告。只有在包装客户端不能满足需要时才这样写。
"""

import asyncio
import logging

from ark_sdk.resources.pipeline_plugin import rollout
from ark_sdk.types.pipeline_plugin import PluginInstance, Runtime
from ark_sdk.types.pipeline_plugin.pipeline_plugin import PluginContext, PluginStatus
from ark_sdk.types.pipeline_plugin.rollout import (
    ChatCompletionMessage,
    ChatCompletionResponse,
    ChatCompletionSample,
    RolloutInferenceProxy,
    RolloutResult,
)
from openai import DefaultHttpxClient, OpenAI

from plugins.weather_tool import ToolCallError, rollout_tools, run_tool_calls

logger = logging.getLogger(__name__)

LOCAL_TEST_MODEL = "doubao-seed-2-0-mini-260428"  # 只在本地测试时生效，训练时用的是被训练的模型
MAX_STEPS = 6  # 一条轨迹最多请求模型几次
PENALTY = -1  # 工具调用写坏了的轨迹的得分，grader 原样采用

# 所有轨迹共用的连接池：每条轨迹新建一个要花几十毫秒的 CPU，并发高时会成为瓶颈
HTTP_CLIENT = DefaultHttpxClient()


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
def demo_rollout(
    context: PluginContext,
    proxy: RolloutInferenceProxy,
    sample: ChatCompletionSample,
) -> RolloutResult | None:
    """一次调用产生一条轨迹。返回 None 表示成功。"""
    client = OpenAI(base_url=proxy.url, api_key=proxy.jwt_token, http_client=HTTP_CLIENT)
    request = sample.model_dump()
    messages = request.pop("messages")
    tools = (request.pop("tools") or []) + rollout_tools

    for _ in range(MAX_STEPS):
        # 历史如果被改写过，proxy 会从改动处截断它记录的 token
        proxy.update_state_from_messages([ChatCompletionMessage(**m) for m in messages])
        completion = client.chat.completions.create(
            model=LOCAL_TEST_MODEL,
            messages=messages,
            tools=tools,
            extra_body=proxy.get_extra_body(),
            extra_headers=proxy.headers,
        )
        proxy.process_completion(ChatCompletionResponse(**completion.model_dump()))
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
