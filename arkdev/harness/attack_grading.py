"""One grader attacked on one sample: which form it takes, what the right answer and attacks get."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from arkdev.harness.answer_forms import BARE, Form, form_of_reply, forms_to_try
from arkdev.harness.grader_attacks import (
    AttackTrajectory,
    Message,
    Target,
    attack_trajectories,
    text_of,
)
from arkdev.harness.grading import GroupGrading
from arkdev.harness.reference_answers import Reference, wrong_answer
from arkdev.harness.rollouts import FinishedRollout, SampleToRun
from arkdev.plugin.decorators import PluginKind
from arkdev.runs.records import GraderRecord, TrajectoryRecord, Verdict

NO_ANSWER = "I do not know."
"""What stands for a wrong answer where no right one is known."""

_CHARS_OF_A_TOKEN = 4
_MAX_RECORDED_FORMS = 2
_SAME = 1e-9


@dataclass(frozen=True)
class Recorded:
    """A trajectory of a run, and the reward that it got there."""

    messages: tuple[Message, ...]
    reward: float | None


@dataclass(frozen=True)
class AttackedSample:
    """A sample to attack a grader on, with what a run has of it, the best rewarded first."""

    sample: SampleToRun
    reference: Reference | None
    others: tuple[tuple[str, ...], ...] = ()
    """Right answers of other samples that are wrong here, each in the ways it may be written."""
    recorded: tuple[Recorded, ...] = ()


@dataclass(frozen=True)
class Score:
    """What a grader said of one trajectory."""

    reward: float | None
    verdict: Verdict = Verdict.SUCCESS
    error: str | None = None


@dataclass(frozen=True)
class AttackScores:
    """A grader on one sample. `wrong` and `right` are the answers in the form that it takes."""

    sample_index: int
    right: Score | None
    """None: no right answer is known."""
    wrong: Score
    attacks: tuple[tuple[AttackTrajectory, Score], ...]
    right_messages: tuple[Message, ...] = ()
    wrong_messages: tuple[Message, ...] = ()


@dataclass(frozen=True)
class _Try:
    text: str
    form: Form


@dataclass(eq=False)
class AttackedGrader:
    """A grader under attack; `grading` has it alone."""

    grading: GroupGrading
    is_single: bool
    _last: _Try | None = field(default=None, init=False)
    _last_place: int = field(default=0, init=False)

    @classmethod
    def of(cls, grading: GroupGrading, kind: PluginKind) -> AttackedGrader:
        """Return one for a grader of this kind."""
        return cls(grading, kind is PluginKind.SINGLE_GRADER)

    async def attack(self, one: AttackedSample) -> AttackScores:
        """Grade the right answer, a wrong one and all attacks on a sample."""
        target = await self._target(one)
        wrong = target.reply(target.wrong)
        right = target.reply(target.right) if target.right else _best_recorded(one)
        attacks = attack_trajectories(target)
        if self.is_single:
            beside = [right] if right else []
            made = [(m, "stop") for m in (*beside, wrong)]
            made += [(a.messages, a.finish_reason) for a in attacks]
            scores = await self._together(one.sample, made)
            right_score = scores.pop(0) if right else None
            wrong_score, attack_scores = scores[0], scores[1:]
        else:
            right_score, wrong_score, attack_scores = await self._in_groups(
                one.sample, right=right, wrong=wrong, attacks=attacks
            )
        return AttackScores(
            one.sample.index,
            right=right_score,
            wrong=wrong_score,
            attacks=tuple(zip(attacks, attack_scores, strict=True)),
            right_messages=right or (),
            wrong_messages=wrong,
        )

    async def _in_groups(
        self,
        sample: SampleToRun,
        *,
        right: tuple[Message, ...] | None,
        wrong: tuple[Message, ...],
        attacks: Sequence[AttackTrajectory],
    ) -> tuple[Score | None, Score, list[Score]]:
        """Grade each attack in a group of its own, between the right answer and the wrong one."""
        first = right or wrong
        baseline = await self._together(sample, [(first, "stop"), (wrong, "stop"), (wrong, "stop")])
        groups = await asyncio.gather(
            *(
                self._together(
                    sample, [(first, "stop"), (a.messages, a.finish_reason), (wrong, "stop")]
                )
                for a in attacks
            )
        )
        worse = [score for score in baseline[1:] if score.reward is not None] or baseline[1:]
        wrong_score = max(worse, key=lambda score: score.reward or 0.0)
        return (baseline[0] if right else None), wrong_score, [group[1] for group in groups]

    async def _target(self, one: AttackedSample) -> Target:
        """Find the way of writing the right answer that sets it off most from a wrong one."""
        target = _without_form(one)
        if one.reference is None:
            return target
        first = _recorded_tries(one)
        if self._last is not None:  # the way of the sample before, with this one's answer
            texts = one.reference.texts
            text = texts[min(self._last_place, len(texts) - 1)]
            first.append(_Try(text, self._last.form))
        found = await self._best(one, target, first)
        if found is None or found[0] <= _SAME:
            forms = forms_to_try(target.prompt_text)
            tries = [_Try(text, form) for text in one.reference.texts for form in forms]
            found = await self._best(one, target, tries) or found
        chosen = found[1] if found else _Try(one.reference.texts[0], BARE)
        place = one.reference.texts.index(chosen.text)
        if found and found[0] > _SAME:
            self._last, self._last_place = chosen, place
        return replace(
            target,
            form=chosen.form,
            right=chosen.text,
            wrong=wrong_answer(chosen.text),
            others=tuple(dict.fromkeys(texts[min(place, len(texts) - 1)] for texts in one.others)),
        )

    async def _best(
        self, one: AttackedSample, target: Target, tries: Sequence[_Try]
    ) -> tuple[float, _Try] | None:
        """Return the try with the largest (right - wrong, right), the first of equal ones."""
        pairs = []
        for each in tries:
            filled = replace(target, form=each.form)
            pairs.append((filled.reply(each.text), filled.reply(wrong_answer(each.text))))
        if self.is_single:
            flat = [(messages, "stop") for pair in pairs for messages in pair]
            scores = await self._together(one.sample, flat) if flat else []
            scored = list(zip(scores[::2], scores[1::2], strict=True))
        else:
            groups = await asyncio.gather(
                *(self._together(one.sample, [(m, "stop") for m in pair]) for pair in pairs)
            )
            scored = [(group[0], group[1]) for group in groups]
        best: tuple[float, float] | None = None
        chosen = None
        for each, (right, wrong) in zip(tries, scored, strict=True):
            if right.reward is None or wrong.reward is None:
                continue
            value = (right.reward - wrong.reward, right.reward)
            if (
                best is None
                or value > (best[0] + _SAME, best[1] + _SAME)
                or (abs(value[0] - best[0]) <= _SAME and value[1] > best[1] + _SAME)
            ):
                best, chosen = value, each
        return (best[0], chosen) if best is not None and chosen is not None else None

    async def _together(
        self, sample: SampleToRun, made: Sequence[tuple[Sequence[Message], str]]
    ) -> list[Score]:
        """Grade trajectories as one group."""
        rollouts = [
            _finished(sample, number, messages, finish_reason=finish_reason)
            for number, (messages, finish_reason) in enumerate(made)
        ]
        record = (await self.grading.grade(sample, rollouts)).graders[0]
        return [
            _score(record, number, name=rollout.record.trajectory_id)
            for number, rollout in enumerate(rollouts)
        ]


def _without_form(one: AttackedSample) -> Target:
    sample = one.sample.fresh()
    prompt = tuple(one.sample.plain_messages)
    stem = prompt
    for recorded in one.recorded:
        first_said = next(
            (i for i, m in enumerate(recorded.messages) if i >= len(prompt) and _is_said(m)), None
        )
        if first_said is not None:
            prompt = recorded.messages[:first_said]
            stem = _stem(recorded.messages, first_said)
            break
    names = [str((tool.get("function") or tool).get("name") or "") for tool in sample.tools or []]
    names += [
        str((call.get("function") or {}).get("name") or "")
        for message in stem
        for call in message.get("tool_calls") or []
    ]
    return Target(
        prompt=prompt,
        stem=stem,
        form=BARE,
        right="",
        wrong=NO_ANSWER,
        tools=tuple(name for name in dict.fromkeys(names) if name),
    )


def _is_said(message: Message) -> bool:
    return message.get("role") == "assistant"


def _stem(messages: tuple[Message, ...], first_said: int) -> tuple[Message, ...]:
    """Return what came before the last answer, tool calls with all their results."""
    last_tool = next(
        (i for i in reversed(range(len(messages))) if messages[i].get("role") == "tool"), None
    )
    end = first_said if last_tool is None else last_tool + 1
    return messages[: max(end, first_said)]


def _recorded_tries(one: AttackedSample) -> list[_Try]:
    tries = []
    for recorded in one.recorded:
        last = recorded.messages[-1] if recorded.messages else {}
        for text in one.reference.texts if one.reference else ():
            form = form_of_reply(text_of(last), text) if _is_said(last) else None
            if form is not None:
                tries.append(_Try(text, form))
                break
    return tries[:_MAX_RECORDED_FORMS]


def _best_recorded(one: AttackedSample) -> tuple[Message, ...] | None:
    rewarded = [recorded for recorded in one.recorded if recorded.reward is not None]
    return rewarded[0].messages if rewarded else None


def _finished(
    sample: SampleToRun, number: int, messages: Sequence[Message], *, finish_reason: str
) -> FinishedRollout:
    """Return the trajectory as a rollout would leave it, its usage estimated from its length."""
    said = sum(len(text_of(message)) for message in messages if _is_said(message))
    read = sum(len(text_of(message)) for message in messages if not _is_said(message))
    usage: dict[str, Any] = {
        "prompt_tokens": -(-read // _CHARS_OF_A_TOKEN),
        "completion_tokens": -(-said // _CHARS_OF_A_TOKEN),
    }
    return FinishedRollout(
        TrajectoryRecord(
            trajectory_id=f"{sample.index}.{number}",
            sample_index=sample.index,
            generation=number,
            verdict=Verdict.SUCCESS,
            duration_s=0.0,
            attempts=(),
            messages=tuple(messages),
            usage={**usage, "total_tokens": sum(usage.values())},
            finish_reason=finish_reason,
        )
    )


def _score(record: GraderRecord, index: int, *, name: str) -> Score:
    reward = record.rewards[index]
    if reward is not None:
        return Score(reward)
    of_it = [f for f in record.failed_attempts if f.trajectory_id in (name, None)]
    if of_it:
        return Score(None, of_it[-1].verdict, of_it[-1].error)
    return Score(None, record.verdict, record.error)
