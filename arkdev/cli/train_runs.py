"""``arkdev show`` of a training: its steps, its curve, its models."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from arkdev.cli.debug_report import print_sections
from arkdev.cli.html_report import steps_of
from arkdev.cli.output import console
from arkdev.cli.report import headline
from arkdev.cli.terminal import symbols
from arkdev.cli.train_report import curve_section, kl_column, outcome_section, steps_section
from arkdev.flows.job_steps import job_id_of
from arkdev.flows.train import named_models
from arkdev.runs.records import TEST

if TYPE_CHECKING:
    from arkdev.runs.reader import RunReader


def training_json(reader: RunReader) -> dict[str, Any] | None:
    """Return what a training adds to the document of a run; None for another run."""
    if reader.manifest.kind != "train":
        return None
    summary = reader.manifest.summary or {}
    models = named_models(reader.folder, reader.manifest.run_id)
    return {
        "job_id": job_id_of(reader),
        "failure": summary.get("failure"),
        "warnings": summary.get("warnings") or [],
        "steps": [step.to_json() for step in steps_of(reader)],
        "validation": summary.get("validation"),
        "models": {which: str(folder) for which, folder in models.items()},
    }


def print_training(reader: RunReader) -> None:
    """Print the steps of a run, below its report, and what came of the job."""
    from arkdev.cli.runs import recomputed_summary

    out = console()
    signs = symbols(out)
    summary = reader.manifest.summary or {}
    steps = steps_of(reader)
    validation = recomputed_summary(reader, phase=TEST)
    told = [("validation", headline(validation, signs=signs))] if validation.num_rollouts else []
    kl, _ = kl_column(reader.manifest.settings.get("hyperparameters") or {})
    sections = [
        steps_section(steps, signs, kl=kl, width=out.width),
        curve_section(steps, signs),
        outcome_section(
            steps,
            job_id=job_id_of(reader),
            failure=summary.get("failure"),
            more=told,
            models=named_models(reader.folder, reader.manifest.run_id),
            warnings=[str(text) for text in summary.get("warnings") or ()],
        ),
    ]
    print_sections(out, sections, signs)
