"""job.yaml: values stay what the author wrote, mistakes are named with file and line."""

from __future__ import annotations

from pathlib import Path

import pytest

from arkdev.errors import ExitCode, JobError
from arkdev.job.capabilities import BackendName
from arkdev.job.effects import require_supported
from arkdev.job.job import Job
from arkdev.job.reader import read_job

DOCUMENTED = """\
name: sdk-job
customization_type: GRPO
model_reference:
  foundation_model:
    name: doubao-seed-2-0-lite
    model_version: '260428'
custom_rl_pipeline:
  graders:
    - plugin:
        name: random_reward
        python_func: plugins.random_reward:random_reward_fn
        envs:
          foo: bar
      weight: 0.5
  rollout:
    plugin:
      name: demo_rollout
      python_func: plugins.weather_rollout:demo_rollout
      envs:
        foo: bar
data: # 数据配置
  training_set:
    local_files:
      - ./data/mcj_rollout_test_dataset.jsonl # 训练集本地文件路径
save_model_limit: 1
debug_config:
  apikey: your_api_key
  endpoint_id: endpoint_id
"""

MINIMAL = """\
model_reference: {foundation_model: {name: m, model_version: 250115}}
customization_type: GRPO
data: {training_set: {local_files: [data/train.jsonl]}}
custom_rl_pipeline:
  graders:
    - plugin: plugins.g:grade
"""


def read(folder: Path, text: str) -> Job:
    (folder / "job.yaml").write_text(text, encoding="utf-8")
    job = read_job(folder)
    assert job is not None
    return job


def problems_of(folder: Path, text: str) -> str:
    with pytest.raises(JobError) as caught:
        read(folder, text)
    assert caught.value.exit_code == ExitCode.USAGE
    return str(caught.value).replace(f"{folder}/", "")


def test_documented_example_is_read(tmp_path: Path) -> None:
    job = read(tmp_path, DOCUMENTED)
    assert (job.name, job.customization_type) == ("sdk-job", "GRPO")
    assert (job.model_name, job.model_version) == ("doubao-seed-2-0-lite", "260428")
    assert job.rollout is not None
    assert job.rollout.reference == "plugins.weather_rollout:demo_rollout"
    assert (job.rollout.name, job.rollout.envs) == ("demo_rollout", {"foo": "bar"})
    assert job.rollout.where == f"{tmp_path}/job.yaml:15"
    [grader] = job.graders
    assert (grader.name, grader.weight, grader.envs) == ("random_reward", 0.5, {"foo": "bar"})
    assert grader.reference == "plugins.random_reward:random_reward_fn", "the YAML name may differ"
    assert job.training_files == (tmp_path / "data/mcj_rollout_test_dataset.jsonl",)
    assert job.source == tmp_path / "job.yaml"
    assert "your_api_key" not in repr(job)


def test_short_forms_have_weight_one_and_the_functions_name(tmp_path: Path) -> None:
    text = MINIMAL.replace(
        "graders:", "pipeline_type: GRPOPipeline\n  rollout: plugins.r:go\n  graders:"
    )
    job = read(tmp_path, text + "    - plugins.h:judge\n")
    assert job.rollout is not None and job.rollout.name == "go"
    assert [(g.name, g.weight, g.reference) for g in job.graders] == [
        ("grade", 1.0, "plugins.g:grade"),
        ("judge", 1.0, "plugins.h:judge"),
    ]


def test_envs_and_weight_are_taken_from_either_level(tmp_path: Path) -> None:
    grader = """\
    - plugin: {python_func: "p.g:f", weight: 2, envs: {A: a}, runtime: {timeout: 30}}
      envs: {B: b}
"""
    job = read(tmp_path, MINIMAL + grader)
    assert job.graders[1].weight == 2.0
    assert job.graders[1].envs == {"A": "a", "B": "b"}
    assert job.graders[1].runtime == {"timeout": 30.0}


@pytest.mark.parametrize(
    ("inside", "message"),
    [
        ("{plugin: {python_func: 'p:f', weight: 2}, weight: 3}", "two weights, 3.0 and 2.0"),
        ("{plugin: {python_func: 'p:f', envs: {A: a}}, envs: {A: b}}", "two values for A"),
        ("{plugin: plugins/g.py:f}", "did you mean 'plugins.g:f'?"),
        ("{plugin: plugins.g.f}", "did you mean 'plugins.g:f'?"),
        ("{python_func: 'p:f'}", "misplaced key 'python_func'; it belongs in a plugin"),
        ("{plugin: 'p:f', weight: .inf}", "weight"),
        ("{plugin: 'p:f', weight: true}", "weight"),
        ("{plugin: 'p:f', weigth: 1}", "did you mean 'weight'?"),
    ],
)
def test_a_grader_that_cannot_be_meant_is_refused(
    tmp_path: Path, inside: str, message: str
) -> None:
    text = problems_of(tmp_path, MINIMAL + f"    - {inside}\n")
    assert "job.yaml:7: custom_rl_pipeline.graders[1]" in text
    assert message in text


def test_no_rollout_means_the_built_in_one(tmp_path: Path) -> None:
    assert read(tmp_path, MINIMAL).rollout is None


@pytest.mark.parametrize(
    ("written", "text"),
    [
        *[
            (text, text)
            for text in ("no", "on", "0123", "1e3", "12:30", "True", "2024-01-01", "0x1F")
        ],
        ("'~'", "~"),
    ],
)
def test_unquoted_envs_keep_their_literal_text(tmp_path: Path, written: str, text: str) -> None:
    job = read(tmp_path, MINIMAL + f"      envs: {{A: {written}}}\n")
    assert job.graders[0].envs == {"A": text}
    assert type(job.graders[0].envs["A"]) is str


@pytest.mark.parametrize("written", ["~", "", "null"])
def test_an_empty_env_asks_for_quotes_with_the_line(tmp_path: Path, written: str) -> None:
    text = problems_of(tmp_path, MINIMAL + f"      envs:\n        A: x\n        E: {written}\n")
    assert text.startswith("job.yaml:9: custom_rl_pipeline.graders[0].envs.E")
    assert "quotes" in text


@pytest.mark.parametrize("version", ["250115", "012345", "12:30", "no", "2025-01-15", "1.10"])
def test_model_version_stays_what_the_author_wrote(tmp_path: Path, version: str) -> None:
    assert read(tmp_path, MINIMAL.replace("250115", version)).model_version == version


def test_hyperparameters_are_numbers_written_either_way(tmp_path: Path) -> None:
    values = """\
hyperparameters:
  lr: 1e-5
  kl_coefficient: "2e-6"
  batch_size: "128"
  num_generations: 8
  temperature: 0.7
  loss_agg_mode: token-mean
  some_code: 0123
  enable_routing_replay: true
"""
    job = read(tmp_path, MINIMAL + values)
    assert job.hyperparameters == {
        "lr": 1e-5,
        "kl_coefficient": 2e-6,
        "batch_size": 128,
        "num_generations": 8,
        "temperature": 0.7,
        "loss_agg_mode": "token-mean",
        "some_code": "0123",
        "enable_routing_replay": True,
    }
    assert (job.batch_size, job.num_generations) == (128, 8)


@pytest.mark.parametrize(
    ("name", "written"),
    [
        ("lr", "1e-5x"),
        ("lr", ".nan"),
        ("lr", "0"),
        ("num_steps", "2.5"),
        ("normalize_topk", "maybe"),
        ("topk", "129"),
        ("thinking", "sometimes"),
        ("clip_ratio_low", "1.5"),
        ("lr", "1e999"),
        ("batch_size", "0"),
        ("batch_size", "1.5"),
        ("num_generations", "many"),
        ("temperature", "true"),
        ("anything", "[1, 2]"),
        ("anything", "~"),
    ],
)
def test_a_hyperparameter_that_is_no_number_is_refused_by_name(
    tmp_path: Path, name: str, written: str
) -> None:
    text = problems_of(tmp_path, MINIMAL + f"hyperparameters:\n  a: 1\n  {name}: {written}\n")
    assert f"job.yaml:9: hyperparameters.{name}: " in text


@pytest.mark.parametrize(
    ("method", "name", "advice"),
    [
        ("FinetuneSft", "leaning_rate", "did you mean 'learning_rate'?"),
        ("GRPO", "leaning_rate", "did you mean 'lr', as GRPO calls 'learning_rate'?"),
        ("GRPO", "learning_rate", "it is called 'lr' there"),
        ("FinetuneSft", "lr", "it is called 'learning_rate' there"),
        ("GRPO", "lora_rank", "GRPO does not take it"),
        ("GRPO", "topk", "GRPO does not take it"),
        ("DPO", "num_generations", "DPO does not take it"),
        ("GRPO", "loss_name", "must not set"),
    ],
)
def test_a_misspelt_hyperparameter_or_one_of_another_method_is_an_error(
    tmp_path: Path, method: str, name: str, advice: str
) -> None:
    text = MINIMAL if method == "GRPO" else MINIMAL.partition("custom_rl_pipeline")[0]
    text = text.replace("GRPO", method) + f"hyperparameters:\n  {name}: 1\n"
    line = text.count("\n")
    message = problems_of(tmp_path, text)
    assert message.startswith(f"job.yaml:{line}: hyperparameters.{name}: ")
    assert advice in message


def test_a_name_that_the_workspace_declares_is_no_slip(tmp_path: Path) -> None:
    """The platform may have a name that is one letter off another one, and more than is public."""
    text = MINIMAL + "hyperparameters:\n  lrs: 1\n  clip_ratio_hihg: 0.3\n  topk: 4\n"
    told = problems_of(tmp_path, text)
    assert "clip_ratio_hihg" in told and "[hyperparameters] in arkworkspace.toml" in told
    (tmp_path / "arkworkspace.toml").write_text(
        '[hyperparameters]\nknown = ["clip_ratio_hihg", "topk"]\n', encoding="utf-8"
    )
    job = read(tmp_path, text)
    assert job.hyperparameters == {"lrs": 1, "clip_ratio_hihg": 0.3, "topk": 4}
    assert [warning.partition(": ")[2] for warning in job.warnings] == [
        "hyperparameters.lrs: not a name that arkdev knows, so nothing checks it"
        + job.warnings[0].partition("nothing checks it")[2]
    ]
    assert "loss_name" in problems_of(tmp_path, MINIMAL + "hyperparameters: {loss_name: 1}\n")
    with pytest.raises(JobError, match=r"has no effect on debug.*arkworkspace\.toml"):
        require_supported(job, BackendName.DEBUG)
    declared = '[hyperparameters]\nknown = ["clip_ratio_hihg", "topk", "lrs"]\n'
    (tmp_path / "arkworkspace.toml").write_text(declared, encoding="utf-8")
    job = read(tmp_path, text)
    require_supported(job, BackendName.DEBUG)
    assert job.warnings == ()
    with pytest.raises(JobError, match="no effect on local"):
        require_supported(job, BackendName.LOCAL)


def test_a_hyperparameter_that_is_like_no_other_is_a_warning_with_its_line(tmp_path: Path) -> None:
    job = read(tmp_path, MINIMAL + "hyperparameters:\n  router_bias: 1e-5\n")
    [warning] = job.warnings
    assert "job.yaml:8: hyperparameters.router_bias: not a name that arkdev knows" in warning
    assert job.hyperparameters == {"router_bias": 1e-5}


def test_thinking_has_the_form_of_a_sample(tmp_path: Path) -> None:
    job = read(tmp_path, MINIMAL + "hyperparameters: {thinking: enabled}\n")
    assert job.hyperparameters == {"thinking": {"type": "enabled"}}


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("learning_rate: 1e-5", "misplaced key 'learning_rate'; it belongs in hyperparameters"),
        ("tag: x", "unknown key 'tag'; did you mean 'tags'?"),
        ("zzz: x", "unknown key 'zzz'; known: "),
        ("local_files: [x]", "it belongs in data.training_set"),
        ("save_model_limit: some", "save_model_limit: "),
    ],
)
def test_an_unknown_or_misplaced_key_is_an_error_with_its_line(
    tmp_path: Path, line: str, message: str
) -> None:
    text = problems_of(tmp_path, MINIMAL + line + "\n")
    assert text.startswith("job.yaml:7: ")
    assert message in text


def test_all_problems_are_told_at_once(tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text(
        MINIMAL.replace("GRPO", "grpo") + "nmae: x\nlr: 1\n", encoding="utf-8"
    )
    with pytest.raises(JobError) as caught:
        read_job(tmp_path)
    assert [problem.split(": ", 1)[0].rpartition(":")[2] for problem in caught.value.problems] == [
        "2",
        "7",
        "8",
    ]
    assert "did you mean 'GRPO'?" in caught.value.problems[0]


@pytest.mark.parametrize(
    ("text", "line", "first"),
    [
        (MINIMAL + "data: {}\n", 7, 3),
        (MINIMAL + "  rollout: p:f\n  rollout: p:g\n", 8, 7),
        (MINIMAL + "      envs:\n        A: x\n        A: x\n", 9, 8),
    ],
)
def test_duplicate_keys_are_errors_with_both_lines(
    tmp_path: Path, text: str, line: int, first: int
) -> None:
    message = problems_of(tmp_path, text)
    assert message.startswith(f"job.yaml:{line}: ")
    assert f"first on line {first}" in message
    assert ("only one rollout" in message) == ("rollout" in text)


def test_a_list_of_rollouts_is_refused(tmp_path: Path) -> None:
    message = problems_of(tmp_path, MINIMAL + "  rollout:\n    - p:f\n    - p:g\n")
    assert message.startswith("job.yaml:7: custom_rl_pipeline.rollout: only one rollout")


@pytest.mark.parametrize(
    ("pipeline", "line"),
    [
        ("custom_rl_pipeline: {rollout: 'p:f'}", 4),
        ("custom_rl_pipeline:\n  graders: []", 5),
        ("custom_rl_pipeline:\n  graders:", 5),
        ("custom_rl_pipeline:\n  graders: p:f", 5),
        ("name: x", 1),
    ],
)
def test_an_rl_job_without_graders_is_refused(tmp_path: Path, pipeline: str, line: int) -> None:
    head = MINIMAL.partition("custom_rl_pipeline")[0]
    message = problems_of(tmp_path, head + pipeline + "\n")
    assert message.startswith(f"job.yaml:{line}: ")
    assert "grader" in message


@pytest.mark.parametrize(
    ("pipeline_type", "method"),
    [("GRPOPipeline", "GRPO"), ("PPOPipeline", "PPO"), ("OPDPipeline", "OPD")],
)
def test_the_method_is_inferred_from_the_pipeline(
    tmp_path: Path, pipeline_type: str, method: str
) -> None:
    text = MINIMAL.replace("customization_type: GRPO\n", "")
    text += f"  pipeline_type: {pipeline_type}\n"
    if method == "OPD":
        text += "  teachers: {t: {model: {custom_model_id: cm-1}}}\n"
    job = read(tmp_path, text)
    assert job.customization_type == method
    assert job.inferred[0].startswith(f"customization_type: {method}, because a {pipeline_type}")


def test_a_job_without_rl_has_no_plugins(tmp_path: Path) -> None:
    head = MINIMAL.partition("custom_rl_pipeline")[0].replace("GRPO", "FinetuneSft")
    assert read(tmp_path, head).graders == ()
    assert "takes no custom_rl_pipeline" in problems_of(
        tmp_path, MINIMAL.replace("GRPO", "FinetuneSft")
    )


@pytest.mark.parametrize(
    ("data", "files"),
    [
        ("{training_set: {tos_bucket: b, tos_paths: [p]}}", 0),
        ("{training_set: {datasets: [{dataset_id: d, multiplier: 2}]}}", 0),
        ("{training_set: {local_files: [a, b], preset_datasets: {dataset_version_id: x}}}", 2),
        ("{training_set: {local_files: [a]}, preset_dataset: [{dataset_version_id: x}]}", 1),
    ],
)
def test_every_form_of_data_is_understood(tmp_path: Path, data: str, files: int) -> None:
    text = MINIMAL.replace("{training_set: {local_files: [data/train.jsonl]}}", data)
    assert len(read(tmp_path, text).training_files) == files


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"a: [1\nb: 2\n", "not valid YAML"),
        (b"- a\n", "a mapping with the job's fields"),
        (b"", "a mapping with the job's fields"),
        (b"a: 1\n---\nb: 2\n", "not valid YAML"),
        (b"a: &x [*x]\n", "an alias contains itself"),
        (b"a: !python/object x\n", "has no meaning here"),
        (b"<<: {a: 1}\n", "merge keys"),
        ("name: 中文".encode("gbk"), "not UTF-8"),
    ],
)
def test_a_file_that_is_no_job_gets_its_own_message(
    tmp_path: Path, content: bytes, message: str
) -> None:
    (tmp_path / "job.yaml").write_bytes(content)
    with pytest.raises(JobError, match=message):
        read_job(tmp_path)


def test_a_control_character_is_told_with_its_place(tmp_path: Path) -> None:
    told = problems_of(tmp_path, MINIMAL.replace("GRPO", "GR\x1fPO", 1))
    assert told.startswith("job.yaml:")
    assert "the control character U+001F" in told
    line = MINIMAL[: MINIMAL.index("GRPO")].count("\n") + 1
    assert told.startswith(f"job.yaml:{line}:")


def test_bom_and_crlf_change_nothing(tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_bytes(
        b"\xef\xbb\xbf" + DOCUMENTED.replace("\n", "\r\n").encode("utf-8")
    )
    job = read_job(tmp_path)
    assert job is not None and job.rollout is not None
    assert job.rollout.where.endswith(":15")


def test_aliases_stand_for_their_value(tmp_path: Path) -> None:
    job = read(tmp_path, MINIMAL + "      envs: &e {A: no}\n    - {plugin: 'p:f', envs: *e}\n")
    assert job.graders[1].envs == {"A": "no"}


def test_an_anchor_that_is_given_again_counts_from_there_on(tmp_path: Path) -> None:
    text = MINIMAL + "hyperparameters: {lr: &a 1, num_steps: &a 2, batch_size: *a}\n"
    assert read(tmp_path, text).batch_size == 2


def test_yaml_is_preferred_and_job_py_beside_it_is_not_run(tmp_path: Path) -> None:
    (tmp_path / "job.py").write_text("raise RuntimeError\n", encoding="utf-8")
    job = read(tmp_path, MINIMAL)
    assert job.source.name == "job.yaml"
    assert job.warnings == ()


def test_no_job_file_is_no_error(tmp_path: Path) -> None:
    assert read_job(tmp_path) is None


def test_a_named_job_file_has_to_exist_and_to_be_of_a_known_kind(tmp_path: Path) -> None:
    (tmp_path / "job.toml").write_text("", encoding="utf-8")
    for name, message in (("nope.yaml", "no such job file"), ("job.toml", "ends in .yaml")):
        with pytest.raises(JobError, match=message):
            read_job(tmp_path, tmp_path / name)


@pytest.mark.parametrize(
    ("written", "place", "message"),
    [
        ('{"A=B": x}', "envs.A=B", "no environment can hold this name"),
        ('{"": x}', "envs.", "no environment can hold this name"),
        ('{"A\\0": x}', "envs.A", "no environment can hold this name"),
        ('{A: "x\\0"}', "envs.A", "no environment can hold a NUL"),
        ('{A: "\\ud83d"}', "envs.A", "half a surrogate pair"),
        ('{"A\\ud83d": x}', "envs.A", "half a surrogate pair"),
    ],
)
def test_what_no_process_can_have_in_its_environment_is_told_with_its_line(
    tmp_path: Path, written: str, place: str, message: str
) -> None:
    text = problems_of(tmp_path, MINIMAL + f"      envs: {written}\n")
    assert text.startswith("job.yaml:7: custom_rl_pipeline.graders[0]." + place)
    assert message in text


@pytest.mark.parametrize(
    ("line", "place"),
    [
        ('name: "a\\ud83d"', "name"),
        ('hyperparameters: {loss_agg_mode: "\\ud83d"}', "hyperparameters.loss_agg_mode"),
        ('hyperparameters: {"\\ud83d": 1}', "hyperparameters."),
    ],
)
def test_half_a_surrogate_pair_is_an_error_where_it_stands(
    tmp_path: Path, line: str, place: str
) -> None:
    text = problems_of(tmp_path, MINIMAL + line + "\n")
    assert text.startswith("job.yaml:7: " + place)
    assert "half a surrogate pair" in text


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ('"a\\0b"', "a path has no NUL in it"),
        ('"tos://bucket/a.jsonl"', "objects in storage go in tos_bucket and tos_paths"),
        ("https://host/a.jsonl", "is no local file"),
    ],
)
def test_what_can_be_no_local_file_is_told_with_its_line(
    tmp_path: Path, name: str, message: str
) -> None:
    text = problems_of(tmp_path, MINIMAL.replace("data/train.jsonl", name))
    assert "data.training_set.local_files" in text
    assert message in text


@pytest.mark.parametrize("name", ["num_steps", "batch_size", "num_generations"])
def test_a_count_beyond_all_counters_is_a_slip(tmp_path: Path, name: str) -> None:
    text = problems_of(tmp_path, MINIMAL + f"hyperparameters: {{{name}: {10**20}}}\n")
    assert f"job.yaml:7: hyperparameters.{name}" in text
    assert "at most 2,147,483,647" in text
