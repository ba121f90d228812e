"""The training methods, and which pipeline each of them takes (SURFACE CT, Y-12, Y-13)."""

from __future__ import annotations

from enum import StrEnum


class CustomizationType(StrEnum):
    """The training methods: the seven documented ones (JOB-04), OPD and OPDLoRA (Y-12)."""

    FinetuneSft = "FinetuneSft"
    FinetuneLoRA = "FinetuneLoRA"
    DPO = "DPO"
    DPOLoRA = "DPOLoRA"
    GRPO = "GRPO"
    GRPOLoRA = "GRPOLoRA"
    PPO = "PPO"
    OPD = "OPD"
    OPDLoRA = "OPDLoRA"

    @property
    def pipeline(self) -> str | None:
        """The class of the pipeline that the method needs; None: it takes none (Y-13)."""
        return _PIPELINE.get(self)

    @property
    def is_grpo(self) -> bool:
        """True where the advantages of a group are all that a batch is learned from."""
        return self in (CustomizationType.GRPO, CustomizationType.GRPOLoRA)

    @property
    def has_critic(self) -> bool:
        """True where a value model learns beside the policy."""
        return self is CustomizationType.PPO

    @property
    def has_teachers(self) -> bool:
        """True where the student's tokens are compared with a teacher's (OPD)."""
        return self in (CustomizationType.OPD, CustomizationType.OPDLoRA)

    @property
    def is_rl(self) -> bool:
        """True for the methods that need a pipeline."""
        return self.pipeline is not None


_PIPELINE = {
    CustomizationType.GRPO: "GRPOPipeline",
    CustomizationType.GRPOLoRA: "GRPOPipeline",
    CustomizationType.PPO: "PPOPipeline",
    CustomizationType.OPD: "OPDPipeline",
    CustomizationType.OPDLoRA: "OPDPipeline",
}
METHOD_OF_PIPELINE = {
    "GRPOPipeline": CustomizationType.GRPO,
    "PPOPipeline": CustomizationType.PPO,
    "OPDPipeline": CustomizationType.OPD,
}
"""What a pipeline says of the method when `customization_type` is not given (X-18)."""
DEFAULT_PIPELINE = "GRPOPipeline"
"""Of a job that names neither a method nor a pipeline's type."""
RL_METHODS = tuple(method for method in CustomizationType if method.is_rl)
