"""How noisy a grader is, and what its noise does to advantages, from repeated gradings.

The same trajectories are graded N times. Rewards of trajectory i of group g, grading j::

    x_gij = mean of group g + d_gi + e_gij      sd of d: spread     sd of e: noise

Only differences within a group reach an advantage, so the group means are taken out. With the mean
squares of a one-way analysis of variance, MSB between the trajectories of a group (Σ(n_g - 1)
degrees of freedom) and MSW within a trajectory (T(N - 1))::

    noise² = MSW      spread² = (MSB - MSW) / N
    reliability = ICC(1,1) = (MSB - MSW) / (MSB + (N - 1) MSW)      (Shrout & Fleiss 1979)

The advantage of a trajectory has the sign of its reward minus the group's mean. With the mean of m
gradings as the reward, noise²/m in place of noise², and d and e normal, the sign is wrong with the
probability arctan(noise / (spread √m)) / π (Sheppard 1899: arccos(ρ)/π, ρ² the reliability of the
mean of m). It is at most p from m = (noise / spread)² / tan²(πp) on.

Rewards are seldom normal: a judge that says 0 or 1 is not. `SignErrors.from_repeats` needs no such
shape. It takes the mean of a trajectory's gradings for its true reward, drawn towards the group's
mean so that the spread is the one estimated above (Louis 1984), and draws m gradings from those
that the trajectory got, their deviations scaled by √(N / (N - 1)).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from statistics import NormalDist

from arkdev.harness.advantages import grpo_advantages
from arkdev.harness.bootstrap import Estimate, bootstrapped
from arkdev.harness.distributions import unit_of_squares

Gradings = Sequence[Sequence[float]]
"""Of a group: for each trajectory its N rewards."""

WANTED = 0.05
"""Share of advantages that may have the wrong sign."""
SHOWN_CALLS = (1, 2, 3, 5, 8, 16)
_DRAWN_CALLS = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 16)
_MORE_CALLS = (20, 24, 32, 40, 48, 64, 96, 128, 192, 256, 384, 512, 1024)
_NUM_DRAWS = 10_000
_NO_ADVANTAGE = 1e-9
_NORMAL = NormalDist()


@dataclass(frozen=True)
class SignErrors:
    """Advantages with the wrong sign when the reward is the mean of `num_calls` gradings."""

    num_calls: int
    from_repeats: Estimate
    lost: float | None
    """Share of advantages that become 0 instead."""
    by_formula: float | None


@dataclass(frozen=True)
class JudgeNoise:
    """The noise of one grader."""

    num_groups: int
    num_trajectories: int
    num_gradings: int
    """Of each trajectory: N."""
    is_deterministic: bool
    """Every trajectory got the same reward each time."""
    noise_sd: Estimate
    spread_sd: Estimate
    noise_over_spread: Estimate
    reliability: Estimate
    observed_sign_errors: float | None
    """Of one grading against the mean of the N - 1 others, which errs too."""
    expected_sign_errors: float | None
    """What the formula says of the same comparison: far apart, the rewards are not normal."""
    sign_errors: tuple[SignErrors, ...]
    calls_needed: Estimate
    """The fewest gradings whose mean has at most 5 % sign errors, from the repeats; None: the
    spread is no larger than noise can make it, so no number helps."""
    calls_by_formula: int | None


@dataclass(frozen=True)
class _Squares:
    """Sums of squares and degrees of freedom; those of groups add up."""

    between: float
    df_between: int
    within: float
    df_within: int
    num_gradings: int

    @property
    def noise(self) -> float:
        """Variance within a trajectory."""
        return self.within / self.df_within

    @property
    def spread(self) -> float:
        """Variance between the trajectories of a group, without that of the noise; never < 0."""
        return max(0.0, (self.between / self.df_between - self.noise) / self.num_gradings)

    @property
    def reliability(self) -> float | None:
        """ICC(1,1), never below 0."""
        total = self.spread + self.noise
        return self.spread / total if total else None


def judge_noise(groups: Sequence[Gradings], *, seed: int = 0) -> JudgeNoise:
    """Return the noise of a grader; intervals are 90 % of a bootstrap over groups.

    Raises `ValueError` when there is no group of two trajectories, or when they were not all graded
    the same number of times, twice at least.
    """
    groups = [group for group in groups if len(group) > 1]
    num_gradings = {len(rewards) for group in groups for rewards in group}
    if len(num_gradings) != 1 or min(num_gradings) < 2:
        raise ValueError("groups of two trajectories and more, each graded twice or more")
    unit = unit_of_squares([x for group in groups for rewards in group for x in rewards])
    if unit != 1:
        groups = [[[x / unit for x in rewards] for rewards in group] for group in groups]
    squares = [_squares(group) for group in groups]
    total = _sum(squares)
    errors = _errors_of_groups(groups, total, seed=seed)
    return JudgeNoise(
        num_groups=len(groups),
        num_trajectories=sum(map(len, groups)),
        num_gradings=num_gradings.pop(),
        is_deterministic=all(len(set(r)) == 1 for group in groups for r in group),
        noise_sd=bootstrapped(squares, lambda s: _root(_sum(s).noise, unit=unit), seed=seed),
        spread_sd=bootstrapped(squares, lambda s: _root(_sum(s).spread, unit=unit), seed=seed),
        noise_over_spread=bootstrapped(squares, lambda s: _ratio(_sum(s)), seed=seed),
        reliability=bootstrapped(squares, lambda s: _sum(s).reliability, seed=seed),
        observed_sign_errors=_observed(groups),
        expected_sign_errors=_expected(total),
        sign_errors=tuple(_sign_errors(m, errors, total=total, seed=seed) for m in SHOWN_CALLS),
        calls_needed=bootstrapped(errors, _calls_needed, seed=seed),
        calls_by_formula=calls_by_formula(_ratio(total)),
    )


def sign_error_by_formula(noise_over_spread: float | None, *, num_calls: int = 1) -> float | None:
    """Return the share of wrong signs of normal rewards.

    >>> round(sign_error_by_formula(1.0), 3), round(sign_error_by_formula(1.0, num_calls=40), 3)
    (0.25, 0.05)
    """
    if noise_over_spread is None:
        return None
    return math.atan(noise_over_spread / math.sqrt(num_calls)) / math.pi


def calls_by_formula(noise_over_spread: float | None, *, wanted: float = WANTED) -> int | None:
    """Return how many gradings bring the share of wrong signs of normal rewards to `wanted`.

    >>> calls_by_formula(1.0), calls_by_formula(0.0), calls_by_formula(None)
    (40, 1, None)
    """
    if noise_over_spread is None:
        return None
    return max(1, math.ceil((noise_over_spread / math.tan(math.pi * wanted)) ** 2))


def _squares(group: Gradings) -> _Squares:
    num_gradings = len(group[0])
    means = [math.fsum(rewards) / num_gradings for rewards in group]
    mean = math.fsum(means) / len(means)
    return _Squares(
        between=num_gradings * math.fsum((m - mean) ** 2 for m in means),
        df_between=len(group) - 1,
        within=math.fsum(
            (x - m) ** 2 for rewards, m in zip(group, means, strict=True) for x in rewards
        ),
        df_within=len(group) * (num_gradings - 1),
        num_gradings=num_gradings,
    )


def _sum(squares: Sequence[_Squares]) -> _Squares:
    return _Squares(
        between=math.fsum(s.between for s in squares),
        df_between=sum(s.df_between for s in squares),
        within=math.fsum(s.within for s in squares),
        df_within=sum(s.df_within for s in squares),
        num_gradings=squares[0].num_gradings,
    )


def _root(variance: float, *, unit: float) -> float | None:
    """None where it is past the largest float."""
    root = math.sqrt(variance) * unit
    return root if math.isfinite(root) else None


def _ratio(total: _Squares) -> float | None:
    """None where noise is all there is."""
    if total.spread:
        return math.sqrt(total.noise / total.spread)
    return None


def _observed(groups: Sequence[Gradings]) -> float | None:
    num_wrong = num_signs = 0
    for group in groups:
        num_gradings = len(group[0])
        for j in range(num_gradings):
            rest = [(math.fsum(r) - r[j]) / (num_gradings - 1) for r in group]
            pairs = zip(_signs([r[j] for r in group]), _signs(rest), strict=True)
            for one, others in pairs:
                num_signs += others != 0
                num_wrong += one * others < 0
    return num_wrong / num_signs if num_signs else None


def _expected(total: _Squares) -> float | None:
    """arccos(ρ)/π of two means that err independently: ρ² is the product of reliabilities."""
    if not total.spread:
        return None
    rest = total.num_gradings - 1
    first = total.spread / (total.spread + total.noise)
    second = total.spread / (total.spread + total.noise / rest)
    return math.acos(min(1.0, math.sqrt(first * second))) / math.pi


def _signs(rewards: Sequence[float]) -> list[int]:
    advantages = grpo_advantages(rewards)
    return [0 if abs(a) < _NO_ADVANTAGE else 1 if a > 0 else -1 for a in advantages]


@dataclass(frozen=True)
class _Errors:
    """Of one group, for each number of calls: how many signs are wrong, and how many are lost."""

    num_signs: int
    wrong: dict[int, float]
    lost: dict[int, float]


def _errors_of_groups(groups: Sequence[Gradings], total: _Squares, *, seed: int) -> list[_Errors]:
    random = Random(seed)
    num_draws = max(4, _NUM_DRAWS // sum(map(len, groups)))
    per_call = total.spread + total.noise / total.num_gradings
    towards_mean = math.sqrt(total.spread / per_call) if per_call else 0.0
    return [_errors(group, towards_mean, num_draws=num_draws, random=random) for group in groups]


def _errors(group: Gradings, towards_mean: float, *, num_draws: int, random: Random) -> _Errors:
    num_gradings = len(group[0])
    means = [math.fsum(rewards) / num_gradings for rewards in group]
    mean = math.fsum(means) / len(means)
    centres = [mean + towards_mean * (m - mean) for m in means]
    signs = _signs(centres)
    wider = math.sqrt(num_gradings / (num_gradings - 1))
    deviations = [
        [wider * (x - m) for x in rewards] for rewards, m in zip(group, means, strict=True)
    ]
    errors = _Errors(sum(map(abs, signs)), wrong={}, lost={})
    is_noisy = any(any(d) for d in deviations)
    for num_calls in (*_DRAWN_CALLS, *_MORE_CALLS):
        if not errors.num_signs or not is_noisy:
            wrong, lost = 0.0, 0.0
        elif num_calls in _DRAWN_CALLS:
            wrong, lost = _drawn(
                centres, deviations, num_calls=num_calls, num_draws=num_draws, random=random
            )
        else:
            wrong, lost = _with_normal_noise(centres, deviations, num_calls=num_calls), 0.0
        errors.wrong[num_calls], errors.lost[num_calls] = wrong, lost
    return errors


def _drawn(
    centres: Sequence[float],
    deviations: Sequence[Sequence[float]],
    *,
    num_calls: int,
    num_draws: int,
    random: Random,
) -> tuple[float, float]:
    """Return the mean numbers of wrong and of lost signs over draws of a group's gradings."""
    signs = _signs(centres)
    num_wrong = num_lost = 0
    for _ in range(num_draws):
        rewards = [
            centre + math.fsum(random.choices(each, k=num_calls)) / num_calls
            for centre, each in zip(centres, deviations, strict=True)
        ]
        for true, drawn in zip(signs, _signs(rewards), strict=True):
            num_wrong += true * drawn < 0
            num_lost += true != 0 and drawn == 0
    return num_wrong / num_draws, num_lost / num_draws


def _with_normal_noise(
    centres: Sequence[float], deviations: Sequence[Sequence[float]], *, num_calls: int
) -> float:
    """Return the expected number of wrong signs where means of many calls are near normal."""
    size = len(centres)
    mean = math.fsum(centres) / size
    variances = [math.fsum(d * d for d in each) / len(each) for each in deviations]
    total = math.fsum(variances)
    wrong = 0.0
    for centre, variance, sign in zip(centres, variances, _signs(centres), strict=True):
        # of the reward minus the group's mean: (1 - 1/n)² of its own, 1/n² of each other
        own = variance * (1 - 1 / size) ** 2 + (total - variance) / size**2
        if sign and own > 0:
            wrong += _NORMAL.cdf(-abs(centre - mean) * math.sqrt(num_calls / own))
    return wrong


def _share(errors: Sequence[_Errors], num_calls: int) -> float | None:
    num_signs = sum(e.num_signs for e in errors)
    return math.fsum(e.wrong[num_calls] for e in errors) / num_signs if num_signs else None


def _sign_errors(
    num_calls: int, errors: Sequence[_Errors], *, total: _Squares, seed: int
) -> SignErrors:
    num_signs = sum(e.num_signs for e in errors)
    lost = math.fsum(e.lost[num_calls] for e in errors)
    return SignErrors(
        num_calls,
        from_repeats=bootstrapped(errors, lambda e: _share(e, num_calls), seed=seed),
        lost=lost / num_signs if num_signs else None,
        by_formula=sign_error_by_formula(_ratio(total), num_calls=num_calls),
    )


def _calls_needed(errors: Sequence[_Errors]) -> float | None:
    for num_calls in (*_DRAWN_CALLS, *_MORE_CALLS):
        share = _share(errors, num_calls)
        if share is not None and share <= WANTED:
            return float(num_calls)
    return None
