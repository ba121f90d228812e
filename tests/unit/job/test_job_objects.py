"""The job's objects as job.py writes them."""

from arkdev import single_grader
from arkdev.job.models import (
    Data,
    GRPOPipeline,
    ModelCustomizationJob,
    ModelReference,
    PipelinePluginWrapper,
    Tag,
    TrainingDataset,
)


@single_grader
def grade(context, sample, trajectory): ...


def test_objects_and_plain_dicts_make_the_same_job():
    typed = ModelCustomizationJob(
        name="job",
        model_reference=ModelReference(custom_model_id="cm-1"),
        data=Data(training_set=TrainingDataset(local_files=["d.jsonl"])),
        custom_rl_pipeline=GRPOPipeline(graders=[PipelinePluginWrapper(plugin=grade, weight=0.5)]),
        tags=[Tag(key="team", value="search")],
    )
    plain = ModelCustomizationJob(
        name="job",
        model_reference={"custom_model_id": "cm-1"},
        data={"training_set": {"local_files": ["d.jsonl"]}},
        custom_rl_pipeline=GRPOPipeline(graders=[{"plugin": grade, "weight": 0.5}]),
        tags=[{"key": "team", "value": "search"}],
    )
    assert typed == plain
    assert (plain.tags[0].key, plain.tags[0].value) == ("team", "search")


def test_runtime_sizes_are_written_in_lower_case_too():
    wrapper = PipelinePluginWrapper(
        plugin={"python_func": "p:f", "runtime": {"instance": "cpu1mem2", "timeout": 30}}
    )
    assert wrapper.runtime == {"instance": "cpu1mem2", "timeout": 30.0}
