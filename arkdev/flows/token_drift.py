"""`arkdev doctor tokens`: whether a model's template keeps what was sampled."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import Any

from arkdev.backends.local.drift import DialogueDrift, DriftCheck, unread_part
from arkdev.backends.local.model_files import resolve_model
from arkdev.backends.local.probe_dialogues import PROBES, Dialogue
from arkdev.backends.local.rendering import Rendering, open_rendering
from arkdev.errors import ConfigurationError, ExitCode, RunError
from arkdev.plugin.conversation import canonical
from arkdev.runs.reader import RunReader
from arkdev.runs.recorded import RecordedGroups, RecordedTrajectory

_SWITCH = {"enabled": True, "disabled": False}


@dataclass(frozen=True)
class TokenDriftReport:
    """What became of all dialogues."""

    model: str
    rendering: str
    """Who writes: ``chat template``, or a renderer's name."""
    has_thinking_switch: bool
    stop_tokens: tuple[str, ...]
    run: str | None
    """None: the built-in dialogues."""
    dialogues: tuple[DialogueDrift, ...]

    @property
    def num_drifting(self) -> int:
        """Dialogues with a drift."""
        return sum(bool(dialogue.drifts) for dialogue in self.dialogues)

    @property
    def num_unread(self) -> int:
        """Dialogues with an answer that is not read as it was written."""
        return sum(bool(dialogue.unread) for dialogue in self.dialogues)

    @property
    def num_refused(self) -> int:
        """Dialogues that the template cannot write."""
        return sum(dialogue.refusal is not None for dialogue in self.dialogues)

    @property
    def exit_code(self) -> ExitCode:
        """1 when a dialogue drifts or an answer is not read as it was written."""
        is_good = not self.num_drifting and not self.num_unread
        return ExitCode.OK if is_good else ExitCode.SOME_FAILED

    def to_json(self) -> dict[str, Any]:
        """Return it as what ``--json`` prints."""
        return {"exit_code": int(self.exit_code), **asdict(self)}


def check_token_drift(model: str, *, run: RunReader | None, runs: Path) -> TokenDriftReport:
    """Go through the rollouts of a run, or the built-in dialogues, with a model's template.

    `model` is what can be trained here; `runs` is where the models of training runs are.

    Raises `ConfigurationError` for a model that cannot be used or whose template can write none of
    the dialogues, `MissingExtraError` without the extra ``local`` and `RunError` for a run without
    a finished rollout.
    """
    files = resolve_model(model, runs=runs, takes_adapter=True)
    rendering = open_rendering(files.tokenizer_folder)
    dialogues = _probes(rendering) if run is None else recorded_dialogues(run, rendering)
    checked = tuple(DriftCheck(rendering).check(dialogues))
    if not any(dialogue.num_turns for dialogue in checked):
        refusals = [dialogue.refusal for dialogue in checked if dialogue.refusal is not None]
        if not refusals:
            raise RunError(
                f"run {run.manifest.run_id if run else ''} has no answer of a model",
                hint="there is nothing to check",
            )
        raise ConfigurationError(f"no dialogue can be written: {refusals[0]}", where=model)
    return TokenDriftReport(
        model=files.name,
        rendering=rendering.name,
        has_thinking_switch=rendering.has_thinking_switch,
        stop_tokens=tuple(rendering.decode([token]) for token in sorted(rendering.stop_token_ids)),
        run=None if run is None else run.manifest.run_id,
        dialogues=checked,
    )


def _probes(rendering: Rendering) -> Iterator[Dialogue]:
    yield from PROBES
    if rendering.has_thinking_switch:
        for dialogue in PROBES:
            if not any("reasoning_content" in message for message in dialogue.messages):
                name, group = f"{dialogue.name}, thinking off", f"{dialogue.group}, thinking off"
                yield replace(
                    dialogue,
                    name=name,
                    thinking=False,
                    group=group if dialogue.group else "",
                )


def recorded_dialogues(run: RunReader, rendering: Rendering) -> Iterator[Dialogue]:
    """Yield the rollouts of a run as dialogues; group rollouts as branches of one tree.

    Answers have the ids that were sampled where the run holds them and they are this model's.
    Which tools a call had is not recorded: they are the sample's own.
    """
    for group in RecordedGroups(run):
        for trajectory in group.trajectories:
            dialogue = _dialogue(trajectory, group.sample, rendering)
            if dialogue.answers:
                yield dialogue


def _dialogue(
    trajectory: RecordedTrajectory, sample: Mapping[str, Any], rendering: Rendering
) -> Dialogue:
    record = trajectory.record
    given = sample.get("messages") or []
    is_whole = [canonical(message) for message in record.messages[: len(given)]] == [
        canonical(message) for message in given
    ]
    thinking = _SWITCH.get((sample.get("thinking") or {}).get("type", ""))
    is_branch = any(turn.response_id for turn in record.turns)
    dialogue = Dialogue(
        name=record.trajectory_id,
        messages=tuple(dict(message) for message in record.messages),
        tools=tuple(sample.get("tools") or ()) or None,
        thinking=thinking if rendering.has_thinking_switch else None,
        group=f"sample {record.sample_index} {record.phase} {record.step}" if is_branch else "",
        num_given=len(given) if is_whole else 0,
    )
    return replace(dialogue, sampled=_sampled(dialogue, trajectory, rendering))


def _sampled(
    dialogue: Dialogue, trajectory: RecordedTrajectory, rendering: Rendering
) -> tuple[tuple[int, ...], ...] | None:
    """Return the recorded ids of the answers; None when there are none, or not of this model."""
    tokens = trajectory.tokens
    if tokens is None:
        return None
    pairs = zip(tokens.token_ids, tokens.loss_weight, strict=True)
    spans = tuple(
        tuple(token for token, _ in span)
        for is_sampled, span in groupby(pairs, key=lambda pair: bool(pair[1]))
        if is_sampled
    )
    if len(spans) != len(dialogue.answers):
        return None
    for index, span in zip(dialogue.answers, spans, strict=True):
        if unread_part(dialogue.messages[index], rendering, span, ()) is not None:
            return None
    return spans
