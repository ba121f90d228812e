"""What a training on this machine is made of: the policy, what samples from it, what saves it."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch

from arkdev.backends.local.endpoint import PolicyEndpoint
from arkdev.backends.local.engine import GenerationEngine
from arkdev.backends.local.learner import PolicyLearner
from arkdev.backends.local.loading import context_tokens, num_threads
from arkdev.backends.local.model_files import ModelFiles
from arkdev.backends.local.model_saving import write_model
from arkdev.backends.local.policy import Policy
from arkdev.backends.local.rendering import open_rendering
from arkdev.backends.local.sampler.engine import TorchEngine
from arkdev.backends.local.saving import RunSaving, SavingSettings
from arkdev.backends.local.settings import LoraSettings, UpdateSettings
from arkdev.backends.local.vllm.engine import VllmEngine, start_vllm
from arkdev.backends.local.vllm.settings import VllmSettings

VLLM = "vllm"
_VLLM_START_LIMIT_S = 600.0
"""Loading a model of some gigabytes, and compiling it for a GPU, takes minutes."""


@dataclass(frozen=True)
class TrainingModel:
    """What is trained, and how."""

    files: ModelFiles
    engine: str
    update: UpdateSettings
    lora: LoraSettings | None = None
    save_every_n_steps: int | None = None
    save_model_limit: int | None = None
    seed: int = 0
    is_deterministic: bool = False
    num_running: int = 64
    """Answers that are sampled at once."""
    log: Path = Path("vllm.log")
    """Of an engine in a process of its own."""
    vllm_python: Path | None = None
    """None: where `find_vllm` looks then."""


@dataclass(frozen=True)
class Parts:
    """What is open while a training runs."""

    endpoint: PolicyEndpoint
    engine: GenerationEngine
    learner: PolicyLearner
    model: TrainingModel

    def saving(self, folder: Path, run_id: str, *, is_stop_asked: Callable[[], bool]) -> RunSaving:
        """Return what saves the run in `folder`."""
        settings = SavingSettings(
            run=folder,
            run_id=run_id,
            source=self.model.files.folder,
            every_n_steps=self.model.save_every_n_steps,
            limit=self.model.save_model_limit,
            facts={"model": self.model.files.name},
        )
        return RunSaving(self.learner, settings, is_stop_asked=is_stop_asked)


@asynccontextmanager
async def opened(model: TrainingModel, *, say: Callable[[str], None]) -> AsyncIterator[Parts]:
    """Load the policy and open the engine for the time of the block.

    Raises `ConfigurationError` for files that cannot be trained or sampled from, and what starting
    the engine raises.
    """
    rendering = open_rendering(model.files.tokenizer_folder)
    threads = num_threads(model.files)
    torch.set_num_threads(threads)
    torch.manual_seed(model.seed)  # new adapters are drawn at random
    policy = await asyncio.to_thread(
        Policy.load,
        model.files.folder,
        lora=model.lora,
        keeps_reference=model.update.kl_coefficient > 0,
    )
    say(f"{model.files.name}: {_described(policy, threads)}")
    async with AsyncExitStack() as stack:
        engine = await _engine(model, policy, say=say)
        stack.push_async_callback(engine.close)
        publish = None
        if isinstance(engine, VllmEngine):
            publish = partial(_published, engine.weights_folder, source=model.files.folder)
        endpoint = PolicyEndpoint(engine, rendering, model_name=model.files.name)
        learner = PolicyLearner(policy, model.update, publish=publish)
        yield Parts(endpoint, engine, learner, model)


def _published(scratch: Path, trained: Any, version: int, *, source: Path) -> Path:
    """Write the weights of a version for an engine that reads files; forget those before."""
    folder = scratch / str(version)
    write_model(folder, trained, source=source)
    for other in scratch.iterdir():
        if other != folder:
            shutil.rmtree(other)
    return folder


def _described(policy: Policy, threads: int) -> str:
    trained = sum(parameter.numel() for parameter in policy.trained_parameters().values())
    what = "adapters with" if policy.has_adapters else "all"
    on_cpu = "the CPU, with 1 thread" if threads == 1 else f"the CPU, with {threads} threads"
    where = on_cpu if policy.device.type == "cpu" else str(policy.device)
    return f"{what} {trained:,} parameters are trained on {where}; {policy.layout_reason}"


async def _engine(
    model: TrainingModel, policy: Policy, *, say: Callable[[str], None]
) -> GenerationEngine:
    num_tokens = context_tokens(model.files, policy.model.config)
    if model.engine != VLLM:
        return TorchEngine(
            policy.model,
            device=policy.device,
            max_context_tokens=num_tokens,
            deterministic=model.is_deterministic,
            max_running=model.num_running,
        )
    model.log.parent.mkdir(parents=True, exist_ok=True)
    rank = model.lora.rank if model.lora is not None else 0
    return await start_vllm(
        VllmSettings(model.files.folder, max_context_tokens=num_tokens, lora_rank=rank),
        log=model.log,
        tell=say,
        python=model.vllm_python,
        start_limit_s=_VLLM_START_LIMIT_S,
    )
