"""The wheel that a function installs: arkdev's own function side, from whatever arkdev runs here.

It holds what a plugin and the worker import, and nothing else of arkdev: pydantic is all that it
requires. It is made from the files of the running arkdev, so an editable install and an installed
wheel give the same bytes, on every machine and at any time: what is cached by its name or its
content stays cached until one of these files changes.

Its package `ark_sdk` serves the documented import names to processes that plugins start as well
(decision 13): the worker itself has them before it imports a plugin.
"""

from __future__ import annotations

import ast
import hashlib
import io
import re
import tempfile
import threading
import zipfile
from base64 import urlsafe_b64encode
from collections.abc import Iterator, Set
from functools import cache
from pathlib import Path

import arkdev
from arkdev.errors import BuildError

FUNCTION_REQUIRES = "pydantic>=2.8,<3"
"""All that the wheel requires; the same range as arkdev's own."""
FUNCTION_PYTHON = ">=3.10"

_READING = threading.Lock()
"""`ast.parse` in two threads at once can fail in CPython 3.11."""
_ROOTS = ("arkdev", "arkdev.types", "arkdev.errors")
_PACKAGES = ("arkdev.plugin.", "arkdev.faas_emulator.worker.")
"""What plugins and the worker import by name, beside `_ROOTS`: all that these hold."""
_MODULE = re.compile(r"arkdev(\.\w+)+(?=:|$)")
_EPOCH = (1980, 1, 1, 0, 0, 0)
_ARK_SDK = '''"""The documented import names of the fine-tuning SDK, served by arkdev."""

from importlib import import_module

from arkdev.plugin import ark_sdk

ark_sdk.install()
import_module(__name__)  # takes this module's place
'''


def function_wheel(folder: Path) -> Path:
    """Write the wheel into `folder`, which is made when it is missing, and return its path.

    The name holds a digest of the content: ``arkdev-0.1.0+function.1f0c...-py3-none-any.whl``. A
    wheel that is there already is left alone. Raises `BuildError` when arkdev's own files cannot
    be read.
    """
    with _READING:
        files = dict(_files())
    digest = hashlib.sha256(f"{FUNCTION_REQUIRES}\0{FUNCTION_PYTHON}".encode())
    for name, data in files.items():
        digest.update(f"{name}\0{len(data)}\0".encode() + data)
    version = f"{arkdev.__version__}+function.{digest.hexdigest()[:12]}"
    path = folder / f"arkdev-{version}-py3-none-any.whl"
    if not path.is_file():
        folder.mkdir(parents=True, exist_ok=True)
        # others may write the same one at this moment
        with tempfile.NamedTemporaryFile(dir=folder, suffix=".partial", delete=False) as partial:
            partial.write(_archive(files, version=version))
        Path(partial.name).chmod(0o644)
        Path(partial.name).replace(path)
    return path


def is_left_out(module: str) -> bool:
    """Whether `module`, a module of arkdev or a name in one, is not in the wheel."""
    inside, everything = _inside_and_everything()
    parts = module.split(".")
    prefixes = (".".join(parts[:end]) for end in range(len(parts), 0, -1))
    home = next((prefix for prefix in prefixes if prefix in everything), None)
    return home is not None and home not in inside


@cache
def _inside_and_everything() -> tuple[Set[str], Set[str]]:
    """Names of the modules in the wheel, and of all of arkdev's."""
    modules = _modules(Path(arkdev.__file__).parent)
    return _reached(modules), modules.keys()


def _files() -> Iterator[tuple[str, bytes]]:
    """(path in the wheel, content) of each file, sorted."""
    package = Path(arkdev.__file__).parent
    try:
        modules = _modules(package)
        paths = {modules[name] for name in _reached(modules)}
        folders = {path.parent for path in paths}
        paths |= {path for folder in folders for path in folder.iterdir() if _is_data(path)}
        found = {path.relative_to(package.parent).as_posix(): path.read_bytes() for path in paths}
    except OSError as error:
        raise BuildError(
            f"arkdev's own files cannot be read: {error.strerror}",
            where=str(error.filename or package),
            hint="install arkdev again",
        ) from error
    yield from sorted({**found, "ark_sdk/__init__.py": _ARK_SDK.encode()}.items())


def _modules(package: Path) -> dict[str, Path]:
    modules = {}
    for path in package.rglob("*.py"):
        parts = path.relative_to(package.parent).with_suffix("").parts
        modules[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return modules


def _reached(modules: dict[str, Path]) -> set[str]:
    """Names of the roots and of all that they import, lazily or by a name in a text too."""
    todo = [name for name in modules if name in _ROOTS or name.startswith(_PACKAGES)]
    reached: set[str] = set()
    while todo:
        name = todo.pop()
        if name in modules and name not in reached:
            reached.add(name)
            todo.append(name.rpartition(".")[0])
            todo += _named_in(modules[name])
    return reached


def _named_in(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Constant) and (named := _MODULE.match(str(node.value))):
            yield named[0]


def _is_data(path: Path) -> bool:
    return path.is_file() and path.suffix not in (".py", ".pyc") and path.name[0] != "."


def _archive(files: dict[str, bytes], *, version: str) -> bytes:
    """The wheel's bytes: sorted, without times or owners, not compressed (zlib's output varies)."""
    info = f"arkdev-{version}.dist-info"
    content = {
        **files,
        f"{info}/METADATA": (
            f"Metadata-Version: 2.1\nName: arkdev\nVersion: {version}\n"
            "Summary: What a function of arkdev's FaaS emulator imports\n"
            f"Requires-Python: {FUNCTION_PYTHON}\nRequires-Dist: {FUNCTION_REQUIRES}\n"
        ).encode(),
        f"{info}/WHEEL": (
            b"Wheel-Version: 1.0\nGenerator: arkdev\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        ),
    }
    record = "".join(f"{name},{_hash(data)},{len(data)}\n" for name, data in content.items())
    content[f"{info}/RECORD"] = f"{record}{info}/RECORD,,\n".encode()
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        for name, data in content.items():
            entry = zipfile.ZipInfo(name, _EPOCH)
            entry.create_system = 3  # else it depends on the machine's system
            entry.external_attr = 0o100644 << 16
            archive.writestr(entry, data)
    return buffer.getvalue()


def _hash(data: bytes) -> str:
    return "sha256=" + urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
