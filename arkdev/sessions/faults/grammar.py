"""The text of ``--inject``: ``[SIDE.]KIND=RATE%[:DURATION]``, separated by commas (docs/faults.md).

::

    timeout=5%,429=10%,slow=5%:10s,grader.raise=2%
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

from arkdev.errors import UsageError
from arkdev.job.spelling import closest, unknown_name
from arkdev.runs.records import FaultSide

ANY_STATUS = "a status of 400 to 599"

CALLS = (FaultSide.MODEL, FaultSide.TOOL)
PLUGINS = (FaultSide.GRADER, FaultSide.ROLLOUT)

SIDES_OF = {
    "timeout": (*CALLS, *PLUGINS),
    "raise": (*CALLS, *PLUGINS),
    "slow": (*CALLS, *PLUGINS),
    "garbage": CALLS,
    "cut_json": CALLS,
    "empty": CALLS,
    ANY_STATUS: CALLS,
}
"""Where each kind can strike."""

_ONLY_BY_NAME = (FaultSide.ROLLOUT,)
"""A kind without a side leaves these alone: a rollout that is not called tests nothing of it."""
_RETRY_AFTER = ("429", "503")
_ITEM = re.compile(
    r"(?:(\w+)\.)?([\w-]+)=(\d+(?:\.\d+)?)%(?::(\d+(?:\.\d+)?)(ms|s))?", flags=re.ASCII
)
_HINT = (
    "write KIND=RATE% or KIND=RATE%:DURATION, as in timeout=5%,429=10%,slow=5%:10s,grader.raise=2%"
)


@dataclass(frozen=True)
class Fault:
    """One kind of fault on one side, in `rate` (above 0, at most 1) of all cases."""

    side: FaultSide
    kind: str
    rate: Fraction
    duration_s: float | None = None
    """Of ``slow`` the delay; of ``timeout`` the time until it is raised, at once when None; of a
    429 or 503 its Retry-After, in whole seconds."""
    has_own_side: bool = False
    """The flag names the side."""

    @property
    def status(self) -> int | None:
        """The HTTP status of an error answer; None of any other kind."""
        return int(self.kind) if self.kind.isdecimal() else None

    def __str__(self) -> str:
        duration = f" ({self.duration_s:g} s)" if self.duration_s else ""
        return f"{self.kind} {float(self.rate * 100):g}%{duration}"


def parse_faults(text: str) -> tuple[Fault, ...]:
    """Read the flag; a kind without a side gives a fault for each side that it suits.

    Raises `UsageError`, which names the item, for what is not of this form, for a kind, side or
    duration that does not exist or does not go together, for a fault that would have no effect, for
    duplicates, and for rates of one side that add up to over 100 %.
    """
    faults: dict[tuple[FaultSide, str], tuple[str, Fault]] = {}
    for item in (item.strip() for item in text.split(",")):
        for fault in _faults_of(item):
            key = (fault.side, fault.kind)
            if key in faults:
                raise UsageError(
                    f"--inject: {faults[key][0]} and {item} both say how often {fault.kind} "
                    f"strikes on the side {fault.side}",
                    hint="keep one of them, or give each its side, as in model.429=5%,tool.429=1%",
                )
            faults[key] = (item, fault)
    for side in FaultSide:
        _check_sum([entry for entry in faults.values() if entry[1].side is side])
    return tuple(fault for _, fault in faults.values())


def described(faults: tuple[Fault, ...]) -> str:
    """Say in one line what is injected where."""
    sides_with: dict[str, list[str]] = {}
    for side in FaultSide:
        texts = ", ".join(str(fault) for fault in faults if fault.side is side)
        if texts:
            sides_with.setdefault(texts, []).append(side.value)
    return "; ".join(f"{' and '.join(sides)}: {texts}" for texts, sides in sides_with.items())


def _faults_of(item: str) -> Iterator[Fault]:
    match = _ITEM.fullmatch(item)
    if match is None:
        raise _error(item, "is not of the form [SIDE.]KIND=RATE%[:DURATION]")
    side, kind, percent, number, unit = match.groups()
    sides = _sides(item, side, kind=kind)
    rate = Fraction(percent) / 100
    if not 0 < rate <= 1:
        raise _error(item, "has no effect" if rate == 0 else "is more often than always")
    duration_s = float(number) / (1000 if unit == "ms" else 1) if number else None
    _check_duration(item, kind, duration_s)
    for each in sides:
        yield Fault(each, kind, rate, duration_s, has_own_side=side is not None)


def _sides(item: str, side: str | None, *, kind: str) -> tuple[FaultSide, ...]:
    allowed = SIDES_OF[_known_kind(item, kind)]
    if side is None:
        return tuple(each for each in allowed if each not in _ONLY_BY_NAME)
    sides = [each.value for each in FaultSide]
    if side not in sides:
        raise _error(item, unknown_name("side", side, known=sides))
    if side not in allowed:
        raise UsageError(
            f"--inject: {item}: the call of a {side} cannot answer {kind}",
            hint="it can raise, be slow and time out; the HTTP calls that plugins make, those of a "
            f"grader's judge too, are the side tool: tool.{item.partition('.')[2]}",
        )
    return (FaultSide(side),)


def _known_kind(item: str, kind: str) -> str:
    if kind in SIDES_OF:
        return kind
    if kind.isdecimal():
        if 400 <= int(kind) <= 599 and len(kind) == 3:
            return ANY_STATUS
        raise _error(item, f"{kind} is no status of an error: those are 400 to 599")
    kinds = [name for name in SIDES_OF if name != ANY_STATUS]
    if closest(kind, kinds):
        raise _error(item, unknown_name("fault", kind, known=kinds))
    known = ", ".join([*kinds, ANY_STATUS])
    raise _error(item, f"unknown fault {kind!r}; known: {known}")


def _check_duration(item: str, kind: str, duration_s: float | None) -> None:
    if kind == "slow" and duration_s is None:
        raise _error(item, "says not how slow: write a duration, as in slow=5%:10s")
    if duration_s is None:
        return
    if duration_s == 0:
        raise _error(item, "has a duration of nothing")
    if kind in _RETRY_AFTER:
        if duration_s != int(duration_s):
            raise _error(item, "has a Retry-After that is not in whole seconds")
    elif kind not in ("slow", "timeout"):
        raise _error(
            item, f"{kind} takes no duration; slow and timeout do, and {' and '.join(_RETRY_AFTER)}"
        )


def _check_sum(entries: list[tuple[str, Fault]]) -> None:
    total = sum((fault.rate for _, fault in entries), Fraction())
    if total > 1:
        items = ", ".join(item for item, _ in entries)
        side = entries[0][1].side
        raise UsageError(
            f"--inject: the rates of the side {side} add up to {float(total * 100):g} %: {items}",
            hint="at most one fault strikes at a time, so together they are at most 100 %",
        )


def _error(item: str, problem: str) -> UsageError:
    separator = " " if problem.startswith(("is ", "has ", "says ")) else ": "
    return UsageError(f"--inject: {item!r}{separator}{problem}", hint=_HINT)
