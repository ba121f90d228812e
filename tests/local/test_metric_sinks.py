"""The sinks with their packages: what they wrote is read back, and nothing is sent."""

import importlib.util
import os
from pathlib import Path

import pytest

from arkdev.observe.metric_sinks.sinks import LoggedRun, Told, open_sinks
from tests.integration.debugging import Quiet, numbered, write_job
from tests.integration.training import GRADE_GOOD, trained
from tests.integration.workspace import Workspace, away_from_the_user

REWARD = "train/reward->final_reward.mean"
RUN_ID = "20260101T000000Z-train-abcd"
SERVERS = ("WANDB_MODE", "WANDB_API_KEY", "MLFLOW_TRACKING_URI", "TRACKIO_SPACE_ID")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for variable in SERVERS:
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:1")
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    monkeypatch.setenv("MY_TOKEN", "a-secret-of-the-environment")
    made = tmp_path / "runs" / RUN_ID
    made.mkdir(parents=True)
    return made


def needs(name: str) -> None:
    """Skip without the package, or fail where all are required."""
    if importlib.util.find_spec(name) is None:
        assert os.environ.get("ARKDEV_REQUIRE_ENGINES") != "1", f"{name} is not installed"
        pytest.skip(f"{name} is not installed")


def send(name: str, folder: Path, rewards: dict[int, float], *, first_step: int = 0) -> str:
    heard: list[str] = []

    def warn(text: str) -> None:
        raise AssertionError(text)

    run = LoggedRun(RUN_ID, folder, "my project", {"lr": 0.001, "model": "tiny"}, first_step)
    (sink,) = open_sinks([name], run, told=Told(heard.append, warn))
    for step, reward in rewards.items():
        sink.log({REWARD: reward}, step=step)
    sink.close(has_failed=False, within_s=60)
    return heard[0]


def no_secret_below(folder: Path) -> bool:
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert files
    return not any(b"a-secret-of-the-environment" in path.read_bytes() for path in files)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_tensorboard_has_the_metrics_by_name_and_forgets_steps_that_are_redone(folder):
    needs("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    assert "tensorboard --logdir" in send("tensorboard", folder, {0: 0.25, 1: 0.5, 2: 0.75})
    send("tensorboard", folder, {1: 1.0}, first_step=1)
    events = EventAccumulator(str(folder / "tensorboard"))
    events.Reload()
    scalars = [(each.step, each.value) for each in events.Scalars(REWARD)]
    assert scalars == [(0, 0.25), (1, 1.0)]


def test_wandb_writes_offline_and_nothing_of_the_environment(folder):
    needs("wandb")
    said = send("wandb", folder, {0: 0.25, 1: 0.5})
    assert "wandb sync" in said
    (written,) = folder.glob("wandb/offline-run-*/*.wandb")
    data = written.read_bytes()
    assert REWARD.encode() in data and RUN_ID.encode() in data
    assert no_secret_below(folder / "wandb")


@pytest.mark.filterwarnings("ignore")
def test_mlflow_keeps_the_metrics_beside_the_runs_and_goes_on_with_its_run(folder):
    needs("mlflow")
    from mlflow import MlflowClient

    assert "mlflow ui" in send("mlflow", folder, {0: 0.25, 1: 0.5})
    send("mlflow", folder, {2: 0.75}, first_step=2)
    client = MlflowClient(f"sqlite:///{folder.parent / 'mlflow.db'}")
    (experiment,) = client.search_experiments(filter_string="name = 'my project'")
    (run,) = client.search_runs([experiment.experiment_id])
    history = client.get_metric_history(run.info.run_id, "train/reward:final_reward.mean")
    assert [(each.step, each.value) for each in history] == [(0, 0.25), (1, 0.5), (2, 0.75)]
    assert (run.info.status, run.data.params) == ("FINISHED", {"lr": "0.001", "model": "tiny"})
    assert no_secret_below(folder.parent)


@pytest.mark.filterwarnings("ignore")
def test_trackio_keeps_the_metrics_in_its_own_database(folder):
    needs("trackio")
    assert "trackio show" in send("trackio", folder, {0: 0.25, 1: 0.5})
    from trackio import Api
    from trackio.utils import TRACKIO_DIR  # below HF_HOME, which the conftest sets

    (run,) = Api().runs("my-project")
    assert run.name == RUN_ID
    assert TRACKIO_DIR.is_relative_to(os.environ["HF_HOME"])
    assert no_secret_below(TRACKIO_DIR)


class Hearing(Quiet):
    """An observer that keeps what it is told of sinks."""

    def __init__(self):
        self.told, self.warned = [], []

    def on_progress(self, text):
        self.told.append(text)

    def on_warning(self, text):
        self.warned.append(text)


@pytest.mark.filterwarnings("ignore")
def test_a_training_sends_what_its_folder_has_and_a_sink_that_fails_does_not_end_it(
    tmp_path, monkeypatch
):
    needs("tensorboard")
    needs("mlflow")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://me:hunter22222@127.0.0.1:1")
    with away_from_the_user(tmp_path / "config", monkeypatch):
        workspace = Workspace(tmp_path / "ws")
        numbered(workspace, 4)
        workspace.write("plugins/grader.py", GRADE_GOOD)
        values = {"batch_size": 2, "num_generations": 2, "num_steps": 3, "lr": 1.0}
        write_job(workspace, graders=["plugins.grader:good"], hyperparameters=values)
        heard = Hearing()
        run = trained(workspace, observer=heard, log_to=("tensorboard", "mlflow"))
    assert run.exit_code == 0
    events = EventAccumulator(str(run.outcome.folder / "tensorboard"))
    events.Reload()
    for name in (REWARD, "train/entropy"):
        sent = [(each.step, each.value) for each in events.Scalars(name)]
        kept = [(line["step"], pytest.approx(line[name])) for line in run.metrics]
        assert sent == kept
    (warning,) = heard.warned
    assert "--log-to mlflow gets no more metrics" in warning
    assert "hunter" not in warning + (run.outcome.folder / "events.jsonl").read_text("utf-8")
