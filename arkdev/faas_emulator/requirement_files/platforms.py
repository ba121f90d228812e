"""The platform that a function runs on: which wheels and which markers hold there.

Nothing here looks at this machine: what a function installs on ``linux/amd64`` is the same from an
arm64 laptop (field case 7.3).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from packaging.tags import Tag, compatible_tags, cpython_tags
from packaging.utils import InvalidWheelFilename, parse_wheel_filename

from arkdev.errors import UsageError

DEFAULT_PLATFORM = "linux/amd64"
DEFAULT_PYTHON = "3.11"

_MACHINES = {"linux/amd64": "x86_64", "linux/arm64": "aarch64"}
_GLIBC_MINOR = 41
"""glibc 2.41 of Debian 13, which the base images are made of today."""
_OLDEST_GLIBC = {"x86_64": 5, "aarch64": 17}
_OLDER_NAMES = {5: "manylinux1", 12: "manylinux2010", 17: "manylinux2014"}
_PYTHON = re.compile(r"3\.(\d{1,2})")


@dataclass(frozen=True)
class Target:
    """Where a function runs. Made by `target`."""

    platform: str
    """``linux/amd64`` or ``linux/arm64``, as container engines write it."""
    python: str
    """``3.11``"""

    def __str__(self) -> str:
        return f"{self.platform} with Python {self.python}"

    @property
    def machine(self) -> str:
        """The architecture as Linux and Python call it."""
        return _MACHINES[self.platform]

    @property
    def uv_platform(self) -> str:
        """The value of uv's ``--python-platform``."""
        return f"{self.machine}-manylinux_2_40"

    @cached_property
    def tags(self) -> frozenset[Tag]:
        """Every tag of a wheel that can be installed there."""
        version = (3, int(self.python.partition(".")[2]))
        platforms = list(_platforms(self.machine))
        interpreter = "cp" + self.python.replace(".", "")
        return frozenset(
            [
                *cpython_tags(version, platforms=platforms, abis=[interpreter]),
                *compatible_tags(version, interpreter, platforms),
            ]
        )

    @property
    def markers(self) -> dict[str, str]:
        """The variables of environment markers, as they are there."""
        return {
            "implementation_name": "cpython",
            "implementation_version": f"{self.python}.0",
            "os_name": "posix",
            "platform_machine": self.machine,
            "platform_python_implementation": "CPython",
            "platform_release": "",
            "platform_system": "Linux",
            "platform_version": "",
            "python_full_version": f"{self.python}.0",
            "python_version": self.python,
            "sys_platform": "linux",
            "extra": "",
        }

    def wheel_problem(self, filename: str) -> str | None:
        """Say why the wheel called `filename` cannot be installed there; None when it can."""
        try:
            _, _, _, tags = parse_wheel_filename(filename)
        except InvalidWheelFilename:
            return f"{filename} is no name of a wheel"
        if not self.tags.isdisjoint(tags):
            return None
        shown = ", ".join(sorted(map(str, tags)))
        return f"the wheel is for {shown}, the function runs on {self}"


def target(platform: str = DEFAULT_PLATFORM, *, python: str = DEFAULT_PYTHON) -> Target:
    """Return the target that a platform and a version of Python name. Raises `UsageError`."""
    if platform not in _MACHINES:
        raise UsageError(
            f"functions do not run on {platform!r}", hint=f"platforms: {', '.join(_MACHINES)}"
        )
    if not (found := _PYTHON.fullmatch(python)) or int(found[1]) < 10:
        raise UsageError(
            f"functions do not run on Python {python!r}", hint="write 3.10, 3.11, 3.12, ..."
        )
    return Target(platform, python)


def _platforms(machine: str) -> Iterator[str]:
    for minor in range(_GLIBC_MINOR, _OLDEST_GLIBC[machine] - 1, -1):
        yield f"manylinux_2_{minor}_{machine}"
        if minor in _OLDER_NAMES:
            yield f"{_OLDER_NAMES[minor]}_{machine}"
    yield f"linux_{machine}"
