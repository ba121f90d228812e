"""What a training on this machine is made of: the policy, what samples from it, what saves it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import torch

from arkdev.backends.local.endpoint import PolicyEndpoint
from arkdev.backends.local.engine import GenerationEngine
from arkdev.backends.local.learner import PolicyLearner
from arkdev.backends.local.policy import Policy
from arkdev.backends.local.rendering import open_rendering
from arkdev.backends.local.sampler.engine import TorchEngine
from arkdev.backends.local.saving import RunSaving, SavingSettings
from arkdev.backends.local.settings import LoraSettings, UpdateSettings


@dataclass(frozen=True)
class TrainingModel:
    """What is trained, and how."""

    name: str
    folder: Path
    engine: str
    update: UpdateSettings
    save_every_n_steps: int | None = None
    save_model_limit: int | None = None
    lora: LoraSettings | None = None
    seed: int = 0
    is_deterministic: bool = False


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
            source=self.model.folder,
            every_n_steps=self.model.save_every_n_steps,
            limit=self.model.save_model_limit,
            facts={"model": self.model.name},
        )
        return RunSaving(self.learner, settings, is_stop_asked=is_stop_asked)


@asynccontextmanager
async def opened(model: TrainingModel) -> AsyncIterator[Parts]:
    """Load the policy and open the engine for the time of the block."""
    torch.manual_seed(model.seed)  # new adapters are drawn at random
    policy = Policy.load(
        model.folder, lora=model.lora, keeps_reference=model.update.kl_coefficient > 0
    )
    learner = PolicyLearner(policy, model.update)
    engine = TorchEngine(policy.model, device=policy.device, deterministic=model.is_deterministic)
    try:
        yield Parts(
            PolicyEndpoint(engine, open_rendering(model.folder), model_name=model.name),
            engine,
            learner,
            model,
        )
    finally:
        await engine.close()
