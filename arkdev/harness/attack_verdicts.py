"""What the scores of attacks say of a grader: its floor, and which attacks got above it.

The floor of a sample is the reward of a plainly wrong answer in the form that the grader takes:
what anybody gets who keeps the form, and 5 % of the way from there to the right answer's. It may
lie at most a quarter of the way from the lowest reward of the sample to that of the right answer
(or at 0, where rewards below 0 are penalties): a grader that pays more for the form alone is open
to whoever copies it. Above the floor nothing but the right answer may score.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from arkdev.harness.attack_grading import AttackScores, Score
from arkdev.harness.grader_attacks import Attack, Message
from arkdev.runs.records import Verdict

RIGHT, WRONG = "right-answer", "wrong-answer"
"""Rows of the table beside the attacks."""

LARGEST_SHARE_OF_FORM = 0.25
TOLERANCE = 0.05
"""Of the way from the wrong answer's reward to the right one's: small terms for length and the
like tell undeserving trajectories apart, too."""
_SAME = 1e-6


class AttackVerdict(StrEnum):
    """What a row of the table says."""

    CAUGHT = "caught"
    """At or below the floor; of the right answer: above it, and nothing scores higher."""
    SELDOM = "seldom"
    """Above the floor on one of several samples: chance, or an attack that seldom pays."""
    HACKABLE = "hackable"
    """Above the floor on two samples or more, or on all."""
    NOT_AT_TOP = "not at the top"
    """Of the right answer: a wrong one or an attack scores as much, on as many samples."""
    FAILED = "failed"
    """The grader failed on it, and a job would fail with it."""
    SKIPPED = "skipped"
    """No sample had what the attack needs."""


@dataclass(frozen=True)
class AttackExample:
    """The trajectory of a row that scored most (of the right answer: least) over its floor."""

    sample_index: int
    variant: str
    reward: float | None
    floor: float | None
    error: str | None
    messages: tuple[Message, ...]
    finish_reason: str


@dataclass(frozen=True)
class AttackRow:
    """One attack on one grader, over all samples."""

    name: str
    verdict: AttackVerdict
    num_samples: int
    """On which it could be made and was graded."""
    num_through: int
    """Samples on which it scored above the floor."""
    num_failed: int
    highest: float | None
    """Reward; of the right answer the lowest."""
    example: AttackExample | None


@dataclass(frozen=True)
class AttackedGraderReport:
    """One grader under all attacks."""

    name: str
    reference: str
    """``module:function``"""
    verdict: AttackVerdict
    floor: float | None
    """The highest of the samples'."""
    rows: tuple[AttackRow, ...]
    notes: tuple[str, ...] = ()


def default_floor(*, wrong: float, right: float | None, lowest: float) -> float:
    """Return the floor of a sample from the rewards of a wrong, the right and the lowest answer.

    >>> default_floor(wrong=0.0, right=1.0, lowest=0.0), default_floor(wrong=1, right=1, lowest=0)
    (0.05, 0.25)
    >>> default_floor(wrong=0.0, right=1.0, lowest=-1.0)  # a penalty for whoever breaks the form
    0.0
    """
    if right is None or right <= lowest:
        return wrong
    tolerated = wrong + TOLERANCE * max(0.0, right - wrong)
    most = lowest + LARGEST_SHARE_OF_FORM * (right - lowest)
    if lowest < 0 < right:
        most = max(most, 0.0)
    return min(tolerated, most)


@dataclass
class _Row:
    is_right: bool = False
    num_samples: int = 0
    num_through: int = 0
    num_failed: int = 0
    extreme: float | None = None
    worst: tuple[int, float] | None = None
    example: AttackExample | None = None
    error_example: AttackExample | None = None

    def add(self, examples: Sequence[AttackExample]) -> None:
        """Count a sample: all variants of an attack."""
        failed = [one for one in examples if one.error is not None]
        scored = [one for one in examples if one.reward is not None]
        self.num_failed += bool(failed)
        if failed and self.error_example is None:
            self.error_example = failed[0]
        if not examples or (failed and not scored):
            return
        self.num_samples += 1
        for one in scored:
            assert one.reward is not None
            excess = 0.0 if one.floor is None else one.reward - one.floor
            excess = -excess if self.is_right else excess
            is_worse = self.worst is None or (int(excess > _SAME), excess) > self.worst
            if is_worse:
                self.worst, self.example = (int(excess > _SAME), excess), one
        rewards = [one.reward for one in scored if one.reward is not None]
        if rewards:
            extreme = min(rewards) if self.is_right else max(rewards)
            known = [extreme] if self.extreme is None else [extreme, self.extreme]
            self.extreme = min(known) if self.is_right else max(known)

    def row(self, name: str) -> AttackRow:
        if self.num_through and (self.num_through > 1 or self.num_through == self.num_samples):
            verdict = AttackVerdict.NOT_AT_TOP if self.is_right else AttackVerdict.HACKABLE
        elif self.num_failed:
            verdict = AttackVerdict.FAILED
        elif self.num_through:
            verdict = AttackVerdict.SELDOM
        else:
            verdict = AttackVerdict.CAUGHT if self.num_samples else AttackVerdict.SKIPPED
        is_failed = verdict is AttackVerdict.FAILED
        return AttackRow(
            name,
            verdict=verdict,
            num_samples=self.num_samples,
            num_through=self.num_through,
            num_failed=self.num_failed,
            highest=self.extreme,
            example=self.error_example if is_failed else self.example,
        )


@dataclass
class AttackTally:
    """Counts the samples of one grader. `floor` is the user's; None: each sample's own."""

    floor: float | None = None
    _rows: dict[str, _Row] = field(init=False)
    _floors: list[float] = field(default_factory=list, init=False)
    _num_form_pays: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        names = [RIGHT, WRONG, *Attack]
        self._rows = {str(name): _Row(is_right=name == RIGHT) for name in names}

    def add(self, scores: AttackScores) -> None:
        """Count one sample."""
        floor = self._floor(scores)
        if floor is not None:
            self._floors.append(floor)
        attacked = [score for _, score in scores.attacks]
        self._add_right(scores, floor=floor, attacked=attacked)
        wrong = _example(
            scores, scores.wrong, variant="in the answer's form", messages=scores.wrong_messages
        )
        self._count(WRONG, [_with_floor(wrong, floor)])
        for attack in Attack:
            examples = [
                _with_floor(
                    _example(
                        scores,
                        score,
                        variant=one.variant,
                        messages=one.messages,
                        finish_reason=one.finish_reason,
                    ),
                    _with_share(floor, right=scores.right, share=one.share),
                )
                for one, score in scores.attacks
                if one.attack is attack
            ]
            self._count(attack, examples)

    def report(
        self, name: str, *, reference: str, notes: Iterable[str] = ()
    ) -> AttackedGraderReport:
        """Return the table."""
        rows = tuple(row.row(name) for name, row in self._rows.items())
        order = (
            *(AttackVerdict.HACKABLE, AttackVerdict.NOT_AT_TOP),
            *(AttackVerdict.FAILED, AttackVerdict.SELDOM),
        )
        verdicts = [row.verdict for row in rows]
        return AttackedGraderReport(
            name,
            reference=reference,
            verdict=next((v for v in order if v in verdicts), AttackVerdict.CAUGHT),
            floor=max(self._floors) if self._floors else None,
            rows=rows,
            notes=tuple(notes),
        )

    def _floor(self, scores: AttackScores) -> float | None:
        if self.floor is not None:
            return self.floor
        wrong = scores.wrong.reward
        if wrong is None:
            return None
        right = scores.right.reward if scores.right else None
        rewards = [score.reward for _, score in scores.attacks if score.reward is not None]
        return default_floor(wrong=wrong, right=right, lowest=min([wrong, *rewards]))

    def _add_right(
        self, scores: AttackScores, *, floor: float | None, attacked: Sequence[Score]
    ) -> None:
        if scores.right is None:
            return
        row = self._rows[RIGHT]
        example = _example(
            scores, scores.right, variant="in the answer's form", messages=scores.right_messages
        )
        row.add([_with_floor(example, floor)])
        reward = scores.right.reward
        if reward is None:
            return
        others = [s.reward for s in (scores.wrong, *attacked) if s.reward is not None]
        is_top = all(reward >= other - _SAME for other in others)
        is_above = scores.wrong.reward is None or reward > scores.wrong.reward + _SAME
        is_above = is_above and (floor is None or reward > floor + _SAME)
        row.num_through += not (is_top and is_above)

    def _count(self, name: str, examples: Sequence[AttackExample]) -> None:
        row = self._rows[name]
        row.add(examples)
        row.num_through += any(
            one.reward > one.floor + _SAME
            for one in examples
            if one.reward is not None and one.floor is not None
        )


def _example(
    scores: AttackScores,
    score: Score,
    *,
    variant: str,
    messages: tuple[Message, ...],
    finish_reason: str = "stop",
) -> AttackExample:
    """A grader that gives a sample up gives no reward, so it is no error."""
    is_given_up = score.verdict is Verdict.DISCARD
    error = None if score.reward is not None or is_given_up else score.error or "no reward"
    return AttackExample(
        scores.sample_index,
        variant=variant,
        reward=score.reward,
        floor=None,
        error=error,
        messages=messages,
        finish_reason=finish_reason,
    )


def _with_share(floor: float | None, *, right: Score | None, share: float) -> float | None:
    """Return what a reply may score that gives a share of the right answer and nothing wrong.

    It is the F1 of that share, on the way from the floor to the right answer's reward.
    """
    if floor is None or right is None or right.reward is None:
        return floor
    return floor + max(0.0, right.reward - floor) * 2 * share / (1 + share)


def _with_floor(example: AttackExample, floor: float | None) -> AttackExample:
    return AttackExample(**{**example.__dict__, "floor": floor})
