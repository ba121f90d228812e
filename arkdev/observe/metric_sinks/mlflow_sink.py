"""MLflow (leaf: imports mlflow). A database beside the runs, unless MLFLOW_TRACKING_URI is set.

MLflow takes no ``>`` in a name: ``train/reward->final_reward.mean`` is
``train/reward:final_reward.mean`` there.
"""

from __future__ import annotations

import os
import re
import shlex
import time
from collections.abc import Mapping

from mlflow import MlflowClient
from mlflow.entities import Metric, Param

from arkdev.observe.metric_sinks.sinks import LoggedRun

_RUN_TAG = "arkdev.run"
_NOT_TAKEN = re.compile(r"[^\w\-. :/]")


class MlflowSink:
    """Writes to a server, or to ``mlflow.db`` in the folder that has the run."""

    def __init__(self, run: LoggedRun) -> None:
        database = run.folder.parent / "mlflow.db"
        uri = os.environ.get("MLFLOW_TRACKING_URI") or f"sqlite:///{database}"
        self._client = MlflowClient(tracking_uri=uri)
        is_here = uri.startswith("sqlite:")
        self.place = f"mlflow ui --backend-store-uri {shlex.quote(uri)}" if is_here else uri
        self._run_id = self._opened(run)

    def _opened(self, run: LoggedRun) -> str:
        """Return MLflow's id of the run: of the same one when it goes on."""
        client = self._client
        name = os.environ.get("MLFLOW_EXPERIMENT_NAME", run.project)
        experiment = client.get_experiment_by_name(name)
        experiment_id = experiment.experiment_id if experiment else self._make(name, run)
        found = client.search_runs([experiment_id], f"tags.`{_RUN_TAG}` = '{run.run_id}'")
        if found:
            run_id: str = found[0].info.run_id
            client.update_run(run_id, status="RUNNING")
            return run_id
        made = client.create_run(experiment_id, run_name=run.run_id, tags={_RUN_TAG: run.run_id})
        settings = [Param(taken(name), str(value)) for name, value in run.settings.items()]
        client.log_batch(made.info.run_id, params=settings)
        return str(made.info.run_id)

    def _make(self, name: str, run: LoggedRun) -> str:
        is_configured = "MLFLOW_TRACKING_URI" in os.environ
        files = None if is_configured else (run.folder.parent / "mlflow-artifacts").as_uri()
        return str(self._client.create_experiment(name, artifact_location=files))

    def log(self, metrics: Mapping[str, float], *, step: int) -> None:
        """Send the metrics of a step."""
        now_ms = int(time.time() * 1000)
        numbers = [Metric(taken(name), value, now_ms, step) for name, value in metrics.items()]
        self._client.log_batch(self._run_id, metrics=numbers)

    def close(self, *, has_failed: bool) -> None:
        """Note how the run ended."""
        self._client.set_terminated(self._run_id, "FAILED" if has_failed else "FINISHED")


def taken(name: str) -> str:
    """Return the name under which MLflow takes a metric."""
    return _NOT_TAKEN.sub("_", name.replace("->", ":"))


def open_sink(run: LoggedRun) -> MlflowSink:
    """Open the sink."""
    return MlflowSink(run)
