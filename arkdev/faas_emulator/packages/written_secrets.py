"""Secrets that are written into files of the plugins' package: they travel with it, into images.

A function is given its variables when it starts. A ``job.py`` that has a key in its text, and not
from this machine's environment, takes it along all the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from arkdev.faas_emulator.functions import FunctionSpec
from arkdev.faas_emulator.packages.package import PluginPackage
from arkdev.faas_emulator.worker.wire import ARK_URL_VARIABLE
from arkdev.runs.masking import MIN_SECRET_LENGTH, has_secret_name

_MAX_BYTES = 1024**2
"""Larger files are data, and not looked at."""


@dataclass(frozen=True)
class WrittenSecret:
    """The value of a variable in a file of the package."""

    name: str
    place: str
    """file:line in the package, of the first."""

    def __str__(self) -> str:
        return (
            f"{self.place} has the value of {self.name} in it, and travels with the functions, "
            "into their images; take it from this machine's environment, or name the file in "
            ".dockerignore"
        )


def written_secrets(
    package: PluginPackage, functions: Sequence[FunctionSpec]
) -> tuple[WrittenSecret, ...]:
    """Find the values of declared variables whose names are those of secrets.

    One for each variable and file, in the order of the files. A file that cannot be read is left
    to whoever packs it.
    """
    values = {
        name: value.encode("utf-8", "surrogateescape")
        for function in functions
        for name, value in function.envs.items()
        if has_secret_name(name)
        and len(value) >= MIN_SECRET_LENGTH
        and not (name == "ARK_API_KEY" and ARK_URL_VARIABLE in function.envs)  # no key of anyone's
    }
    found = []
    for file, size in zip(package.files, package.sizes, strict=True):
        if not values or size > _MAX_BYTES:
            continue
        try:
            content = file.source.read_bytes()
        except OSError:
            continue
        for name, value in values.items():
            before, separator, _ = content.partition(value)
            if separator:
                line = before.count(b"\n") + 1
                found.append(WrittenSecret(name, f"{file.path}:{line}"))
    return tuple(found)
