"""What each key of a job does on each backend, by method: the one table of it.

A key that a backend would pass over is `REFUSED` there: `arkdev plan` and whatever starts work on
that backend make an error of it, with the nearest setting that works. Keys without effect on the
work that are no pretence either (a label, a learning rate in a debug run) are `RECORDED`, and said.

``debug`` is a debug run of arkdev; ``local`` is training by arkdev on this machine; ``remote`` is a
job on the platform, as its documents say. `COMES_WITH` has those that arkdev cannot start yet.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from arkdev.job.catalogue import Part
from arkdev.job.methods import RL_METHODS, CustomizationType
from arkdev.job.problems import KeyPath


class BackendName(StrEnum):
    """Where a job runs."""

    DEBUG = "debug"
    LOCAL = "local"
    REMOTE = "remote"


COMES_WITH = {
    BackendName.REMOTE: "submission to the platform is not built yet; this is what its documents "
    "say",
}
"""What to say of a backend that arkdev cannot start yet."""


class Support(StrEnum):
    """What becomes of a key."""

    USED = "used"
    """It does what it says."""
    PARTLY = "partly"
    """It does that in part, or otherwise than on the platform; the text says how."""
    RECORDED = "recorded"
    """Checked and kept with the run; what is run does not depend on it."""
    REFUSED = "refused"
    """It would be passed over, so it is an error."""


@dataclass(frozen=True)
class Effect:
    """What one key does on one backend."""

    support: Support
    text: str
    instead: str = ""
    """The nearest setting that works, for what is refused."""


def _used(text: str) -> Effect:
    return Effect(Support.USED, text)


def _partly(text: str) -> Effect:
    return Effect(Support.PARTLY, text)


def _recorded(text: str) -> Effect:
    return Effect(Support.RECORDED, text)


def _refused(text: str, instead: str) -> Effect:
    return Effect(Support.REFUSED, text, instead)


@dataclass(frozen=True)
class Capability:
    """One row of the table."""

    debug: Effect
    local: Effect
    remote: Effect

    def on(self, backend: BackendName) -> Effect:
        """Return what the key does on `backend`."""
        effect: Effect = getattr(self, backend.value)
        return effect


def _same(effect: Effect) -> Capability:
    return Capability(effect, effect, effect)


_ON_PLATFORM = "the data is on the platform, out of reach from here"
_FILES_INSTEAD = "name local_files"
_IN_PROCESS = "runs in arkdev's process, with --faas in instances; time limits hold"
_SHARED = "set for all plugins, which share the process; with --faas for this one alone"
_RUNTIME = (
    "timeout and request_concurrency hold; with --faas sizes, replicas and calls at once do too"
)
_AS_FUNCTION = "runs as a cloud function of the size that its Runtime says"
_LABEL = "a label"
_NO_WEIGHTS = "a debug run changes no weights"
_STAND_INS = "the files that arkworkspace.toml names for the ids; without them an error"
_GRPO_ONLY = "this machine trains with GRPO so far; PPO and OPD come with what is built next"
_GRPO = "customization_type GRPO or GRPOLoRA; arkdev debug rehearses the job as it is"

_DATA_FORMS = {
    "local_files": Capability(
        _used("these files are read"),
        _used("these files are read"),
        _used("these files are uploaded"),
    ),
    "tos_bucket": Capability(
        _refused(_ON_PLATFORM, _FILES_INSTEAD),
        _refused(_ON_PLATFORM, _FILES_INSTEAD),
        _used("the bucket of tos_paths"),
    ),
    "tos_paths": Capability(
        _refused(_ON_PLATFORM, _FILES_INSTEAD),
        _refused(_ON_PLATFORM, _FILES_INSTEAD),
        _used("these objects are read"),
    ),
    "datasets": Capability(
        _partly(_STAND_INS),
        _partly(_STAND_INS),
        _used("these datasets are mixed by multiplier or sample_count"),
    ),
}
_PRESETS = Capability(_partly(_STAND_INS), _partly(_STAND_INS), _used("preset data is mixed in"))
_TOLERANCE = _same(_used("so many invalid records are left out; more of them stop the job"))

KEYS: Mapping[str, Capability] = {
    "name": _same(_recorded(_LABEL)),
    "project": Capability(
        _recorded(_LABEL), _recorded(_LABEL), _used("the project that the job belongs to")
    ),
    "description": _same(_recorded(_LABEL)),
    "tags": _same(_recorded("labels")),
    "model_reference.foundation_model": Capability(
        _partly("plugins see its name; the debug endpoint's model answers"),
        _partly("plugins see its name; a model on this machine is trained in its place"),
        _used("the model that is trained"),
    ),
    "model_reference.custom_model_id": Capability(
        _partly("plugins see its name; the debug endpoint's model answers"),
        _partly("plugins see its name; a model on this machine is trained in its place"),
        _used("the model that is trained further"),
    ),
    **{f"data.training_set.{form}": row for form, row in _DATA_FORMS.items()},
    "data.training_set.preset_dataset": _PRESETS,
    **{f"data.validation_set.{form}": row for form, row in _DATA_FORMS.items()},
    "data.validation_percentage": _same(
        _used("so much of the training set is kept back for validation")
    ),
    "data.preset_dataset": _PRESETS,
    "data.max_invalid_records_ratio": _TOLERANCE,
    "data.max_invalid_records_number": _TOLERANCE,
    "custom_rl_pipeline.pipeline_type": _same(_used("says the method's kind of pipeline")),
    "custom_rl_pipeline.rollout": Capability(
        _used(_IN_PROCESS), _used(_IN_PROCESS), _used(_AS_FUNCTION)
    ),
    "custom_rl_pipeline.rollout.envs": Capability(
        _partly(_SHARED),
        _partly(_SHARED),
        _used("set in the function's environment"),
    ),
    "custom_rl_pipeline.rollout.runtime": Capability(
        _partly(_RUNTIME),
        _partly(_RUNTIME),
        _used("size, replicas and limits of the function"),
    ),
    "custom_rl_pipeline.rollout.weight": _same(_recorded("1, as every rollout; it weighs nothing")),
    "custom_rl_pipeline.graders": Capability(
        _used(_IN_PROCESS), _used(_IN_PROCESS), _used(_AS_FUNCTION)
    ),
    "custom_rl_pipeline.graders.envs": Capability(
        _partly(_SHARED),
        _partly(_SHARED),
        _used("set in the function's environment"),
    ),
    "custom_rl_pipeline.graders.runtime": Capability(
        _partly(_RUNTIME),
        _partly(_RUNTIME),
        _used("size, replicas and limits of the function"),
    ),
    "custom_rl_pipeline.graders.weight": _same(
        _used("what the grader's reward is multiplied by in the final reward")
    ),
    "custom_rl_pipeline.teachers": Capability(
        _partly("names are checked against the rollouts'; a teacher endpoint answers"),
        _refused(_GRPO_ONLY, _GRPO),
        _used("the models that teach"),
    ),
    "enable_trajectory": Capability(
        _partly("every run of arkdev records its trajectories, also for false"),
        _partly("every run of arkdev records its trajectories, also for false"),
        _used("trajectories are recorded; it needs the log service"),
    ),
    "save_model_limit": Capability(
        _recorded(_NO_WEIGHTS),
        _used("so many of the saved models are kept"),
        _used("so many of the saved models are kept"),
    ),
    "debug_config.apikey": Capability(
        _used("the key of the debug endpoint"),
        _recorded("only debug runs use it"),
        _recorded("only debug jobs use it"),
    ),
    "debug_config.endpoint_id": Capability(
        _used("the endpoint that answers the rollouts"),
        _recorded("only debug runs use it"),
        _recorded("only debug jobs use it"),
    ),
    "resource_group": Capability(
        _refused("a debug job takes no resource group", "take it out, or use --backend remote"),
        _refused("this machine has no resource groups", "take it out, or use --backend remote"),
        _used("the pool of machines that the job runs in"),
    ),
}
"""Key → what it does. Keys below one of these are part of it; of lists, indexes are left out."""

_UPDATED = Capability(
    _recorded(_NO_WEIGHTS), _used("part of the update"), _used("part of the update")
)
PARTS: Mapping[Part, Capability] = {
    Part.SAMPLING: _same(_used("sampling of the rollouts, where a sample does not say otherwise")),
    Part.LOOP: _same(_used("how many samples and rollouts make a step")),
    Part.STEPS: _same(_used("how many steps are run")),
    Part.UPDATE: _UPDATED,
    Part.CHECKPOINTS: Capability(
        _recorded(_NO_WEIGHTS), _used("when the model is saved"), _used("when the model is saved")
    ),
    Part.VALIDATION: _same(_used("rounds on the validation set")),
    Part.ADAPTER: Capability(
        _recorded(_NO_WEIGHTS), _used("the shape of the adapter"), _used("the shape of the adapter")
    ),
    Part.DISTILLATION: Capability(
        _recorded("a debug run has no teacher's probabilities of the student's tokens"),
        _refused(_GRPO_ONLY, _GRPO),
        _used("part of the advantage or of the loss"),
    ),
    Part.ROUTING: Capability(
        _recorded("an endpoint tells nothing of its experts"),
        _refused("no model with experts is trained on this machine yet", "take it out"),
        _used("for models with experts"),
    ),
    Part.SUPERVISED: Capability(
        _recorded("a debug run is of RL only"),
        _recorded("training on this machine is RL only"),
        _used("part of supervised training"),
    ),
}
"""What the hyperparameters of each part do."""

_COEFFICIENT = Capability(
    _partly(
        "part of the advantages that are shown, where a teacher's endpoint gives log probabilities"
    ),
    _refused(_GRPO_ONLY, _GRPO),
    _used("part of the advantage"),
)
HYPERPARAMETERS: Mapping[str, Capability] = {
    "loss_agg_mode": Capability(
        _partly("says what a step's loss is made of; a debug run changes no weights"),
        _used("part of the update"),
        _used("part of the update"),
    ),
    "task_reward_coef": _COEFFICIENT,
    "kl_reward_coef": _COEFFICIENT,
}
"""What those do that are not like the rest of their part."""

LOCAL_SETTING = Capability(
    _refused("only training on this machine has it", "take it out"),
    _used("part of the update"),
    _refused("only training on this machine has it", "take it out"),
)
"""What a setting of `local_settings` does."""

_DECLARED = "named in arkworkspace.toml as one of the platform's"
DECLARED_HYPERPARAMETER = Capability(
    _recorded(f"{_DECLARED}; a debug run does not depend on it"),
    _refused("arkdev does not know what it does and would pass it over", "take it out"),
    _used(f"{_DECLARED}; sent as it is"),
)
_NO_ROUNDS = "the job has no validation set to run rounds on"
_GIVE_A_SET = "give data.validation_set or data.validation_percentage, or take it out"
WITHOUT_VALIDATION = Capability(
    _refused(_NO_ROUNDS, _GIVE_A_SET),
    _refused(_NO_ROUNDS, _GIVE_A_SET),
    _recorded(f"sent as it is; {_NO_ROUNDS}"),
)
"""What hyperparameters of validation do in a job without a validation set."""

_TAKE_OUT = (
    "take it out, or, when the platform has it, name it under [hyperparameters] in "
    "arkworkspace.toml"
)
UNKNOWN_HYPERPARAMETER = Capability(
    _refused("arkdev does not know the name and would pass it over", _TAKE_OUT),
    _refused("arkdev does not know the name and would pass it over", "take it out"),
    _partly("sent as it is; nothing here knows whether the model takes it"),
)

_RL_ONLY = "RL methods only: " + ", ".join(RL_METHODS)
METHODS: Mapping[CustomizationType, Capability] = {
    method: Capability(
        _used(f"the job is run as {method}"),
        _used(f"the job is run as {method}") if method.is_grpo else _refused(_GRPO_ONLY, _GRPO),
        _used(f"the job is run as {method}"),
    )
    if method.is_rl
    else Capability(
        _refused("a debug run rolls out and grades; this method does neither", _RL_ONLY),
        _refused("training on this machine is RL", _GRPO),
        _used(f"the job is run as {method}"),
    )
    for method in CustomizationType
}

GENERAL_DIFFERENCES = (
    (
        "plugins",
        "in arkdev's process; with --faas in instances, with the packages of requirements.txt",
        "cloud functions, with the packages of requirements.txt",
    ),
    ("model", "one on this machine", "the job's own, with its tokenizer and chat template"),
    (
        "environment variables",
        "those of this machine too; with --faas the declared envs only",
        "the declared envs only",
    ),
)
"""(what, local, remote): differences that no key makes."""


def capability_of(key: KeyPath) -> Capability | None:
    """Return the row of a key of `KEYS`, found by the longest beginning of `key`."""
    names = [part for part in key if isinstance(part, str)]
    found = (KEYS.get(".".join(names[:end])) for end in range(len(names), 0, -1))
    return next((row for row in found if row is not None), None)
