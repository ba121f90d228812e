"""The HTTP calls that the plugins of a test make for themselves."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

from arkdev.harness.services import ServiceMeter
from arkdev.plugin.traffic.exchange import TrafficRule
from arkdev.plugin.traffic.patches import traffic_through

_JUDGE = "judge (scripted)"


@contextmanager
def plugin_traffic(
    meter: ServiceMeter,
    *rules: TrafficRule,
    judge: Any | None,
    gateway_url: str | None = None,
) -> Iterator[None]:
    """Let the calls pass `rules`, and count what is sent then.

    `judge` is what stands in for Ark in a scripted test, when there is one. Calls to `gateway_url`
    are not the plugins' own.
    """
    if judge is not None:
        meter.names[urlsplit(os.environ["ARK_BASE_URL"]).netloc] = _JUDGE
    with traffic_through([*rules, meter], own_urls=[gateway_url] if gateway_url else []):
        yield
