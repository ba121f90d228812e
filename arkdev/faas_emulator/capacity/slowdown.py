"""How much longer a call takes beside others in its instance.

A call alone in its instance takes S seconds, of which it computes a share f and waits for the rest:
for the model, a tool, a sleep. Calls that wait do not hold each other up; calls that compute share
the instance's cores. With k calls in it an instance is a closed network of one queue, the cores,
and one delay: mean value analysis (M. Reiser and S. S. Lavenberg, JACM 27, 1980) gives how long a
call takes then. Several cores are a fast queue and a delay (A. Seidmann, P. Schweitzer, S. Shalev-
Oren, 1987). In between::

    f = 0   waits only: the k-th call takes as long as the first
    f = 1   computes only: k calls on c cores take max(1, k / c) times as long, or slightly more

One Python process computes on one core at a time, whatever the instance has, unless what it calls
releases the interpreter's lock: how many cores count is a matter of the fit (`fitting.py`).
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Slowdown:
    """`at(k)`: times longer that a call takes with `k` calls in its instance, itself included."""

    cpu_share: float
    """Of the time that a call takes alone: what it computes."""
    num_cores: float = 1.0
    """Cores that the calls of one instance can use at once."""
    _factors: list[float] = field(default_factory=list, repr=False, compare=False)

    @property
    def is_flat(self) -> bool:
        """Whether calls do not hold each other up at all."""
        return self.cpu_share == 0

    def at(self, num_calls: int) -> float:
        """Return the factor; 1 for a call that is alone."""
        if self.cpu_share == 0 or num_calls <= 1:
            return 1.0
        if len(self._factors) < num_calls:
            self._extend(num_calls)
        return self._factors[num_calls - 1]

    def _extend(self, num_calls: int) -> None:
        at_cores = self.cpu_share / self.num_cores
        elsewhere = 1 - at_cores
        waiting = 0.0  # calls at the cores, as a call finds them that arrives there
        factors = []
        for number in range(1, num_calls + 1):
            takes = at_cores * (1 + waiting)
            factors.append(takes + elsewhere)
            waiting = number * takes / (takes + elsewhere)
        self._factors[:] = factors


NO_SLOWDOWN = Slowdown(0.0)
