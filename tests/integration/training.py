"""Trainings in this process without torch: a policy of one number behind the real seams.

The policy answers "good" with probability sigmoid(logit) and "bad" otherwise; it learns by the
gradient that the batch's advantages, weights and masks give.
"""

from __future__ import annotations

import asyncio
import json
import math
import random
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from arkdev.backends.local.batch import TrainingBatch
from arkdev.backends.local.engine import EngineCapabilities
from arkdev.backends.local.model_files import ModelFiles
from arkdev.endpoints.endpoint import EndpointCapabilities, ModelRequest
from arkdev.errors import ExitCode, PolicyEngineError, RunStoppedError
from arkdev.flows.train import TrainOutcome, run_train
from arkdev.flows.train_plan import TrainPlan, plan_train
from arkdev.flows.train_request import TrainRequest
from arkdev.runs.reader import RunReader
from arkdev.sessions.retries import RetryPolicy
from tests.integration.debugging import Quiet
from tests.integration.workspace import Workspace

PROMPT, GOOD, BAD, END = 10, 1, 2, 3
GRADE_GOOD = """
    from arkdev import single_grader

    @single_grader
    def good(context, sample, trajectory):
        return float(trajectory.messages[-1].content == "good")
"""


def log_sigmoid(logit: float) -> float:
    return -math.log1p(math.exp(-logit))


@dataclass
class CoinEngine:
    """Samples from a copy of the policy's logit."""

    logit: float = 0.0
    policy_version: int = 0
    is_stuck: bool = False
    """Says that it took new weights over, and does not."""
    name: str = "coin"
    capabilities: EngineCapabilities = field(default_factory=lambda: EngineCapabilities(True, 100))
    num_cut: int = 0
    """Answers that are cut at their most tokens, from the first on."""

    async def update_weights(self, source: Any, *, version: int) -> None:
        self.policy_version = version
        if not self.is_stuck:
            self.logit = source

    async def generate(self, request: Any, *, on_token: Any = None) -> Any:
        raise NotImplementedError

    async def score(self, token_ids: Sequence[int], *, temperature: float = 1.0) -> list[float]:
        return [log_sigmoid(self.logit if t == GOOD else -self.logit) for t in token_ids[1:-1]]

    async def sleep(self) -> None: ...

    async def wake(self) -> None: ...

    async def close(self) -> None: ...


@dataclass
class CoinEndpoint:
    """The policy as plugins reach it."""

    engine: CoinEngine
    name: str = "local"
    model: str = "coin"
    capabilities: EndpointCapabilities = field(
        default_factory=lambda: EndpointCapabilities(has_token_evidence=True)
    )
    change: Callable[[dict[str, Any]], dict[str, Any]] = lambda answer: answer
    """What becomes of each answer on its way."""
    num_answers: int = 0

    async def complete(self, request: ModelRequest) -> dict[str, Any]:
        await asyncio.sleep(0)
        engine = self.engine
        draw = random.Random(request.seed).random()
        is_good = draw < math.exp(log_sigmoid(engine.logit))
        logprob = log_sigmoid(engine.logit if is_good else -engine.logit)
        self.num_answers += 1
        is_cut = self.num_answers <= engine.num_cut
        return self.change(
            {
                "id": f"a{self.num_answers}",
                "policy_version": engine.policy_version,
                "prompt_token_ids": [PROMPT],
                "choices": [
                    {
                        "index": 0,
                        "message": {"role": "assistant", "content": "good" if is_good else "bad"},
                        "finish_reason": "length" if is_cut else "stop",
                        "token_ids": [GOOD if is_good else BAD, END],
                        "logprobs": {"content": [{"logprob": logprob}, {"logprob": 0.0}]},
                    }
                ],
                "usage": {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3},
            }
        )

    async def check_reachable(self) -> None: ...

    async def close(self) -> None: ...


@dataclass
class CoinLearner:
    """Follows the gradient of Σ weight · advantage · log π."""

    lr: float
    logit: float = 0.0
    policy_version: int = 0
    counters: dict[str, float] = field(default_factory=dict)
    batches: list[TrainingBatch] = field(default_factory=list)
    checks: bool = True

    def weights(self) -> float:
        return self.logit

    def learns_from(self, batch: TrainingBatch) -> bool:
        return any(any(sequence.advantages) for sequence in batch.sequences)

    def learn(self, batch: TrainingBatch) -> Mapping[str, float]:
        self.batches.append(batch)
        chance, gradient, gap, num = math.exp(log_sigmoid(self.logit)), 0.0, 0.0, 0
        for s in batch.sequences:
            rows = zip(
                s.token_ids,
                s.loss_mask,
                s.advantages,
                s.token_weights,
                s.rollout_logprobs,
                strict=True,
            )
            for token, mask, advantage, weight, logprob in rows:
                if mask and token != END:
                    gradient += weight * advantage * ((token == GOOD) - chance)
                    gap += logprob - log_sigmoid(self.logit if token == GOOD else -self.logit)
                    num += 1
        self.logit += self.lr * gradient
        self.policy_version += 1
        return {"rollout_off_policy_kl": gap / num, "entropy": 0.5, "pg_clipfrac": 0.0}

    async def check(self, engine: CoinEngine, batch: TrainingBatch) -> Mapping[str, float]:
        gap = abs(engine.logit - self.logit)
        if self.checks and gap > 1e-6:
            raise PolicyEngineError(f"the sampler is {gap:.3g} away")
        return {"sync_gap_mean": gap}


@dataclass
class CoinSaving:
    """Keeps the last state in a file of the run."""

    learner: CoinLearner
    folder: Path
    every: int
    is_stop_asked: Callable[[], bool]

    def latest(self, problems: list[str]) -> Any:
        path = self.folder / "coin.json"
        return json.loads(path.read_text("utf-8")) if path.exists() else None

    def restore(self, state: Any) -> int:
        if state is None:
            return 0
        self.learner.logit, self.learner.policy_version = state["logit"], state["version"]
        self.learner.counters = state["counters"]
        return int(state["step"])

    def drop_later(self, step: int) -> None:
        (self.folder / "dropped.txt").write_text(str(step), encoding="utf-8")

    def after_step(self, step: int, *, score: float | None, is_last: bool) -> None:
        learner = self.learner
        if (step + 1) % self.every == 0 or is_last or self.is_stop_asked():
            state = {
                "step": step + 1,
                "logit": learner.logit,
                "version": learner.policy_version,
                "counters": learner.counters,
                "score": score,
            }
            (self.folder / "coin.json").write_text(json.dumps(state), encoding="utf-8")
        if self.is_stop_asked():
            raise RunStoppedError("stopped")


@dataclass
class Coin:
    """Everything that a training opens."""

    engine: CoinEngine
    endpoint: CoinEndpoint
    learner: CoinLearner
    every: int = 1

    @classmethod
    def with_lr(cls, lr: float) -> Coin:
        engine = CoinEngine()
        return cls(engine, CoinEndpoint(engine), CoinLearner(lr))

    def saving(self, folder: Path, run_id: str, *, is_stop_asked: Callable[[], bool]) -> CoinSaving:
        return CoinSaving(self.learner, folder, self.every, is_stop_asked)


def planned(workspace: Workspace, **request: Any) -> TrainPlan:
    return plan_train(
        TrainRequest(start=workspace.root, **request),
        find_model=lambda name: ModelFiles(name, Path("nowhere"), f"the model {name}"),
    )


@dataclass(frozen=True)
class Training:
    """A training that came to its end."""

    outcome: TrainOutcome
    coin: Coin

    @property
    def exit_code(self) -> ExitCode:
        return self.outcome.exit_code

    @property
    def failure(self) -> str:
        return str(self.outcome.failure) if self.outcome.failure else ""

    @property
    def reader(self) -> RunReader:
        return RunReader(self.outcome.folder)

    @property
    def metrics(self) -> list[dict[str, Any]]:
        return list(self.reader.metrics())

    @property
    def rewards(self) -> list[float | None]:
        return [step.reward_mean for step in self.outcome.steps if step.phase == "train"]


def trained(
    workspace: Workspace, coin: Coin | None = None, observer: Quiet | None = None, **request: Any
) -> Training:
    """Train the workspace's job."""
    plan = planned(workspace, **request)
    coin = coin or Coin.with_lr(float(plan.the_job.hyperparameters.get("lr", 1.0)))

    @asynccontextmanager
    async def opened(plan: TrainPlan, say: Callable[[str], None]) -> AsyncIterator[Coin]:
        yield coin

    at_once = RetryPolicy(first_wait_s=0.001)
    work = run_train(plan, observer or Quiet(), retries=at_once, open_parts=opened)
    return Training(asyncio.run(work), coin)
