"""天气问答的 group rollout：一次调用产生一个样本的全部轨迹。

查天气的第一轮只请求模型一次，所有轨迹共享它；查到结果以后分成 n_sample 个分支，各自作答。
分支靠 previous_response_id 接在同一个 response 后面，互相看不见；历史由 proxy 维护，
每一轮只传新增的 input。
"""

import asyncio
import logging

from ark_sdk.core.plugin.rollout.proxy import InferenceProxy, Mode
from ark_sdk.resources.pipeline_plugin import group_rollout
from ark_sdk.types.pipeline_plugin import PluginInstance, Runtime
from ark_sdk.types.pipeline_plugin.pipeline_plugin import PluginContext, PluginStatus
from ark_sdk.types.pipeline_plugin.rollout import (
    ChatCompletionSample,
    GroupRolloutResult,
    RolloutInferenceProxy,
    SingleResponse,
)

from plugins.weather_tool import ToolCallError, rollout_tools, run_tool_call

logger = logging.getLogger(__name__)

LOCAL_TEST_MODEL = "doubao-seed-2-0-mini-260428"  # 只在本地测试时生效，训练时用的是被训练的模型
MAX_STEPS = 6  # 一条轨迹最多请求模型几次，共享的第一轮也算
PENALTY = -1  # 工具调用写坏了的轨迹的得分，grader 原样采用


@group_rollout(
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
    n_sample: int = 1,
) -> GroupRolloutResult:
    """n_sample 等于任务的 num_generations；返回的 responses 必须正好这么多。"""
    client = proxy.async_rollout_client()
    request = sample.model_dump()
    tools = [flat_tool(tool) for tool in (request["tools"] or []) + rollout_tools]

    # 采样参数（temperature 等）属于样本和任务配置，不能写在这里
    first = await client.responses.create(
        model=LOCAL_TEST_MODEL,
        input=[{"role": m["role"], "content": m["content"]} for m in request["messages"]],
        tools=tools,
    )
    branches = [continue_branch(client, first, tools) for _ in range(n_sample)]
    return GroupRolloutResult(
        status=PluginStatus.SUCCESS, responses=list(await asyncio.gather(*branches))
    )


async def continue_branch(client, response, tools):
    """从 response 继续到模型不再调用工具为止，返回这条轨迹的最后一个 response。

    第一轮就没有（或写坏了）工具调用时，各条轨迹都止于第一轮，彼此相同。
    """
    for step in range(MAX_STEPS):
        try:
            outputs = tool_outputs(response)
        except ToolCallError as error:
            # 用 extra 告诉 grader 扣分；extra 属于这一条轨迹
            logger.warning("工具调用无法执行（%s）：%s", error.reason, error)
            return SingleResponse(id=response.id, extra={"reward": PENALTY})
        if not outputs:
            return SingleResponse(id=response.id)
        if step + 1 < MAX_STEPS:
            response = await client.responses.create(
                model=LOCAL_TEST_MODEL,
                input=outputs,
                previous_response_id=response.id,
                tools=tools,
            )
    logger.warning("请求模型 %d 次后仍在调用工具，停止", MAX_STEPS)
    return SingleResponse(id=response.id)


def tool_outputs(response):
    """执行 response 里的工具调用，返回下一轮的 input；没有调用时是空列表。"""
    return [
        {
            "type": "function_call_output",
            "call_id": item.call_id,
            "output": run_tool_call(item.call_id, item.name, item.arguments),
        }
        for item in response.output
        if item.type == "function_call"
    ]


def flat_tool(tool):
    """Responses API 的函数工具没有 function 这一层。"""
    return {"type": "function", **tool["function"]}


async def main() -> None:
    """本地调试：对一个样本产生 4 条轨迹，打印它们的 id 和 extra。"""
    from plugins.test_utils import check_status, load_samples, local_endpoint

    base_url, api_key = local_endpoint()
    (sample,) = load_samples("./data/mcj_rollout_validation_dataset.jsonl", limit=1)
    proxy = InferenceProxy(sample, url=base_url, jwt_token=api_key, mode=Mode.Inference)
    result = await demo_rollout({}, proxy, sample, n_sample=4)
    check_status(result, "rollout")
    for response in result.responses:
        logger.info("%s %s", response.id, response.extra or "")
    for message in proxy.messages:
        logger.info("%s: %s %s", message.role, message.content, message.tool_calls or "")
    logger.info("标准答案：%s", sample.extra)


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    for name in ("httpx", "httpx2", "openai"):
        logging.getLogger(name).setLevel(logging.WARNING)
    asyncio.run(main())
