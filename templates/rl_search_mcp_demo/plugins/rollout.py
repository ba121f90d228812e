"""搜索问答的 rollout：请求模型、执行搜索、把结果交回模型，直到模型给出最终回复。

问题要搜索一到三次才能回答。proxy 给出的客户端会自动记录轨迹。
"""

import asyncio
import logging
from contextlib import nullcontext

import backoff
from aiolimiter import AsyncLimiter
from ark_sdk.resources.pipeline_plugin import rollout
from ark_sdk.types.pipeline_plugin import PluginInstance, Runtime
from ark_sdk.types.pipeline_plugin.pipeline_plugin import PluginContext, PluginStatus
from ark_sdk.types.pipeline_plugin.rollout import (
    ChatCompletionSample,
    RolloutInferenceProxy,
    RolloutResult,
    RolloutRetryException,
)

from plugins.coze_monitor import coze_monitor
from plugins.web_search import ToolCallError, open_search, read_arguments, search_tool

logger = logging.getLogger(__name__)

LOCAL_TEST_MODEL = "doubao-seed-2-0-mini-260428"  # 只在本地测试时生效，训练时用的是被训练的模型
MAX_STEPS = 6  # 一条轨迹最多请求模型几次
PENALTY = -1  # 工具调用写坏了的轨迹的得分，grader 原样采用

TOOL_CALL_TIMEOUT = 20.0  # 秒，单次搜索
TOOL_CALL_MAX_RETRY = 10  # 单次搜索最多尝试几次
TOOL_CALL_RETRY_TIME = 60  # 秒，各次尝试和其间的等待总共不超过它
rate_limiter = AsyncLimiter(max_rate=20, time_period=1)  # 真实的搜索 API 每秒最多请求几次


@rollout(
    name="search_rollout",
    description="multi-step web search",
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
    client = proxy.async_rollout_client()
    messages = sample.model_dump()["messages"]

    async with open_search() as search:
        for step in range(1, MAX_STEPS + 1):
            # 采样参数（temperature 等）属于样本和任务配置，不能写在这里
            completion = await client.chat.completions.create(
                model=LOCAL_TEST_MODEL, messages=messages, tools=[search_tool]
            )
            message = completion.choices[0].message
            messages.append(message.model_dump())
            # 看有没有工具调用，而不是看 finish_reason：不同的推理服务在这一点上并不一致
            if not message.tool_calls or step == MAX_STEPS:
                return None
            try:
                calls = [(call.id, read_arguments(call.function)) for call in message.tool_calls]
            except ToolCallError as error:
                # 写坏的参数再发给模型服务会被拒绝，所以到此为止，用 extra 告诉 grader 扣分
                logger.warning("工具调用写错了（%s）：%s", error.reason, error)
                return RolloutResult(status=PluginStatus.SUCCESS, extra={"reward": PENALTY})
            results = await asyncio.gather(
                *(exec_tool_call(search, arguments) for _, arguments in calls)
            )
            messages += [
                {"role": "tool", "content": content, "tool_call_id": call_id}
                for (call_id, _), content in zip(calls, results, strict=True)
            ]
    return None


# 重试用完之后 RolloutRetryException 离开 rollout，平台会把整条轨迹重新跑一次
@backoff.on_exception(
    backoff.expo,
    RolloutRetryException,
    max_tries=TOOL_CALL_MAX_RETRY,
    max_time=TOOL_CALL_RETRY_TIME,
    jitter=backoff.full_jitter,
    base=2,
    factor=0.4,
    max_value=20,
)
async def exec_tool_call(search, arguments) -> str:
    """执行一次搜索，返回要交给模型的文字。"""
    # 本地的搜索不需要限速
    async with rate_limiter if search.is_remote else nullcontext():
        try:
            return await asyncio.wait_for(search.search(arguments), TOOL_CALL_TIMEOUT)
        except asyncio.TimeoutError as error:
            raise RolloutRetryException(
                f"web_search 超过 {TOOL_CALL_TIMEOUT} 秒没有结果"
            ) from error


async def main() -> None:
    """本地调试：先看一个样本的完整对话，再并发跑一批。不需要的部分可以注释掉。"""
    from plugins.llm_grader import llm_grader
    from plugins.test_utils import debug_first_sample, local_endpoint, test_with_dataset

    base_url, api_key = local_endpoint()
    path = "./data/search_dataset_dev_100.jsonl"
    await debug_first_sample(path, demo_rollout, llm_grader, api_key, base_url=base_url)

    # 提交任务前把 max_concurrent 调到任务的 batch_size，看下游服务能否承受
    rewards = await test_with_dataset(
        path,
        demo_rollout,
        llm_grader,
        api_key,
        base_url=base_url,
        limit=100,
        max_concurrent=32,
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
