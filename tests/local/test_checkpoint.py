"""A training state is whole or not at all, and what goes on from it is what would have gone on."""

import random
import subprocess
import sys

import numpy
import pytest
import torch

from arkdev.backends.local.checkpoint import Best, Checkpoints, Progress, Trained, TrainingState
from arkdev.errors import RunError

FULL_DISK = """
import resource, sys
from pathlib import Path
import torch
from arkdev.backends.local.checkpoint import Checkpoints, Progress, Trained, TrainingState
from arkdev.errors import OutputError

resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]),) * 2)
model = torch.nn.Linear(64, 64)
optimizer = torch.optim.AdamW(model.parameters())
model(torch.ones(1, 64)).sum().backward()
optimizer.step()
state = TrainingState.of(Trained(model, optimizer), Progress(step=2, policy_version=2))
try:
    Checkpoints(Path(sys.argv[1]), run_id="mine").save(state)
except OutputError as error:
    print(error)
"""


def make(seed=0, *, width=8):
    torch.manual_seed(seed)
    model = torch.nn.Sequential(torch.nn.Linear(width, 8), torch.nn.Linear(8, 1))
    model[0].weight.requires_grad_(False)
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=0.01)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, step / 5))
    return Trained(model, optimizer, scheduler, {"sampler": torch.Generator().manual_seed(seed)})


def train(trained, steps):
    """Steps that draw from every generator."""
    losses = []
    for _ in range(steps):
        numbers = torch.randn(4, 8, generator=trained.generators["sampler"])
        numbers = numbers + torch.rand(4, 8) + random.random() + float(numpy.random.rand())
        loss = trained.model(numbers).pow(2).mean()
        trained.optimizer.zero_grad()
        loss.backward()
        trained.optimizer.step()
        trained.scheduler.step()
        losses.append(loss.item())
    return losses


@pytest.fixture(autouse=True)
def seeded():
    random.seed(1)
    numpy.random.seed(2)


@pytest.fixture
def checkpoints(tmp_path):
    return Checkpoints(tmp_path / "checkpoints", run_id="mine")


def test_what_goes_on_from_a_state_is_what_would_have_gone_on(checkpoints):
    trained = make()
    train(trained, 3)
    progress = Progress(3, 3, {"tokens": 12}, Best(2, 0.5))
    checkpoints.save(TrainingState.of(trained, progress))
    expected = train(trained, 3)

    random.seed(7)
    numpy.random.seed(7)
    other = make()
    state = checkpoints.latest()
    state.restore(other)
    assert state.progress == progress
    assert train(other, 3) == expected
    assert other.scheduler.get_last_lr() == trained.scheduler.get_last_lr()


def test_only_what_is_trained_is_saved_and_the_last_two_are_kept(checkpoints):
    trained = make()
    for step in (9, 10, 100):
        checkpoints.save(TrainingState.of(trained, Progress(step, step)))
    folder = checkpoints.save(TrainingState.of(trained, Progress(101, 101)))
    assert sorted(path.name for path in folder.parent.iterdir()) == ["step-100", "step-101"]
    assert sorted(checkpoints.latest().weights) == ["0.bias", "1.bias", "1.weight"]


def test_a_run_that_went_back_removes_the_states_of_the_steps_that_it_redoes(checkpoints):
    trained = make()
    for step in (2, 4, 3):
        folder = checkpoints.save(TrainingState.of(trained, Progress(step, step)))
    assert sorted(path.name for path in folder.parent.iterdir()) == ["step-2", "step-3"]


@pytest.mark.parametrize("most_bytes", [100, 18_000])
def test_a_full_disk_leaves_the_state_before(checkpoints, tmp_path, most_bytes):
    """Field case 8.1: while the weights are written, and the optimizer."""
    checkpoints.save(TrainingState.of(make(), Progress(1, 1)))
    done = subprocess.run(
        [sys.executable, "-c", FULL_DISK, tmp_path / "checkpoints", str(most_bytes)],
        check=True,
        capture_output=True,
        text=True,
    )
    assert "step-2 cannot be saved" in done.stdout, done
    assert "File too large" in done.stdout, done
    assert checkpoints.latest().progress.step == 1


def test_a_state_of_another_model_is_an_error_that_says_so(checkpoints):
    checkpoints.save(TrainingState.of(make(), Progress(1, 1)))
    frozen_otherwise = make()
    frozen_otherwise.model[1].weight.requires_grad_(False)
    with pytest.raises(RunError, match=r"in one of them only, among them 1\.weight"):
        checkpoints.latest().restore(frozen_otherwise)
    other = make()
    with pytest.raises(RunError, match="schedule"):
        checkpoints.latest().restore(Trained(other.model, other.optimizer))


def test_weights_that_share_memory_are_saved_once(checkpoints):
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 4))
    model[1].weight = model[0].weight
    trained = Trained(model, torch.optim.SGD(model.parameters()))
    checkpoints.save(TrainingState.of(trained, Progress(1, 1)))
    checkpoints.latest().restore(trained)
    assert sorted(checkpoints.latest().weights) == ["0.bias", "0.weight", "1.bias"]
