"""What is saved after a step, what a run goes on from, and what `arkdev export` makes of it."""

from dataclasses import dataclass, field
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM

from arkdev.backends.local.checkpoint import Trained
from arkdev.backends.local.optimizer import make_optimizer
from arkdev.backends.local.policy import Policy
from arkdev.backends.local.saving import RunSaving, SavingSettings
from arkdev.backends.local.settings import LoraSettings, UpdateSettings
from arkdev.backends.local.update import update
from arkdev.errors import RunError, RunStoppedError, WorkspaceError
from arkdev.flows.export_model import export_model
from tests.integration.training_folders import begin, write_step
from tests.local.random_models import VOCABULARY, batch_of, groups, random_model

IDS = torch.arange(24).reshape(2, 12) % VOCABULARY


@dataclass
class Learner:
    policy: Policy
    policy_version: int = 0
    counters: dict[str, float] = field(default_factory=dict)

    def __post_init__(self):
        self.settings = UpdateSettings(lr=0.01)
        self.optimizer = make_optimizer(self.policy, self.settings)
        self.trained = Trained(self.policy.model, self.optimizer)

    def learn(self, step):
        update(self.policy, self.optimizer, batch_of(groups(seed=step), step=step), self.settings)
        self.policy_version += 1

    def logits(self):
        with torch.no_grad():
            return self.policy.model(IDS).logits


@pytest.fixture(scope="module")
def base(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("models") / "base"
    random_model().save_pretrained(folder)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (folder / name).write_text("{}", encoding="utf-8")
    (folder / "chat_template.jinja").write_text("{{ messages }}", encoding="utf-8")
    return folder


@pytest.fixture
def run(tmp_path):
    writer = begin(tmp_path / "runs")
    yield writer
    writer.finish("finished", {})


def learner_of(base, *, lora=None):
    torch.manual_seed(3)
    return Learner(Policy.load(base, lora=lora))


def saving_of(learner, run, base, **settings):
    is_stop_asked = settings.pop("is_stop_asked", lambda: False)
    own = SavingSettings(
        run=run.folder, run_id=run.run_id, source=base, facts={"model": "base"}, **settings
    )
    return RunSaving(learner, own, is_stop_asked=is_stop_asked)


def folders(run, kind):
    root = run.folder / kind
    return sorted(int(path.name[5:]) for path in root.iterdir()) if root.exists() else []


def trained(learner, saving, run, *, scores, first=0):
    for step, score in enumerate(scores, start=first):
        learner.learn(step)
        write_step(run, step)
        saving.after_step(step, score=score, is_last=step == 5)


def test_models_are_saved_when_due_when_best_and_at_the_end(base, run):
    learner = learner_of(base)
    saving = saving_of(learner, run, base, every_n_steps=4, limit=3)
    trained(learner, saving, run, scores=(0.1, 0.9, None, None, 0.5, None))
    # 1 and 2 were the best, 4 was due, 6 is the last: of four, one gives way
    assert folders(run, "models") == [2, 4, 6]
    assert folders(run, "checkpoints")[-1] == 6
    saved = AutoModelForCausalLM.from_pretrained(run.folder / "models" / "step-6")
    assert torch.equal(saved(IDS).logits, learner.logits())


@pytest.mark.parametrize("lora", [None, LoraSettings(rank=4, alpha=8)], ids=["whole", "lora"])
def test_a_run_that_goes_on_is_the_run_that_was_not_interrupted(base, run, lora):
    learner = learner_of(base, lora=lora)
    saving = saving_of(learner, run, base, every_n_steps=2)
    trained(learner, saving, run, scores=(None, 0.5, None))
    learner.counters["tokens"] = 7.0
    saving.after_step(3, score=0.4, is_last=False)  # due, so that there is a state of 4 steps
    learner.learn(4)
    expected = learner.logits()

    again = learner_of(base, lora=lora)
    saving = saving_of(again, run, base, every_n_steps=2)
    problems = []
    assert saving.restore(saving.latest(problems)) == 4
    assert (problems, again.policy_version, again.counters) == ([], 3, {"tokens": 7.0})
    again.learn(4)
    assert torch.equal(again.logits(), expected)
    saving.after_step(4, score=0.45, is_last=False)  # the best so far is 0.5
    assert folders(run, "models") == [2, 4]


def test_models_of_steps_that_are_redone_are_removed(base, run):
    learner = learner_of(base)
    saving = saving_of(learner, run, base, every_n_steps=1)
    trained(learner, saving, run, scores=(None, None))
    newest = run.folder / "checkpoints" / "step-2" / "weights.safetensors"
    newest.write_bytes(newest.read_bytes()[:-1])
    again = saving_of(learner_of(base), run, base, every_n_steps=1)
    problems = []
    assert again.restore(again.latest(problems)) == 1
    assert "weights.safetensors has" in problems[0]
    assert folders(run, "models") == [1, 2]  # until it is known that nobody else goes on
    again.drop_later(1)
    assert folders(run, "models") == [1]
    assert saving_of(learner_of(base), run, base).restore(None) == 0
    again.drop_later(0)
    assert folders(run, "models") == []


def test_a_run_that_is_asked_to_stop_saves_model_and_state_first(base, run):
    learner = learner_of(base)
    saving = saving_of(learner, run, base, is_stop_asked=lambda: True)
    learner.learn(0)
    with pytest.raises(RunStoppedError, match="after step 0"):
        saving.after_step(0, score=None, is_last=False)
    assert (folders(run, "models"), folders(run, "checkpoints")) == ([1], [1])


def test_an_exported_adapter_is_merged_and_answers_as_the_policy_did(base, run, tmp_path):
    learner = learner_of(base, lora=LoraSettings(rank=4, alpha=8))
    saving = saving_of(learner, run, base)
    trained(learner, saving, run, scores=(0.5,))
    assert not (run.folder / "models" / "step-1" / "config.json").exists()
    assert not (run.folder / "models" / "step-1" / "README.md").exists()
    out = tmp_path / "out"
    exported = export_model(run.folder.parent, run="latest", to=out, which="best")
    assert (exported.is_merged, exported.base_model, exported.score) == (True, "base", 0.5)
    assert {"model.safetensors", "tokenizer.json", "chat_template.jinja"} <= set(exported.files)
    modes = {name: (out / name).stat().st_mode for name in ("model.safetensors", "config.json")}
    assert modes["model.safetensors"] == modes["config.json"]
    merged = AutoModelForCausalLM.from_pretrained(out)
    torch.testing.assert_close(merged(IDS).logits, learner.logits(), atol=1e-5, rtol=0)
    before = AutoModelForCausalLM.from_pretrained(base)(IDS).logits
    assert (learner.logits() - before).abs().max() > 1e-3
    assert "LoRA, merged into the base model" in (out / "README.md").read_text(encoding="utf-8")


def test_an_export_leaves_what_is_beside_it_alone(run, base, tmp_path):
    learner = learner_of(base)
    trained(learner, saving_of(learner, run, base), run, scores=(0.5,))
    beside = tmp_path / "out.partial"
    beside.mkdir()
    (beside / "mine.txt").write_text("mine", encoding="utf-8")
    before = set(tmp_path.iterdir())
    export_model(run.folder.parent, run="latest", to=tmp_path / "out", which="last")
    assert set(tmp_path.iterdir()) == before | {tmp_path / "out"}
    assert (beside / "mine.txt").exists()
    with pytest.raises(WorkspaceError, match="it is a file"):
        export_model(run.folder.parent, run="latest", to=beside / "mine.txt", which="last")


def test_an_adapter_whose_base_is_gone_is_an_error_that_leaves_nothing(run, base, tmp_path):
    moved = tmp_path / "moved"
    random_model().save_pretrained(moved)
    learner = learner_of(moved, lora=LoraSettings(rank=4, alpha=8))
    trained(learner, saving_of(learner, run, moved), run, scores=(0.5,))
    moved.rename(tmp_path / "elsewhere")
    with pytest.raises(RunError, match="the model that the adapter belongs to is not there"):
        export_model(run.folder.parent, run="latest", to=tmp_path / "out", which="last")
    assert not (tmp_path / "out").exists()
