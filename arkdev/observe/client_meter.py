"""How many clients the plugins build, and what each costs.

A client's TLS context takes 50 to 90 ms of CPU. A rollout that builds one for itself is dominated
by it, which nobody sees without measuring.
"""

from __future__ import annotations

import functools
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from arkdev.observe.attempt import attempt_here

_CLASSES = {
    "openai": ("OpenAI", "AsyncOpenAI"),
    "volcenginesdkarkruntime": ("Ark", "AsyncArk"),
}


class ClientMeter:
    """Counts the clients built inside attempts while `running`; times are seconds."""

    def __init__(self) -> None:
        self.num_built = 0
        self.total_s = 0.0
        self._lock = threading.Lock()

    @property
    def mean_s(self) -> float:
        """CPU seconds of one client; 0 when there is none."""
        return self.total_s / self.num_built if self.num_built else 0.0

    @contextmanager
    def running(self) -> Iterator[None]:
        """Measure the client classes that are imported by now."""
        classes = [
            getattr(sys.modules[library], name)
            for library, names in _CLASSES.items()
            if library in sys.modules
            for name in names
        ]
        originals = [(cls, cls.__init__) for cls in classes]
        for cls, original in originals:
            cls.__init__ = self._measured(original)
        try:
            yield
        finally:
            for cls, original in originals:
                cls.__init__ = original

    def _measured(self, original: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(original)
        def init(client: Any, *args: Any, **kwargs: Any) -> None:
            attempt = attempt_here()
            started = time.thread_time()
            original(client, *args, **kwargs)
            if attempt is not None and kwargs.get("http_client") is None:
                cost_s = time.thread_time() - started
                with self._lock:
                    self.num_built += 1
                    self.total_s += cost_s
                attempt.note("client_built_per_rollout", type(client).__name__)

        return init
