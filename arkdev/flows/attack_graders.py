"""`arkdev test grader --attack`: each grader on trajectories that deserve no reward."""

from __future__ import annotations

import difflib
import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from arkdev.errors import ExitCode, UsageError
from arkdev.flows.test_grader import (
    DEFAULT_SAMPLES,
    GraderTestObserver,
    GraderTestPlan,
    graders_environment,
)
from arkdev.harness.attack_grading import AttackedGrader, AttackedSample, Recorded
from arkdev.harness.attack_verdicts import AttackedGraderReport, AttackTally, AttackVerdict
from arkdev.harness.grader_attacks import text_of
from arkdev.harness.grading import GroupGrading
from arkdev.harness.reference_answers import (
    REFERENCE_KEYS,
    Reference,
    find_reference,
    mentions,
    with_option,
)
from arkdev.harness.regrading import recorded_sample
from arkdev.harness.rollouts import SampleToRun
from arkdev.job.dataset import read_files
from arkdev.plugin.host import InProcessHost
from arkdev.runs.masking import masked_value
from arkdev.runs.recorded import RecordedGroup
from arkdev.runs.records import Verdict

_MAX_POOL = 200
"""Samples whose right answers may serve as wrong ones elsewhere."""
_NUM_OTHERS = 6


@dataclass(frozen=True)
class AttackOutcome:
    """What the attacks came to."""

    graders: tuple[AttackedGraderReport, ...]
    num_samples: int
    num_without_reference: int
    reference_key: str | None
    """The key of `extra` that names the right answers; None when none has one."""
    judge_calls: int
    """Model calls of graders that went to the scripted model, for want of an ARK_BASE_URL."""
    exit_code: ExitCode


@dataclass(frozen=True)
class _Line:
    sample: SampleToRun
    reference: Reference | None
    recorded: tuple[Recorded, ...] = ()


async def run_attack(plan: GraderTestPlan, observer: GraderTestObserver) -> AttackOutcome:
    """Attack every grader. What graders do wrong is in the outcome, not an exception.

    Raises `UsageError` when no sample tells a right answer from a wrong one and there is no
    ``--floor``.
    """
    lines = list(_lines(plan))
    samples = _samples(lines, limit=plan.request.limit or DEFAULT_SAMPLES)
    _check_references(plan, samples)
    tallies = [AttackTally(plan.request.floor) for _ in plan.graders]
    async with graders_environment(plan) as judge:
        observer.on_start(len(plan.graders) * len(samples))
        host = InProcessHost()
        for grader, tally in zip(plan.graders, tallies, strict=True):
            grading = GroupGrading([grader], host=host, context=plan.context)
            attacked = AttackedGrader.of(grading, grader.loaded.plugin.kind)
            for sample in samples:
                tally.add(await attacked.attack(sample))
                observer.on_step()
        num_judge_calls = judge.num_chat_calls if judge is not None else 0
    reports = tuple(
        masked_value(
            tally.report(grader.name, reference=grader.loaded.reference), secrets=plan.secrets
        )
        for grader, tally in zip(plan.graders, tallies, strict=True)
    )
    references = [sample.reference for sample in samples]
    return AttackOutcome(
        reports,
        num_samples=len(samples),
        num_without_reference=references.count(None),
        reference_key=next((r.key for r in references if r is not None), None),
        judge_calls=num_judge_calls,
        exit_code=exit_code_of(reports),
    )


def exit_code_of(reports: Sequence[AttackedGraderReport]) -> ExitCode:
    """Return 3 when an attack got through or the right answer is not at the top, 1 for failures.

    The floor is a threshold (decision 16).
    """
    verdicts = {row.verdict for report in reports for row in report.rows}
    if verdicts & {AttackVerdict.HACKABLE, AttackVerdict.NOT_AT_TOP}:
        return ExitCode.THRESHOLD_MISSED
    return ExitCode.SOME_FAILED if AttackVerdict.FAILED in verdicts else ExitCode.OK


def _lines(plan: GraderTestPlan) -> Iterator[_Line]:
    key = plan.request.reference_key
    if plan.source is not None:
        for group in plan.groups(limit=_MAX_POOL):
            sample = recorded_sample(group)
            reference = _reference(sample, group.sample.get("extra"), key=key)
            yield _Line(sample, reference=reference, recorded=_recorded(group))
        return
    for line in read_files(plan.files, limit=_MAX_POOL):
        text = line.sample.model_dump_json(exclude_unset=True)
        sample = SampleToRun(line.index, text, sampling={})
        yield _Line(sample, reference=_reference(sample, line.sample.extra, key=key))


def _reference(
    sample: SampleToRun, extra: Mapping[str, Any] | None, *, key: str | None
) -> Reference | None:
    """Return the right answer; of a choice with the text or the letter of its option."""
    reference = find_reference(extra, key=key)
    prompt = "\n\n".join(map(text_of, sample.plain_messages))
    return None if reference is None else with_option(reference, prompt)


def _recorded(group: RecordedGroup) -> tuple[Recorded, ...]:
    """Return the successful trajectories of a group, the best rewarded first."""
    members = [
        Recorded(one.record.messages, reward)
        for one, reward in zip(group.trajectories, group.record.rewards, strict=False)
        if one.record.verdict is Verdict.SUCCESS
    ]
    return tuple(
        sorted(members, key=lambda one: -1e308 if one.reward is None else one.reward, reverse=True)
    )


def _samples(lines: Sequence[_Line], *, limit: int) -> list[AttackedSample]:
    answers = list(dict.fromkeys(line.reference.texts for line in lines if line.reference))
    return [
        AttackedSample(
            line.sample,
            reference=line.reference,
            others=_others(line.reference, answers),
            recorded=line.recorded,
        )
        for line in lines[:limit]
    ]


def _others(
    reference: Reference | None, answers: Sequence[tuple[str, ...]]
) -> tuple[tuple[str, ...], ...]:
    """Return right answers of other samples that are wrong here, the least alike first."""
    if reference is None:
        return ()
    wrong = [
        texts
        for texts in answers
        if not any(
            mentions(text, right) or mentions(right, text)
            for text, right in itertools.product(texts, reference.texts)
        )
    ]
    right = reference.texts[0]
    alike = {texts: difflib.SequenceMatcher(None, right, texts[0]).ratio() for texts in wrong}
    return tuple(sorted(wrong, key=alike.__getitem__)[:_NUM_OTHERS])


def _check_references(plan: GraderTestPlan, samples: Sequence[AttackedSample]) -> None:
    """Refuse to judge without anything that could deserve a reward."""
    if plan.request.floor is not None or any(s.reference or _is_rewarded(s) for s in samples):
        return
    keys = {key for s in samples for key in json.loads(s.sample.line).get("extra") or {}}
    wanted = plan.request.reference_key
    looked = f"--reference-key {wanted}" if wanted else ", ".join(REFERENCE_KEYS)
    raise UsageError(
        f"no sample has a right answer in extra (looked for {looked}; there is "
        f"{', '.join(sorted(keys)) or 'nothing'}), so nothing says what an attack may score",
        hint="name the key with --reference-key KEY, or the highest reward of an undeserving "
        "trajectory with --floor X",
    )


def _is_rewarded(sample: AttackedSample) -> bool:
    return any(one.reward is not None for one in sample.recorded)
