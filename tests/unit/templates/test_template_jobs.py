"""The two job files of a template describe one job."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from arkdev.flows.init_workspace import TEMPLATES, create_workspace
from arkdev.plugin import ark_sdk, loading

reader = pytest.importorskip("arkdev.job.reader")

SAME = (
    "name",
    "customization_type",
    "model_name",
    "model_version",
    "training_files",
    "validation_files",
    "hyperparameters",
    "batch_size",
    "num_generations",
)


@pytest.fixture(autouse=True)
def ark_names() -> Iterator[None]:
    ark_sdk.install()
    yield
    ark_sdk.uninstall()


@pytest.mark.parametrize("template", sorted(TEMPLATES))
def test_yaml_and_python_are_the_same_job(tmp_path: Path, template: str) -> None:
    create_workspace(tmp_path / "ws", template=template)
    jobs = [reader.read_job(tmp_path / "ws", tmp_path / "ws" / f) for f in ("job.yaml", "job.py")]
    for name in SAME:
        assert getattr(jobs[0], name) == getattr(jobs[1], name)

    def functions(job: object) -> list[tuple[str, float]]:
        plugins = [*filter(None, [job.rollout]), *job.graders]  # type: ignore[attr-defined]
        return [
            (loading.load_plugin(p.reference, root=tmp_path / "ws").function.__name__, p.weight)
            for p in plugins
        ]

    assert functions(jobs[0]) == functions(jobs[1])


@pytest.mark.parametrize("name", ["random_reward_fn", "random_reward", "randaom_reward"])
def test_every_documented_name_of_the_grader_resolves(tmp_path: Path, name: str) -> None:
    create_workspace(tmp_path / "ws", template="rl_demo")
    loaded = loading.load_plugin(f"plugins.random_reward:{name}", root=tmp_path / "ws")
    assert loaded.plugin.name == "random_reward"  # what reports show
