"""The same job as job.yaml, as Python objects: change it here to assemble a job by code."""

from arkdev.job.models import (
    CustomizationType,
    Data,
    FoundationModelReference,
    GRPOPipeline,
    ModelCustomizationJob,
    ModelReference,
    PipelinePluginWrapper,
    TrainingDataset,
)
from plugins.exact_answer import exact_answer

mcj = ModelCustomizationJob(
    name="minimal-arithmetic",
    customization_type=CustomizationType.GRPO,
    model_reference=ModelReference(
        foundation_model=FoundationModelReference(
            name="doubao-seed-2-0-mini", model_version="260428"
        )
    ),
    hyperparameters={
        "batch_size": "32",
        "num_generations": "8",
        "num_steps": "4",
        "lr": "1e-6",
        "temperature": "1.0",
        "top_p": "1.0",
        "max_new_tokens": "64",
    },
    data=Data(
        training_set=TrainingDataset(local_files=["./data/train.jsonl"]),
        validation_set=TrainingDataset(local_files=["./data/validation.jsonl"]),
    ),
    # no rollout: the built-in one asks the model once
    custom_rl_pipeline=GRPOPipeline(
        graders=[PipelinePluginWrapper(plugin=exact_answer, weight=1.0)],
    ),
    save_model_limit=1,
)
