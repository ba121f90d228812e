"""Random numbers as a workspace's own code draws them: from generators of its attempt's own.

A generator is made from a seed that the tape knows, so the numbers themselves are not recorded.
What libraries draw stays as it is.
"""

from __future__ import annotations

import os
import random
import secrets
import uuid
from collections.abc import Callable
from contextlib import ExitStack
from functools import cached_property
from hashlib import blake2b
from importlib import import_module
from types import ModuleType
from typing import Any

from arkdev.plugin.imports import ImportWatch
from arkdev.tape.callers import Workspace

_STEPPED_OVER = (__file__, *(str(module.__file__) for module in (random, secrets, uuid)))
"""Code that draws for its caller."""
_DRAWING = (
    "betavariate",
    "binomialvariate",
    "choice",
    "choices",
    "expovariate",
    "gammavariate",
    "gauss",
    "getrandbits",
    "getstate",
    "lognormvariate",
    "normalvariate",
    "paretovariate",
    "randbytes",
    "randint",
    "random",
    "randrange",
    "sample",
    "seed",
    "setstate",
    "shuffle",
    "triangular",
    "uniform",
    "vonmisesvariate",
    "weibullvariate",
)


class Generators:
    """The generators of one attempt."""

    def __init__(self, seed: int, *place: str | int) -> None:
        """`seed` is the tape's, `place` the attempt's name and number."""
        text = repr((seed, *place)).encode()
        self._seed = int.from_bytes(blake2b(text, digest_size=8).digest(), "big")

    @cached_property
    def python(self) -> random.Random:
        """Behind the functions of `random`."""
        return random.Random(self._seed)

    @cached_property
    def system(self) -> random.Random:
        """Behind `secrets`, `os.urandom` and the like, and generators made without a seed."""
        return random.Random(f"system {self._seed}")

    @cached_property
    def numpy(self) -> Any:
        """Behind the functions of `numpy.random`: a ``RandomState``."""
        return import_module("numpy.random").RandomState(self._seed % 2**32)


def random_drawn_from(generators: Callable[[], Generators], workspace: Workspace) -> ExitStack:
    """Let the workspace's code draw from `generators()` until the returned stack is closed."""
    undo = ExitStack()
    for name in _DRAWING:
        if hasattr(random, name):  # binomialvariate came with Python 3.12
            _replace(undo, random, name, _drawn(generators, workspace, getattr(random, name)))
    _replace(undo, random.Random, "seed", _seeding(generators, workspace))
    for name in ("random", "getrandbits", "randbytes"):
        _replace(undo, random.SystemRandom, name, _of_system(generators, workspace, name))
    _replace(undo, secrets, "randbits", lambda k: secrets._sysrand.getrandbits(k))  # type: ignore[attr-defined]
    for name in ("urandom", "getrandom"):
        if hasattr(os, name):  # getrandom is Linux's
            _replace(undo, os, name, _bytes_of_system(generators, workspace, name))
    watch = ImportWatch(
        ("numpy.random",),
        on_import=lambda module: _patch_numpy(undo, module, generators, workspace),
    )
    watch.start()
    undo.callback(watch.stop)
    return undo


def _replace(undo: ExitStack, owner: Any, name: str, function: Any) -> None:
    undo.callback(setattr, owner, name, getattr(owner, name))
    setattr(owner, name, function)


def _drawn(
    generators: Callable[[], Generators], workspace: Workspace, real: Callable[..., Any]
) -> Callable[..., Any]:
    def draw(*args: Any, **kwargs: Any) -> Any:
        if not workspace.is_calling():
            return real(*args, **kwargs)
        return getattr(generators().python, real.__name__)(*args, **kwargs)

    return draw


def _seeding(generators: Callable[[], Generators], workspace: Workspace) -> Callable[..., None]:
    real = random.Random.seed

    def seed(self: random.Random, a: Any = None, version: int = 2) -> None:
        # a generator made without a seed takes one from the system
        if a is None and workspace.is_calling(past=_STEPPED_OVER):
            a = generators().system.getrandbits(64)
        real(self, a, version)

    return seed


def _of_system(
    generators: Callable[[], Generators], workspace: Workspace, name: str
) -> Callable[..., Any]:
    real = getattr(random.SystemRandom, name)

    def draw(self: random.SystemRandom, *args: Any) -> Any:
        if not workspace.is_calling(past=_STEPPED_OVER):
            return real(self, *args)
        return getattr(generators().system, name)(*args)

    return draw


def _bytes_of_system(
    generators: Callable[[], Generators], workspace: Workspace, name: str
) -> Callable[..., bytes]:
    real = getattr(os, name)

    def draw(size: int, *flags: Any, **named: Any) -> bytes:
        if not workspace.is_calling(past=_STEPPED_OVER):
            return bytes(real(size, *flags, **named))
        return generators().system.randbytes(size)

    return draw


def _patch_numpy(
    undo: ExitStack,
    numpy_random: ModuleType,
    generators: Callable[[], Generators],
    workspace: Workspace,
) -> None:
    shared = numpy_random.mtrand._rand

    def drawn(real: Any) -> Callable[..., Any]:
        def draw(*args: Any, **kwargs: Any) -> Any:
            if not workspace.is_calling():
                return real(*args, **kwargs)
            return getattr(generators().numpy, real.__name__)(*args, **kwargs)

        return draw

    def default_rng(seed: Any = None) -> Any:
        if seed is None and workspace.is_calling():
            seed = generators().system.getrandbits(64)
        return real_default_rng(seed)

    real_default_rng = numpy_random.default_rng
    for name in numpy_random.__all__:
        function = getattr(numpy_random, name)
        if getattr(function, "__self__", None) is shared:
            _replace(undo, numpy_random, name, drawn(function))
    _replace(undo, numpy_random, "default_rng", default_rng)
