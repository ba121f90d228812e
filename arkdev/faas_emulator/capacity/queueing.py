"""Waiting times in closed form, as a check of the simulation and for people to see why.

Poisson arrivals of `rate` calls per second, `num_servers` calls served at once, a mean service time
of `service_s`. `Load.is_stable` must hold: else the queue grows without end, and all of these raise
`ValueError`.

* M/M/c (service times exponential): exact. Erlang C; the wait of a call that waits is exponential
  (A. K. Erlang 1917; L. Kleinrock, Queueing Systems 1, 1975, section 3.5).
* M/D/c (service times all equal): the mean by the approximation of G. P. Cosmetatos (Approximate
  explicit formulae for the average queueing time in the processes (M/D/r) and (D/M/r), INFOR 13,
  1975), exact for one server, otherwise within a few per cent.
* M/G/c (any service times): the mean by A. O. Allen and J. C. Cunneen, half of (1 + squared
  coefficient of variation) times that of M/M/c; exact for one server.
"""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Load:
    """Poisson arrivals at servers that are all alike."""

    rate: float
    """Calls per second."""
    service_s: float
    num_servers: int

    @property
    def offered(self) -> float:
        """Servers that are busy on average (Erlangs), as long as the queue does not grow."""
        return self.rate * self.service_s

    @property
    def utilisation(self) -> float:
        """Share of the servers that is busy on average."""
        return self.offered / self.num_servers

    @property
    def is_stable(self) -> bool:
        """Whether the servers are faster than the calls come."""
        return self.utilisation < 1


def erlang_c(load: Load) -> float:
    """Return the share of calls that wait in M/M/c."""
    if not load.is_stable:
        raise ValueError(f"{load.num_servers} servers are too few for {load.offered:g} Erlangs")
    blocked = 1.0  # Erlang B by its recursion, which stays within 0..1 for any number of servers
    for number in range(1, load.num_servers + 1):
        blocked = load.offered * blocked / (number + load.offered * blocked)
    return blocked / (1 - load.utilisation * (1 - blocked))


def mmc_mean_wait(load: Load) -> float:
    """Return the mean wait in M/M/c, in seconds."""
    return erlang_c(load) * load.service_s / (load.num_servers * (1 - load.utilisation))


def mmc_wait_quantile(load: Load, share: float) -> float:
    """Return the seconds that at most the `share` of calls does not exceed in waiting, in M/M/c."""
    waits = erlang_c(load)
    if waits <= 1 - share:
        return 0.0
    mean_of_waiting_s = load.service_s / (load.num_servers * (1 - load.utilisation))
    return mean_of_waiting_s * math.log(waits / (1 - share))


def mdc_mean_wait(load: Load) -> float:
    """Return the mean wait in M/D/c, in seconds (Cosmetatos)."""
    count, busy = load.num_servers, load.utilisation
    bend = (1 - busy) * (count - 1) * (math.sqrt(4 + 5 * count) - 2) / (16 * busy * count)
    return mmc_mean_wait(load) / 2 * (1 + bend)


def mgc_mean_wait(load: Load, *, squared_variation: float) -> float:
    """Return the mean wait in M/G/c, in seconds (Allen and Cunneen).

    `squared_variation` is the variance of service times through the square of their mean.
    """
    return mmc_mean_wait(load) * (1 + squared_variation) / 2
