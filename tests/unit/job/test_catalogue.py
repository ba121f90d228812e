"""The catalogue of hyperparameters: every entry has a source, and says what it does not know."""

from __future__ import annotations

import re

import pytest

from arkdev.job.catalogue import Evidence, Kind, catalogue, counterpart_of, entries_of
from arkdev.job.hyperparameters import check_value, misused_names
from arkdev.job.methods import RL_METHODS, CustomizationType

ENTRIES = list(catalogue().values())
GRPO_EXAMPLE = {
    "num_steps",
    "batch_size",
    "lr",
    "lr_warmup_steps",
    "num_generations",
    "num_iterations_per_batch",
    "temperature",
    "top_p",
    "max_new_tokens",
    "clip_ratio_high",
    "clip_ratio_low",
    "kl_coefficient",
    "loss_agg_mode",
    "save_every_n_steps",
    "test_every_n_steps",
    "test_num_generations",
    "test_top_p",
}
"""What a public job of that method sets."""


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.name)
def test_an_entry_cites_its_sources_and_methods(entry) -> None:
    assert entry.sources and entry.methods and entry.meaning
    for source in entry.sources:
        assert re.fullmatch(r"[A-Z0-9]+-\d+|(veadk-python|agentkit-samples|ark-cli): \S+", source)
    if set(entry.methods.values()) - {Evidence.INFERRED, Evidence.EXAMPLE}:
        assert any(re.fullmatch(r"[A-Z0-9]+-\d+", source) for source in entry.sources)


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.name)
def test_what_an_entry_gives_as_examples_and_defaults_is_valid(entry) -> None:
    defaults = [entry.default, *entry.default_of.values()]
    for value in (*entry.seen, *entry.usual, *(d for d in defaults if d is not None)):
        assert check_value(entry.name, value) == value
        assert check_value(entry.name, str(value)) in (value, str(value))


def test_every_method_has_hyperparameters_and_only_rl_samples() -> None:
    for method in CustomizationType:
        names = {entry.name for entry in entries_of(method)}
        assert "batch_size" in names
        assert ("num_generations" in names) == ("temperature" in names) == (method in RL_METHODS)
        assert ("lora_rank" in names) == method.endswith("LoRA")


def test_the_names_of_public_jobs_are_there() -> None:
    for method in (CustomizationType.GRPO, CustomizationType.GRPOLoRA):
        names = {entry.name for entry in entries_of(method)}
        assert names >= GRPO_EXAMPLE
        assert misused_names(dict.fromkeys(GRPO_EXAMPLE, 1), method=method) == {}
    documented = {"topk": "[0, 128]", "reverse_kl_weight": "[0, 1]"}
    for name, allowed in documented.items():
        assert str(catalogue()[name].range) == allowed
    assert catalogue()["topk_type"].options == ("default", "student", "teacher")
    assert catalogue()["normalize_topk"].kind is Kind.BOOLEAN


@pytest.mark.parametrize(
    ("name", "good", "bad"),
    [
        ("topk", (0, 1, "128"), (-1, 129, 1.5)),
        ("reverse_kl_weight", (0, 0.5, "1"), (-0.1, 1.1)),
        ("topk_type", ("default", "student", "teacher"), ("both", 1)),
        ("normalize_topk", (True, "false"), ("yes", 2)),
        ("task_reward_coef", (0, "1.5"), ("much",)),
        ("kl_reward_coef", (0, 0.1), (None,)),
    ],
)
def test_what_the_documents_say_of_distillation_is_checked(
    name: str, good: tuple[object, ...], bad: tuple[object, ...]
) -> None:
    """OPD-10, 11, 27 to 30: of OPD alone."""
    for value in good:
        check_value(name, value)
    for value in bad:
        with pytest.raises(ValueError, match=r"expected|not a"):
            check_value(name, value)
    assert misused_names({name: 1}, method=CustomizationType.OPD) == {}
    assert "does not take it" in misused_names({name: 1}, method=CustomizationType.GRPO)[name]


def test_a_default_that_no_source_states_is_unknown() -> None:
    assert catalogue()["lr"].default_for("doubao-seed-2-0-lite") is None
    assert catalogue()["max_new_tokens"].default_for("any") == 4096
    replay = catalogue()["enable_routing_replay"]
    assert replay.default_for("doubao-seed-2-0-lite") is True
    assert replay.default_for("doubao-seed-1-6") is None


@pytest.mark.parametrize(
    ("name", "method", "other"),
    [
        ("lr", "FinetuneSft", "learning_rate"),
        ("learning_rate", "GRPO", "lr"),
        ("num_steps", "DPO", "epoch"),
        ("temperature", "DPO", None),
        ("lr", "GRPO", None),
    ],
)
def test_a_name_of_another_method_has_its_counterpart(
    name: str, method: str, other: str | None
) -> None:
    assert counterpart_of(name, method=CustomizationType(method)) == other
