"""SURFACE CTX: the context that plugins get."""

import pytest

from arkdev import PluginContext, RolloutResult, rollout, single_grader
from tests.running import LINE, running

DOCUMENTED = {
    "model_customization_job_id": "mcj-1",
    "foundation_model_name": "doubao-1-5-lite-32k",
    "foundation_model_version": "250115",
    "customization_type": "GRPO",
    "phase": "train",
    "is_mock": False,
}


def test_the_context_has_the_documented_fields():
    assert PluginContext().model_dump() == {
        "model_customization_job_id": "",
        "foundation_model_name": "",
        "foundation_model_version": "",
        "customization_type": "",
        "phase": "",
        "is_mock": False,
        "current_training_step": None,
    }
    context = PluginContext(**DOCUMENTED, current_training_step=3)
    assert context.model_dump() == {**DOCUMENTED, "current_training_step": 3}
    assert context["phase"] == context.get("phase") == "train"


@pytest.mark.parametrize("phase", ["test", "train"])
async def test_the_phase_is_test_and_the_run_is_no_mock(phase):
    seen = []

    @rollout
    async def notes_context(context: PluginContext, proxy, sample):
        seen.append((context.phase, context.is_mock, context.foundation_model_name))
        context.phase = "changed by the rollout"
        return RolloutResult()

    @single_grader
    def notes_context_too(context: dict, sample, trajectory):
        seen.append((context["phase"], context["is_mock"], context["foundation_model_name"]))
        return 1.0

    async with running() as run:
        assert run.context.phase == "test"
        run.context = PluginContext(phase=phase, foundation_model_name="doubao")
        await run.samples(notes_context, notes_context_too)
    assert seen == [(phase, False, "doubao")] * 2


async def test_an_empty_dict_is_a_context():
    @rollout
    async def typed(context: PluginContext | None, proxy, sample):
        return RolloutResult(extra={"phase": context.phase})

    @rollout
    def untyped(context, proxy, sample):
        return RolloutResult(extra=context)

    @single_grader
    async def documented(context: dict, sample: dict, trajectory: dict):
        return float(context == {} and sample["messages"] == LINE["messages"])

    async with running() as run:
        assert (await typed({}, run.proxy(), LINE)).extra == {"phase": ""}
        assert (await untyped({}, run.proxy(), LINE)).extra == {}
    assert await documented({}, LINE, {"messages": []}) == 1.0


def test_the_older_spelling_of_the_job_id_is_accepted():
    context = PluginContext(**{"modle_customization_job_id": "mcj-7"})
    assert context.model_customization_job_id == "mcj-7"
    newer = PluginContext(model_customization_job_id="mcj-8")
    assert newer.modle_customization_job_id == newer["modle_customization_job_id"] == "mcj-8"
