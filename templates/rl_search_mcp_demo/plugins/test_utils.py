"""本地调试：对着一个真实的推理服务跑 rollout 和 grader，不经过训练平台。"""

import asyncio
import json
import logging
import os
from collections import Counter

from ark_sdk.core.plugin.rollout.proxy import InferenceProxy, Mode
from ark_sdk.types.pipeline_plugin.pipeline_plugin import PluginStatus
from ark_sdk.types.pipeline_plugin.rollout import ChatCompletionSample, Trajectory

logger = logging.getLogger(__name__)

ARK_BASE_URL = "https://ark.cn-beijing.volces.com/api/v3"


class NotGraded(Exception):
    """一条轨迹或一个样本没有得分；verdict 是插件给出的状态。"""

    def __init__(self, verdict, message):
        super().__init__(f"{verdict}：{message}")
        self.verdict = verdict


def local_endpoint():
    """从环境变量读取推理服务的地址和密钥，返回 (base_url, api_key)。"""
    api_key = os.getenv("ARK_API_KEY")
    if not api_key:
        raise SystemExit("请先设置环境变量 ARK_API_KEY")
    return os.getenv("ARK_BASE_URL", ARK_BASE_URL), api_key


def load_samples(jsonl_file_path, limit=None):
    """读取数据集的前 limit 行；某一行有错时指出文件和行号。"""
    samples = []
    with open(jsonl_file_path, encoding="utf-8-sig") as lines:
        for number, line in enumerate(lines, start=1):
            if limit is not None and len(samples) >= limit:
                break
            if not line.strip():
                continue
            try:
                samples.append(ChatCompletionSample(**json.loads(line)))
            except (ValueError, TypeError) as error:
                raise ValueError(f"{jsonl_file_path}:{number}: {error}") from error
    return samples


def check_status(result, plugin):
    """插件没有成功时抛出 NotGraded；返回 None 的 rollout 是成功的。"""
    status = PluginStatus(result.status) if result is not None else PluginStatus.SUCCESS
    if status is not PluginStatus.SUCCESS:
        raise NotGraded(status.value, f"{plugin} {result.error or '没有说明原因'}")


async def run_rollout(sample, rollout, api_key, base_url):
    """跑一次 rollout，返回它的轨迹。"""
    proxy = InferenceProxy(sample, url=base_url, jwt_token=api_key, mode=Mode.Inference)
    result = await rollout({}, proxy, sample)
    check_status(result, "rollout")
    return Trajectory(
        messages=proxy.messages,
        usage=proxy.usage,
        finish_reason=proxy.finish_reason,
        extra=(result.extra if result is not None else None) or {},
    )


async def grade(sample, trajectories, grader):
    """给一个样本的轨迹打分，返回 grader 的结果；得分的个数必须等于轨迹的个数。"""
    result = await grader({}, sample, trajectories)
    check_status(result, "grader")
    if len(result.rewards) != len(trajectories):
        raise NotGraded("failure", f"{len(trajectories)} 条轨迹得到了 {len(result.rewards)} 个得分")
    return result


async def debug_first_sample(jsonl_file_path, rollout, grader, api_key, base_url=ARK_BASE_URL):
    """跑数据集的第一个样本，逐条打印对话，再打印 grader 的结果。"""
    (sample,) = load_samples(jsonl_file_path, limit=1)
    trajectory = await run_rollout(sample, rollout, api_key, base_url)
    for message in trajectory.messages:
        logger.info("%s: %s %s", message.role, message.content, message.tool_calls or "")
    logger.info("标准答案：%s", sample.extra)
    logger.info("打分：%s", await grade(sample, [trajectory], grader))


async def test_with_dataset(
    jsonl_file_path,
    rollout,
    grader,
    api_key=None,
    base_url=None,
    limit=100,
    max_concurrent=5,
    n_sample=1,
    top_p=None,
    temperature=None,
):
    """并发跑数据集的前 limit 个样本，每个样本 n_sample 条轨迹，返回所有得分。

    max_concurrent 是同时进行的轨迹数，设成任务的 batch_size 就接近训练时的压力。
    没有给出 api_key 时，地址和密钥从环境变量读取。
    失败的轨迹记入日志并计数；它们没有得分，不会算作 0 分。
    """
    if api_key is None:
        default_url, api_key = local_endpoint()
        base_url = base_url or default_url
    sampling = {"n": 1, "top_p": top_p, "temperature": temperature}
    sampling = {name: value for name, value in sampling.items() if value is not None}
    slots = asyncio.Semaphore(max_concurrent)
    problems = Counter()

    async def one_rollout(sample):
        async with slots:
            return await run_rollout(sample, rollout, api_key, base_url or ARK_BASE_URL)

    async def one_sample(number, sample):
        sample = sample.model_copy(update=sampling)
        attempts = [one_rollout(sample) for _ in range(n_sample)]
        # return_exceptions：一条轨迹失败不影响其他轨迹
        outcomes = await asyncio.gather(*attempts, return_exceptions=True)
        trajectories = keep_successes(outcomes, f"样本 {number} 的 rollout", problems)
        if not trajectories:
            return []
        graded = await asyncio.gather(grade(sample, trajectories, grader), return_exceptions=True)
        results = keep_successes(graded, f"样本 {number} 的 grader", problems)
        return results[0].rewards if results else []

    samples = load_samples(jsonl_file_path, limit)
    groups = await asyncio.gather(*(one_sample(i, s) for i, s in enumerate(samples, start=1)))
    rewards = [reward for group in groups for reward in group]
    logger.info("%d 个样本，%d 个得分；没有得分的：%s", len(samples), len(rewards), dict(problems))
    return rewards


test_with_dataset.__test__ = False  # 名字以 test_ 开头，但不是 pytest 的测试


def keep_successes(outcomes, where, problems):
    """留下成功的结果；其余的写进日志，并按原因计入 problems。"""
    kept = []
    for outcome in outcomes:
        if isinstance(outcome, NotGraded):
            logger.warning("%s：%s", where, outcome)
            problems[outcome.verdict] += 1
        elif isinstance(outcome, BaseException):
            logger.error("%s 出错", where, exc_info=outcome)
            problems[type(outcome).__name__] += 1
        else:
            kept.append(outcome)
    return kept
