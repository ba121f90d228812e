"""AdamW over what is trained, and its state in a checkpoint.

The learning rate follows from the number of the step alone (`settings.learning_rate`), so there is
no scheduler whose state could be lost: a resumed run has the rates of an uninterrupted one.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.optim import AdamW, Optimizer

from arkdev.backends.local.policy import Policy
from arkdev.backends.local.settings import UpdateSettings
from arkdev.errors import ConfigurationError


def make_optimizer(policy: Policy, settings: UpdateSettings) -> AdamW:
    """Return AdamW (arXiv:1711.05101) with its usual β of 0.9 and 0.999.

    Weight decay is for matrices: biases and the scales of norms have none, as in transformers.
    """
    trained = policy.trained_parameters().values()
    matrices = [parameter for parameter in trained if parameter.ndim >= 2]
    others = [parameter for parameter in trained if parameter.ndim < 2]
    groups = [
        {"params": matrices, "weight_decay": settings.weight_decay},
        {"params": others, "weight_decay": 0.0},
    ]
    return AdamW([group for group in groups if group["params"]], lr=settings.lr, fused=True)


def trainer_state(optimizer: Optimizer) -> dict[str, Any]:
    """Return what a checkpoint keeps besides the weights: plain values and tensors.

    The tensors are the optimizer's own; they change with its next step.
    """
    return {"optimizer": optimizer.state_dict()}


def load_state(optimizer: Optimizer, state: dict[str, Any]) -> None:
    """Take the state of a checkpoint, for an optimizer that was made for the same policy.

    Raises `ConfigurationError` when it belongs to weights of other shapes or numbers.
    """
    kept = state["optimizer"]
    here = optimizer.state_dict()["param_groups"]
    sizes = [[len(group["params"]) for group in groups] for groups in (kept["param_groups"], here)]
    shapes = {
        index: tuple(values["exp_avg"].shape)
        for index, values in kept["state"].items()
        if "exp_avg" in values
    }
    trained = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    fits = sizes[0] == sizes[1] and all(
        shape == tuple(trained[index].shape) for index, shape in shapes.items()
    )
    if not fits:
        raise ConfigurationError(
            "the optimizer's state in the checkpoint belongs to another model",
            hint="resume with the model, and the adapters, that the run began with",
        )
    optimizer.load_state_dict(kept)
    # fused AdamW keeps its count beside the weights; a checkpoint read on another device does not
    for parameter, values in optimizer.state.items():
        if isinstance(values.get("step"), torch.Tensor):
            values["step"] = values["step"].to(parameter.device)
