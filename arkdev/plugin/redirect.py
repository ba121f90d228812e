"""Calls to Ark's public hosts, sent elsewhere for a while, at the seam of the client libraries.

Files as users wrote them name the public URL, or make an ``AsyncArk()`` that has no other. Between
`install` and `uninstall` the clients that are meant for a public host (OpenAI, AsyncOpenAI, Ark,
AsyncArk) are noted; from `start` on they, and those made later, talk to the URL given there, with
its key. So does a stand-alone `InferenceProxy`. Clients for any other host are left alone.
"""

from __future__ import annotations

import functools
import os
import threading
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Any
from urllib.parse import urlsplit

from arkdev.plugin.imports import ImportWatch

ARK_BASE_URL = "https://ark.cn-beijing.volces.com/api/v3"
"""The public inference service (LT-04)."""

_CLASSES = {
    "openai": ("OpenAI", "AsyncOpenAI"),
    "volcenginesdkarkruntime": ("Ark", "AsyncArk"),
}
_KEY_VARIABLES = {"openai": "OPENAI_API_KEY", "volcenginesdkarkruntime": "ARK_API_KEY"}
_NO_KEY = "none"
"""Lets a client be made at import time; `start` gives it the right one."""


def is_public_ark(url: str) -> bool:
    """Tell whether `url` is on a public host of Ark's inference service."""
    host = urlsplit(url).hostname or ""
    return host.startswith("ark.") and host.endswith(".volces.com")


@dataclass(frozen=True)
class _Target:
    url: str
    key: str


class _Redirect:
    """The one redirection of this process."""

    def __init__(self) -> None:
        self._clients: weakref.WeakSet[Any] = weakref.WeakSet()
        self._originals: list[tuple[type, Any]] = []
        self._lock = threading.Lock()
        self._watch = ImportWatch(_CLASSES, on_import=self.patch)
        self.target: _Target | None = None
        self.is_installed = False

    def install(self) -> None:
        if self.is_installed:
            return
        self.is_installed = True
        self._watch.start()

    def uninstall(self) -> None:
        self._watch.stop()
        for cls, original in self._originals:
            cls.__init__ = original  # type: ignore[misc]
        self._originals.clear()
        self._clients.clear()
        self.target = None
        self.is_installed = False

    def start(self, target: _Target) -> None:
        with self._lock:
            self.target = target
            for client in self._clients:
                # as all four keep it, with the slash that they add themselves
                client._base_url = type(client._base_url)(f"{target.url}/")
                client.api_key = target.key

    def patch(self, module: ModuleType) -> None:
        for name in _CLASSES[module.__name__]:
            cls = getattr(module, name)
            self._originals.append((cls, cls.__init__))
            cls.__init__ = self._noting(cls.__init__, library=module.__name__)

    def _noting(self, original: Callable[..., None], *, library: str) -> Callable[..., None]:
        @functools.wraps(original)
        def init(client: Any, *args: Any, **kwargs: Any) -> None:
            if not is_public_ark(_base_url(kwargs, library=library)):
                return original(client, *args, **kwargs)
            with self._lock:
                target = self.target
                if target is not None:
                    kwargs.update(base_url=target.url, api_key=target.key)
                elif not (kwargs.get("api_key") or os.environ.get(_KEY_VARIABLES[library])):
                    kwargs["api_key"] = _NO_KEY
                original(client, *args, **kwargs)
                self._clients.add(client)

        return init


def _base_url(kwargs: dict[str, Any], *, library: str) -> str:
    """Return the URL that a client of `library` is going to have."""
    given = kwargs.get("base_url")
    if given is None or type(given).__name__ == "NotGiven":
        if library == "openai":
            return os.environ.get("OPENAI_BASE_URL", "")
        return ARK_BASE_URL
    return str(given)


_redirect = _Redirect()


def install() -> None:
    """Note the clients that are meant for a public host of Ark. Idempotent."""
    _redirect.install()


def start(url: str, *, key: str) -> None:
    """Send their calls to `url` (with its path, as ``/api/v3``) from now on. Call `install` first.

    Clients that exist already are pointed there too.
    """
    _redirect.start(_Target(url, key))


def uninstall() -> None:
    """Leave clients made from now on alone. Idempotent."""
    _redirect.uninstall()


def address(url: str, key: str) -> tuple[str, str]:
    """Return URL and key of a stand-alone proxy: the target's when it names Ark, or nothing."""
    target = _redirect.target
    if target is not None and (not url or is_public_ark(url)):
        return target.url, target.key
    return url, key
