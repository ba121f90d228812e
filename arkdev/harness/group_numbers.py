"""What the groups of a run say: weighted rewards, successes, pass@k, groups without a signal."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable

from arkdev.harness.advantages import are_equal
from arkdev.harness.distributions import RewardDistribution
from arkdev.harness.grader_numbers import by_name
from arkdev.harness.summary import (
    EqualReward,
    ExtremeReward,
    GroupSummary,
    PassAtK,
    SuccessSummary,
    ZeroVariance,
)
from arkdev.runs.records import GroupRecord, Verdict

_MAX_EQUAL_VALUES = 5
_ROUNDING = 1e-9
"""0.1 + 0.2 weighs less or more than 0.3, depending on the order."""


def pass_at_k(n: int, *, c: int, k: int) -> float:
    """Unbiased probability that one of k rollouts succeeds, when c of n did: 1 - C(n-c, k)/C(n, k).

    Chen et al., "Evaluating Large Language Models Trained on Code" (2021, arXiv:2107.03374).
    Needs k <= n.

    >>> pass_at_k(4, c=1, k=2)
    0.5
    """
    return 1.0 - math.comb(n - c, k) / math.comb(n, k)


class GroupNumbers:
    """Add the records of groups; ask for `summary` and `success`."""

    def __init__(self, num_generations: int, success_threshold: float) -> None:
        self._num_generations = num_generations
        self._success_threshold = success_threshold
        self.rewards = RewardDistribution()
        self._passes = RewardDistribution()
        """1 for each success, 0 for each other graded rollout."""
        self.verdicts: Counter[Verdict] = Counter()
        self.num_ungraded = 0
        self.num_dropped = 0
        self.lowest: ExtremeReward | None = None
        self.highest: ExtremeReward | None = None
        self._num_eligible = 0
        self._equal_values: Counter[float] = Counter()
        self._num_incomplete = 0
        self._successes: Counter[tuple[int, int]] = Counter()
        """Groups by (number of members, number of successes)."""

    def add(self, record: GroupRecord, *, unsuccessful: set[str]) -> None:
        """Count one group; `unsuccessful` holds the ids of rollouts that did not succeed."""
        self.verdicts[record.verdict] += 1
        missing = len(record.trajectory_ids) - len(record.rewards)
        rewards = (*record.rewards, *([None] * missing))
        is_dropped = record.verdict in (Verdict.DISCARD, Verdict.RETRY)
        num_ungraded = 0
        for trajectory_id, reward in zip(record.trajectory_ids, rewards, strict=False):
            if reward is not None:
                self._note_extremes(trajectory_id, reward)
            elif trajectory_id not in unsuccessful:
                num_ungraded += not is_dropped
                self.num_dropped += is_dropped
        graded = [reward for reward in rewards if reward is not None]
        self.num_ungraded += num_ungraded
        self.rewards.add_group(graded, num_ungraded=num_ungraded)
        if len(graded) >= 2:
            self._num_eligible += 1
            if are_equal(graded):
                self._equal_values[graded[0]] += 1
        enough = self._success_threshold - _ROUNDING
        passes = [float(reward >= enough) for reward in graded]
        self._passes.add_group(passes, num_ungraded=0)
        if len(graded) < max(len(rewards), self._num_generations):
            self._num_incomplete += 1
        else:
            self._successes[len(graded), int(sum(passes))] += 1

    def _note_extremes(self, trajectory_id: str, reward: float) -> None:
        if self.lowest is None or reward < self.lowest.reward:
            self.lowest = ExtremeReward(trajectory_id, reward)
        if self.highest is None or reward > self.highest.reward:
            self.highest = ExtremeReward(trajectory_id, reward)

    def summary(self) -> GroupSummary | None:
        """Return what was added so far; None when there is nothing."""
        if not self.verdicts:
            return None
        return GroupSummary(
            count=self.verdicts.total(),
            verdicts=by_name(self.verdicts),
            zero_variance=self._zero_variance(),
            pass_at_k=tuple(self._pass_at_k()),
            num_incomplete=self._num_incomplete,
        )

    def success(self) -> SuccessSummary | None:
        """Return how many reached the success threshold; None when nothing was graded."""
        passes = self._passes.summary()
        if passes is None:
            return None
        return SuccessSummary(
            num_graded=passes.num_graded,
            num_successes=round(passes.mean * passes.num_graded),
            rate=passes.mean,
            standard_error=passes.standard_error,
        )

    def _zero_variance(self) -> ZeroVariance | None:
        if not self._num_eligible:
            return None
        num_equal = self._equal_values.total()
        return ZeroVariance(
            num_groups=num_equal,
            num_eligible=self._num_eligible,
            share=num_equal / self._num_eligible,
            values=tuple(
                EqualReward(value, count)
                for value, count in self._equal_values.most_common(_MAX_EQUAL_VALUES)
            ),
        )

    def _pass_at_k(self) -> Iterable[PassAtK]:
        if self._num_generations < 2 or not self._successes:
            return
        num_groups = self._successes.total()
        k = 1
        while k <= self._num_generations:
            estimates = (
                pass_at_k(n, c=c, k=k) * count for (n, c), count in self._successes.items()
            )
            yield PassAtK(k, math.fsum(estimates) / num_groups, num_groups)
            k *= 2
