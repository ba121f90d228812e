"""The scripted model as a server, for tests whose code knows nothing but a URL."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from arkdev.endpoints.scripted.policy import DEFAULT_SKILL
from arkdev.endpoints.scripted.script import load_script
from arkdev.endpoints.scripted.server import ScriptedServer
from arkdev.testing.background import Background
from arkdev.testing.tracebacks import with_short_tracebacks


@dataclass(frozen=True)
class ServedEndpoint:
    """A server on 127.0.0.1. Any key will do."""

    url: str
    """Ends in ``/v1``; what an OpenAI client takes as `base_url`."""
    _server: ScriptedServer = field(repr=False)

    @property
    def ark_url(self) -> str:
        """The same server under Ark's path, ``/api/v3``."""
        return f"{self.url.removesuffix('/v1')}/api/v3"

    @property
    def num_chat_calls(self) -> int:
        """Chat calls so far."""
        return self._server.num_chat_calls


class EndpointFactory:
    """Starts servers, which end with the test."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack
        self._background: Background | None = None

    @with_short_tracebacks
    def __call__(
        self, *, skill: float = DEFAULT_SKILL, script: Path | str | None = None
    ) -> ServedEndpoint:
        """Serve a model of this `skill`, or one that a `script` file programs."""
        if self._background is None:
            self._background = Background(self._stack)
        background = self._background
        settings: dict[str, Any] = {"script": load_script(Path(script))} if script else {}
        server = ScriptedServer(skill=skill, **settings)
        url = background.run(server.start())
        self._stack.callback(lambda: background.run(server.stop()))
        return ServedEndpoint(url, server)
