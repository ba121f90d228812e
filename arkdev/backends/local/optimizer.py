"""AdamW over what is trained.

The learning rate follows from the number of the step alone (`settings.learning_rate`), so there is
no scheduler whose state could be lost: a resumed run has the rates of an uninterrupted one.
"""

from __future__ import annotations

from torch.optim import AdamW

from arkdev.backends.local.policy import Policy
from arkdev.backends.local.settings import UpdateSettings


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
