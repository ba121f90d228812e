"""The forms of public workspaces written for older SDKs (SURFACE X): they run as they are.

Each text here was written for this test; what it has in common with the public files is the
contract: names, import paths, call forms.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from arkdev.runs.records import Verdict
from tests.integration.workspace import Command, Workspace, away_from_the_user
from tests.running import LINE, answer, running, tool_call

PUBLIC = "https://ark.cn-beijing.volces.com/api/v3"
SCRIPTED = ("--endpoint", "scripted")

REWARD = """
    from typing import List

    from ark_sdk.resources.pipeline_plugin import group_grader
    from ark_sdk.types.pipeline_plugin import GroupGraderResult, PluginInstance, Runtime
    from ark_sdk.types.pipeline_plugin.pipeline_plugin import PluginContext, PluginStatus
    from ark_sdk.types.pipeline_plugin.rollout import ChatCompletionSample, Trajectory


    @group_grader(
        name="length_reward",
        runtime=Runtime(instance=PluginInstance.CPU1MEM2, max_concurrency=100, timeout=300),
    )
    def length_reward_fn(
        context: PluginContext, sample: ChatCompletionSample, trajectories: List[Trajectory]
    ) -> GroupGraderResult:
        rewards = [
            t.extra["reward"] if (t.extra and "reward" in t.extra) else float(len(t.messages))
            for t in trajectories
        ]
        return GroupGraderResult(
            rewards=rewards, status=PluginStatus.SUCCESS, error="", metrics={}
        )
"""
RAW_ROLLOUT = '''
    """An agent of another framework, which gets the proxy's address."""

    import asyncio
    import os
    from typing import Optional

    from ark_sdk.core.plugin.rollout.trace import coze_monitor
    from ark_sdk.resources.pipeline_plugin import rollout
    from ark_sdk.types.pipeline_plugin import PluginInstance, Runtime
    from ark_sdk.types.pipeline_plugin.pipeline_plugin import PluginContext
    from ark_sdk.types.pipeline_plugin.rollout import (
        ChatCompletionResponse,
        ChatCompletionSample,
        RolloutInferenceProxy,
        RolloutResult,
    )
    from openai import AsyncOpenAI


    class Framework:
        """Remembers the last raw answer, as a recording client of a framework does."""

        def __init__(self, api_base, api_key, extra_headers, extra_body):
            self.client = AsyncOpenAI(base_url=api_base, api_key=api_key)
            self.options = {"extra_headers": extra_headers, "extra_body": extra_body}

        async def run(self, messages):
            self.last = await self.client.chat.completions.create(
                model="doubao-seed-1-6-flash-250615", messages=messages, **self.options
            )


    @rollout(
        name="demo_agent_rollout",
        description="an agent of a framework",
        runtime=Runtime(
            instance=PluginInstance.CPU1MEM2,
            max_concurrency=100,
            min_replicas=1,
            max_replicas=10,
            timeout=900,
        ),
    )
    @coze_monitor
    async def demo_agent_rollout(
        context: PluginContext, proxy: RolloutInferenceProxy, sample: ChatCompletionSample
    ) -> Optional[RolloutResult]:
        framework = Framework(proxy.url, proxy.jwt_token, proxy.headers, proxy.get_extra_body())
        request = sample.model_dump()
        messages = request.pop("messages")
        while True:
            proxy.update_state_from_messages(messages)
            await framework.run(messages)
            raw = framework.last.model_dump()
            proxy.process_completion(ChatCompletionResponse(**raw))
            messages.append(framework.last.choices[0].message.model_dump())
            if framework.last.choices[0].finish_reason != "tool_calls":
                break
        await framework.client.close()
        return None


    async def main():
        from ark_sdk.core.plugin.rollout.proxy import InferenceProxy, Mode

        base_url = "URL"
        api_key = os.getenv("ARK_API_KEY", "xxx")
        sample = ChatCompletionSample(
            **{
                "model": "doubao-seed-1-6-flash-250615",
                "messages": [{"role": "user", "content": "What is 2 plus 3?"}],
            }
        )
        proxy = InferenceProxy(sample, url=base_url, jwt_token=api_key, mode=Mode.Inference)
        await demo_agent_rollout({}, proxy, sample)
        print(len(proxy.messages), proxy.finish_reason, proxy.usage.total_tokens > 0)


    if __name__ == "__main__":
        asyncio.run(main())
'''

TYPED_JOB = """
    from ark_sdk.resources.model_customization_job import ModelCustomizationJob
    from ark_sdk.resources.pipeline_plugin import GRPOPipeline, PipelinePluginWrapper
    from ark_sdk.types.model_customization_job import (
        Data,
        FoundationModelReference,
        ModelReference,
        Tag,
        TrainingDataset,
    )

    from plugins.length_reward import length_reward_fn
    from plugins.raw_rollout import demo_agent_rollout

    if __name__ == "__main__":
        mcj = ModelCustomizationJob(
            name="typed",
            tags=[Tag(key="team", value="search")],
            model_reference=ModelReference(
                foundation_model=FoundationModelReference(
                    name="doubao-seed-1-6-flash", model_version="250615"
                )
            ),
            hyperparameters={"batch_size": "32", "num_generations": "8", "lr": "0.000001"},
            data=Data(training_set=TrainingDataset(local_files=["./data/train.jsonl"])),
            custom_rl_pipeline=GRPOPipeline(
                graders=[
                    PipelinePluginWrapper(
                        plugin=length_reward_fn, envs={"foo": "bar"}, weight=0.5
                    ),
                ],
                rollout=PipelinePluginWrapper(plugin=demo_agent_rollout, envs={"foo": "bar"}),
            ),
        )

        mcj.submit()
        print(f"Job submitted. view job at {mcj.url}")
"""
PLAIN_JOB = """
    import os
    import sys

    sys.path.insert(0, os.getcwd())

    from ark_sdk.resources.model_customization_job import ModelCustomizationJob
    from ark_sdk.resources.pipeline_plugin import PipelinePluginWrapper
    from ark_sdk.resources.pipeline_plugin.pipeline_plugin import GRPOPipeline
    from ark_sdk.types.model_customization_job.model_customization_job import CustomizationType

    from plugins.length_reward import length_reward_fn
    from plugins.raw_rollout import demo_agent_rollout

    if __name__ == "__main__":
        mcj = ModelCustomizationJob(
            name="plain",
            model_reference={"custom_model_id": "cm-xxxxxxxxxxxxxx-xxxxx"},
            customization_type=CustomizationType.GRPOLoRA,
            hyperparameters={"batch_size": "32", "num_generations": "8", "lora_rank": "32"},
            data={"training_set": {"local_files": ["./data/train.jsonl"]}},
            custom_rl_pipeline=GRPOPipeline(
                graders=[PipelinePluginWrapper(plugin=length_reward_fn, weight=0.5)],
                rollout=PipelinePluginWrapper(plugin=demo_agent_rollout, envs={"foo": "bar"}),
            ),
            enable_trajectory=True,
            save_model_limit=1,
        )

        mcj.submit()
        print(f"Job submitted. view job at {mcj.url}")
"""
YAML_JOB = """
    name: written
    customization_type: GRPOLoRA
    model_reference:
      custom_model_id: cm-20260101000000-abcde
    data:
      training_set:
        preset_dataset: []
        local_files:
          - ./data/train.jsonl
    hyperparameters:
      num_steps: 20
      lr: 0.000001
      num_generations: '8'
      loss_agg_mode: seq-mean-token-mean
    custom_rl_pipeline:
      pipeline_type: GRPOPipeline
      graders:
        - plugin: plugins.length_reward:length_reward_fn
          weight: 0.5
          envs:
            foo: bar
      rollout:
        plugin:
          name: demo_agent_rollout
          python_func: plugins.raw_rollout:demo_agent_rollout
          runtime:
            instance: cpu1mem2
            timeout: 900
            min_replicas: 1
            max_replicas: 10
            max_concurrency: 100
        weight: 1.0
        envs:
          foo: bar
    enable_trajectory: true
    save_model_limit: 1
"""
DATASET_TEST = f"""
    import asyncio
    import contextvars
    import json
    import logging
    import os
    import sys

    from ark_sdk.core.plugin.rollout.proxy import InferenceProxy, Mode
    from ark_sdk.types.pipeline_plugin.rollout import ChatCompletionSample, Trajectory

    logger = logging.getLogger(__name__)


    async def test_with_dataset(jsonl_file_path, demo_rollout, llm_grader, limit=100,
                                max_concurrent=5):
        rewards = []
        slots = asyncio.Semaphore(max_concurrent)

        async def one(line, number):
            async with slots:
                try:
                    sample = ChatCompletionSample(**json.loads(line))
                    proxy = InferenceProxy(
                        sample,
                        url="{PUBLIC}",
                        jwt_token=os.getenv("ARK_API_KEY", "xxx"),
                        mode=Mode.Inference,
                    )
                    await demo_rollout({{}}, proxy, sample)
                    trajectory = Trajectory(
                        messages=proxy.messages,
                        usage=proxy.usage,
                        finish_reason=proxy.finish_reason,
                    )
                    graded = await llm_grader({{}}, sample, [trajectory])
                    rewards.extend(graded.rewards)
                except Exception as error:
                    logger.error("line %s: %s", number, error)

        tasks = []
        with open(jsonl_file_path, encoding="utf-8") as lines:
            for number, line in enumerate(lines, 1):
                if number <= limit:
                    context = contextvars.Context()
                    tasks.append(context.run(asyncio.create_task, one(line, number)))
        await asyncio.gather(*tasks, return_exceptions=True)
        return rewards


    if __name__ == "__main__":
        from plugins.length_reward import length_reward_fn
        from plugins.raw_rollout import demo_agent_rollout

        path, limit = sys.argv[1:]
        coroutine = test_with_dataset(path, demo_agent_rollout, length_reward_fn, limit=int(limit))
        print(asyncio.run(coroutine))
"""
EVALUATION = f"""
    import argparse
    import asyncio
    import importlib.util
    import os
    import sys
    from pathlib import Path

    from ark_sdk.core.plugin.rollout.proxy import InferenceProxy, Mode

    MARKERS = {{
        "rollout": ("_is_rollout", "_is_single_rollout", "_is_group_rollout"),
        "grader": ("_is_grader", "_is_single_grader", "_is_group_grader"),
    }}


    def load(path, kind):
        sys.path.insert(0, str(Path(path).parent))
        module = __import__(Path(path).stem)
        found = [
            value
            for value in map(module.__getattribute__, dir(module))
            if callable(value)
            and any(
                hasattr(one, marker)
                for one in (value, getattr(value, "__wrapped__", None))
                for marker in MARKERS[kind]
            )
        ]
        (function,) = found
        return function


    async def evaluate(rollout, grader):
        from ark_sdk.types.pipeline_plugin.rollout import ChatCompletionSample, Trajectory

        messages = [{{"role": "user", "content": "1 + 1?"}}]
        sample = ChatCompletionSample(messages=messages, extra={{}})
        service = {{"base_url": "{PUBLIC}", "api_key": os.environ.get("ARK_API_KEY", "")}}
        proxy = InferenceProxy(
            sample, url=service["base_url"], jwt_token=service["api_key"], mode=Mode.Inference
        )
        result = await rollout({{}}, proxy, sample)
        trajectory = Trajectory(
            messages=proxy.messages,
            usage=proxy.usage,
            finish_reason=proxy.finish_reason,
            extra=result.extra if result else {{}},
        )
        graded = await grader({{}}, sample, [trajectory])
        assert all(hasattr(message, "model_dump") for message in proxy.messages)
        return graded.rewards, trajectory.model_dump()["finish_reason"]


    parser = argparse.ArgumentParser()
    parser.add_argument("--rollout")
    parser.add_argument("--grader")
    arguments = parser.parse_args()
    if not os.environ.get("ARK_API_KEY"):
        sys.exit(1)
    functions = load(arguments.rollout, "rollout"), load(arguments.grader, "grader")
    print(*asyncio.run(evaluate(*functions)))
"""


@pytest.fixture
def public(tmp_path: Path) -> Workspace:
    """A workspace of the older form: an empty package pattern, plugins, data, job.py alone."""
    workspace = Workspace(tmp_path / "ws")
    (workspace.root / "job.yaml").unlink()
    workspace.write("arkworkspace.toml", '[plugin.package]\ninclude=["*.py"]')
    workspace.write("plugins/length_reward.py", REWARD)
    workspace.write("plugins/raw_rollout.py", RAW_ROLLOUT.replace("URL", PUBLIC))
    workspace.write("job.py", TYPED_JOB)
    questions = [{"role": "user", "content": f"What is {n} plus 3?"} for n in range(3)]
    workspace.lines(
        ({"messages": [line], "thinking": {"type": "enabled"}} for line in questions),
        name="data/train.jsonl",
    )
    return workspace


@pytest.fixture
def arkdev(
    public: Workspace,
    monkeypatch: pytest.MonkeyPatch,
    capsysbinary: pytest.CaptureFixture[bytes],
) -> Iterator[Command]:
    monkeypatch.chdir(public.root)
    with away_from_the_user(public.root.parent / "config", monkeypatch):
        yield Command(capsysbinary)


@pytest.mark.parametrize("job", [TYPED_JOB, PLAIN_JOB], ids=["typed", "plain"])
def test_a_job_file_names_the_plugins_of_a_test_and_its_submission_comes_later(
    public: Workspace, arkdev: Command, job: str
) -> None:
    public.write("job.py", job)
    tested = arkdev("test", "plugin", "--n-sample", "1", "--json")
    assert tested.exit_code == 0, tested.err
    assert tested.document["summary"]["num_graded"] == 3
    assert tested.document["summary"]["graders"][0]["weight"] == 0.5
    submitted = arkdev("run", "job.py")
    assert (submitted.exit_code, submitted.out) == (2, "")
    assert "ModelCustomizationJob.submit() is not built yet" in submitted.err
    assert f"where: {public.root / 'job.py'}:" in submitted.err
    assert "Traceback" not in submitted.err


def test_a_yaml_job_of_the_older_form_is_tested(public: Workspace, arkdev: Command) -> None:
    public.write("job.yaml", YAML_JOB)
    told = arkdev("test", "plugin", "--n-sample", "1", "--json")
    assert told.exit_code == 0, told.err
    settings = told.document["settings"]
    assert settings["job"].endswith("job.yaml")
    assert settings["rollout"] == "plugins.raw_rollout:demo_agent_rollout"
    assert [grader["weight"] for grader in settings["graders"]] == [0.5]
    assert told.document["summary"]["num_graded"] == 3


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({}, None),
        ({"messages": [{"role": "user", "content": [{"type": "text", "text": "?"}]}]}, None),
        ({"thinking": {"type": "auto"}, "extra": {"answer": 1}}, None),
        ({"messages": [*LINE["messages"], {"role": "assistant", "content": "!"}]}, "last message"),
        ({"messages": [{"role": "narrator", "content": "?"}]}, "narrator"),
        ({"messages": []}, "messages"),
    ],
)
def test_a_dataset_line_has_the_documented_form(
    public: Workspace, arkdev: Command, changes: dict[str, Any], problem: str | None
) -> None:
    public.lines([{**LINE, **changes}], name="data/train.jsonl")
    told = arkdev("test", "plugin", "--n-sample", "1", "--json")
    assert told.exit_code == (2 if problem else 0), told.err
    assert (problem or "") in told.err


@pytest.mark.parametrize("base_url", [PUBLIC, ""], ids=["public", "empty"])
def test_the_main_of_a_raw_rollout_runs_offline(
    public: Workspace, arkdev: Command, base_url: str
) -> None:
    public.write("plugins/raw_rollout.py", RAW_ROLLOUT.replace("URL", base_url))
    told = arkdev("run", "plugins/raw_rollout.py", *SCRIPTED)
    assert told.exit_code == 0, told.err
    assert told.out == "2 stop True\n"


def test_the_older_test_with_dataset_runs_offline(public: Workspace, arkdev: Command) -> None:
    public.write("plugins/test_utils.py", DATASET_TEST)
    told = arkdev("run", "plugins/test_utils.py", *SCRIPTED, "data/train.jsonl", "2")
    assert (told.exit_code, told.out) == (0, "[2.0, 2.0]\n"), told.err


def test_a_helper_that_looks_for_markers_evaluates_offline(
    public: Workspace, arkdev: Command
) -> None:
    public.write("scripts/evaluate.py", EVALUATION)
    files = ("--rollout", "plugins/raw_rollout.py", "--grader", "plugins/length_reward.py")
    told = arkdev("run", *SCRIPTED, "scripts/evaluate.py", *files)
    assert (told.exit_code, told.out) == (0, "[2.0] stop\n"), told.err
    assert arkdev("run", "scripts/evaluate.py", *files).exit_code == 1  # it has no key then


OLDER_PLUGINS = """
    from typing import List

    from ark_sdk.resources.pipeline_plugin import group_grader, rollout
    from ark_sdk.core.plugin.rollout.proxy import RolloutFailedException
    from ark_sdk.types.pipeline_plugin import GroupGraderResult
    from ark_sdk.types.pipeline_plugin.rollout import ChatCompletion, ChatCompletionSample

    @group_grader
    def older_grader(context, sample: ChatCompletionSample, completions: List[ChatCompletion]):
        again = [ChatCompletion(messages=c.messages, usage=c.usage, finish_reason=c.finish_reason)
                 for c in completions]
        return GroupGraderResult(rewards=[float(c.messages[-1].role == "assistant") for c in again])

    @rollout
    def older_rollout(context, proxy, sample):
        assert context.modle_customization_job_id == ""
        if "0" in sample.messages[0].content:
            raise RolloutFailedException("cannot go on")
        proxy.rollout_client().chat.completions.create(
            model="m", messages=sample.model_dump()["messages"]
        )
"""


def test_older_names_of_graders_and_exceptions_mean_what_they_meant(
    public: Workspace, arkdev: Command
) -> None:
    public.write("plugins/older.py", OLDER_PLUGINS)
    plugins = ("--rollout", "plugins.older:older_rollout", "--grader", "plugins.older:older_grader")
    told = arkdev("test", "plugin", *plugins, "--n-sample", "1", "--json")
    assert told.exit_code == 1
    summary = told.document["summary"]
    assert summary["verdicts"] == {"success": 2, "failure": 1}
    assert summary["reward"]["mean"] == 1.0
    assert summary["attempts"] == {"1": 2, "4": 1}  # a failure is tried three times more
    assert summary["would_fail_job"]
    assert "RolloutFailedException: cannot go on" in summary["errors"][0]["message"]


LATER_COMMANDS = [
    "list resource_group --mcj --file job.yaml --only-matched",
    "get mcj mcj-x",
    "create mcj -f job.yaml",
    "list cm",
    "list qm -id cm-1",
    "pull mcj mcj-x --include-data",
    "upgrade --dry-run",
    "login",
]


@pytest.mark.parametrize("line", LATER_COMMANDS)
def test_a_documented_command_of_later_work_says_so(arkdev: Command, line: str) -> None:
    told = arkdev(*line.split())
    words = " ".join(line.split()[: 2 if line.startswith(("test", "get", "list", "create")) else 1])
    assert (told.exit_code, told.out) == (2, "")
    assert f"`arkdev {words}` is not built yet: it comes with " in told.err


JOB_STATE = """
    from ark_sdk.resources.model_customization_job import ModelCustomizationJob
    from ark_sdk.types.model_customization_job import CustomizationType

    job = ModelCustomizationJob(
        name="n", project="p", description="d",
        model_reference={"foundation_model": {"name": "m", "model_version": "1"}},
        data={"training_set": {"local_files": ["x"]}},
        custom_rl_pipeline={"graders": ["plugins.length_reward:length_reward_fn"]},
        customization_type=CustomizationType.GRPO,
    )
    print(job.name, job.project, job.description, job.customization_type.value)
    print(job.model_reference.foundation_model.name)
    print(job.STATE)
"""


@pytest.mark.parametrize("state", ["id", "phase", "status.PhaseTime", "refresh()", "get('mcj-1')"])
def test_the_state_of_a_job_comes_later(public: Workspace, arkdev: Command, state: str) -> None:
    public.write("state.py", JOB_STATE.replace("STATE", state))
    told = arkdev("run", "state.py")
    assert (told.exit_code, told.out) == (2, "n p d GRPO\nm\n")
    name = state.partition(".")[0]
    assert f"ModelCustomizationJob.{name} is not built yet" in told.err


async def test_an_older_draft_of_an_arkitect_rollout_is_recorded() -> None:
    from arkdev.plugin import ark_sdk

    ark_sdk.install()
    from ark_sdk.core.plugin.rollout.proxy import wrap_async_client_inplace
    from ark_sdk.core.plugin.rollout.trace import wrap_async_client_inplace_trace
    from ark_sdk.resources.pipeline_plugin import rollout

    class Context:
        """As arkitect's: it holds a client of its own and loops over tool calls."""

        def __init__(self, model, tools):
            self.model, self.tools, self.is_ready = model, tools, False
            self.completions = self.Completions(self)

        class Completions:
            def __init__(self, context):
                self.context = context

            async def create(self, messages, stream):
                assert self.context.is_ready and not stream
                while True:
                    create = self.context.chat.completions.create
                    completion = await create(model=self.context.model, messages=messages)
                    message = completion.choices[0].message
                    messages.append(message.model_dump())
                    if not message.tool_calls:
                        return completion
                    messages += [
                        {"role": "tool", "tool_call_id": call.id, "content": "sunny"}
                        for call in message.tool_calls
                    ]

        async def init(self):
            self.is_ready = True

    async def never(**_options):
        raise AssertionError("the context's own client was asked")

    def resource(create):
        return type("Resource", (), {"create": staticmethod(create)})()

    @rollout
    async def draft(context, proxy, sample):
        ctx = Context(model="m", tools=[])
        ctx.chat = type("Chat", (), {"completions": resource(never)})()
        wrap_async_client_inplace_trace(ctx)
        wrap_async_client_inplace(ctx, proxy=proxy)
        await ctx.init()
        await ctx.completions.create(messages=sample.model_dump()["messages"], stream=False)

    async with running([answer(None, tool_calls=[tool_call()]), "sunny"]) as run:
        finished = await run.rollout(draft)
    ark_sdk.uninstall()
    assert finished.record.verdict is Verdict.SUCCESS
    roles = [message["role"] for message in finished.record.messages]
    assert roles == [LINE["messages"][0]["role"], "assistant", "tool", "assistant"]
