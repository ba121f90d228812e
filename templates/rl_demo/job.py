"""精调任务的 Python 写法，内容与 job.yaml 相同。python job.py 会提交任务。"""

from ark_sdk.resources.model_customization_job import ModelCustomizationJob
from ark_sdk.resources.pipeline_plugin import GRPOPipeline, PipelinePluginWrapper
from ark_sdk.types.model_customization_job import (
    CustomizationType,
    Data,
    FoundationModelReference,
    ModelReference,
    TrainingDataset,
)

from plugins.random_reward import random_reward
from plugins.weather_rollout import demo_rollout

mcj = ModelCustomizationJob(
    name="rl-demo-weather",
    customization_type=CustomizationType.GRPO,
    model_reference=ModelReference(
        foundation_model=FoundationModelReference(
            name="doubao-seed-2-0-mini", model_version="260428"
        )
    ),
    # 名称和取值范围以 ark get foundation-model --fields hyperparameters 的结果为准
    hyperparameters={
        "batch_size": "32",
        "num_generations": "8",
        "num_steps": "5",
        "lr": "1e-6",
        "temperature": "1.0",
        "top_p": "1.0",
        "max_new_tokens": "512",
    },
    data=Data(
        training_set=TrainingDataset(local_files=["./data/mcj_rollout_test_dataset.jsonl"]),
        validation_set=TrainingDataset(local_files=["./data/mcj_rollout_validation_dataset.jsonl"]),
    ),
    custom_rl_pipeline=GRPOPipeline(
        rollout=PipelinePluginWrapper(plugin=demo_rollout),
        graders=[PipelinePluginWrapper(plugin=random_reward, weight=1.0)],
    ),
    save_model_limit=1,
)

if __name__ == "__main__":
    mcj.submit()
    print(mcj.url)
