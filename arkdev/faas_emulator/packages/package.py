"""The plugins' package: the files of a workspace that travel to a function (SURFACE X-19).

The same package goes into an image, beside a child process, and to the platform. It holds

* what ``[plugin.package] include`` of arkworkspace.toml names, else everything,
* less what the workspace's ``.dockerignore`` names,
* always ``requirements.txt``, and never what no function may or can use: files of secrets, version
  control, environments, caches, runs.

Folders of data and the job's YAML travel when a pattern of ``include`` begins with their name.
"""

from __future__ import annotations

import hashlib
import tarfile
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from arkdev.errors import BuildError, WorkspaceError
from arkdev.faas_emulator.functions import FunctionSpec
from arkdev.faas_emulator.packages.archives import FILE_MODE, FOLDER_MODE, add_file, add_folder
from arkdev.faas_emulator.packages.package_files import IGNORE_FILE, PackageRules, Walk
from arkdev.faas_emulator.packages.path_rules import PathRules, dockerignore_patterns
from arkdev.job.paths import readable, shown_path
from arkdev.job.workspace import WORKSPACE_FILE, Workspace

LARGE_FILE_BYTES = 5 * 1024**2
"""A file of this size is named: it may be data that was not meant to travel."""
_MAX_NAMED = 5


class PackageFile(NamedTuple):
    """One file of a package."""

    path: str
    """In the package: relative, with forward slashes."""
    source: Path
    """Where it is now: absolute."""


@dataclass(frozen=True)
class PluginPackage:
    """The files of a workspace that travel, sorted by path."""

    root: Path
    files: tuple[PackageFile, ...]
    sizes: tuple[int, ...]
    """Bytes of each file."""
    notes: tuple[str, ...] = ()
    """What was left out or may not be meant, a sentence each."""

    @property
    def size_bytes(self) -> int:
        """Bytes of all files."""
        return sum(self.sizes)

    def summary(self) -> list[str]:
        """Tell the package's size, its big files and its notes: a line each."""
        count = len(self.files)
        files = "1 file" if count == 1 else f"{count} files"
        lines = [f"package of {shown_path(self.root)}: {files}, {shown_size(self.size_bytes)}"]
        named = zip(self.sizes, self.files, strict=True)
        big = sorted((item for item in named if item[0] >= LARGE_FILE_BYTES), reverse=True)
        for size, file in big[:_MAX_NAMED]:
            lines.append(f"  big: {readable(file.path)}, {shown_size(size)}")
        if len(big) > _MAX_NAMED:
            lines.append(f"  and {len(big) - _MAX_NAMED} more of {shown_size(LARGE_FILE_BYTES)} up")
        return lines + [f"  {note}" for note in self.notes]

    def check_plugin(self, function: FunctionSpec) -> None:
        """Raise `BuildError` when the file of the plugin is not in the package."""
        module = function.reference.partition(":")[0].replace(".", "/")
        paths = {file.path for file in self.files}
        if not paths & {f"{module}.py", f"{module}/__init__.py"}:
            raise BuildError(
                f"the file of plugin {function.name!r} is not in the plugins' package",
                where=function.place,
                hint=f"name it in [plugin.package] include of {WORKSPACE_FILE}, and see whether "
                f"{IGNORE_FILE} names it",
            )

    def write_to(self, folder: Path) -> None:
        """Copy the files into `folder`, which is made; modes 644, folders 755, whatever the umask.

        Raises `BuildError` for a file that cannot be read.
        """
        folder.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
        folder.chmod(FOLDER_MODE)
        for file in self.files:
            target = folder
            for name in file.path.split("/")[:-1]:
                target = target / name
                if not target.is_dir():
                    target.mkdir()
                    target.chmod(FOLDER_MODE)
            target = folder / file.path
            target.write_bytes(_content(file))
            target.chmod(FILE_MODE)

    def add_to(self, archive: tarfile.TarFile, *, below: str) -> None:
        """Add the files to a tar, in the folder `below`; the same files give the same bytes.

        Raises `BuildError` for a file that cannot be read.
        """
        add_folder(archive, below)
        folders = set()
        for file in self.files:
            parts = file.path.split("/")[:-1]
            for count in range(1, len(parts) + 1):
                if (path := "/".join(parts[:count])) not in folders:
                    folders.add(path)
                    add_folder(archive, f"{below}/{path}")
            add_file(archive, f"{below}/{file.path}", _content(file))

    def digest(self) -> str:
        """Return the hash of paths and contents, in hexadecimal."""
        digest = hashlib.sha256()
        for file in self.files:
            content = _content(file)
            name = file.path.encode("utf-8", "surrogateescape")
            digest.update(f"{len(name)} {len(content)} ".encode() + name + content)
        return digest.hexdigest()


def plugin_package(workspace: Workspace) -> PluginPackage:
    """Find the files of a workspace that travel.

    Raises `WorkspaceError` for a pattern that cannot be read, `BuildError` when no file is left.
    """
    walk = Walk(workspace.root, _rules(workspace))
    found = sorted(walk.files())
    if not found:
        raise BuildError(
            "no file of the workspace is in the plugins' package",
            where=shown_path(workspace.root),
            hint=f"see [plugin.package] include of {WORKSPACE_FILE} and {IGNORE_FILE}",
        )
    return PluginPackage(
        root=workspace.root,
        files=tuple(PackageFile(path, source) for path, source, _ in found),
        sizes=tuple(size for _, _, size in found),
        notes=tuple(walk.notes(include=workspace.package_include)),
    )


def _rules(workspace: Workspace) -> PackageRules:
    try:
        return PackageRules(
            include=workspace.package_include,
            ignore=_ignore_rules(workspace.root / IGNORE_FILE),
            datasets=frozenset(path for paths in workspace.datasets.values() for path in paths),
        )
    except ValueError as error:
        raise WorkspaceError(
            f"plugin.package.include: {error}", where=shown_path(workspace.root / WORKSPACE_FILE)
        ) from error


def _ignore_rules(path: Path) -> PathRules:
    shown = shown_path(path)
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return PathRules(())
    except UnicodeDecodeError as error:
        raise WorkspaceError(
            f"not UTF-8 text (byte {error.start})", where=shown, hint="save the file as UTF-8"
        ) from error
    except OSError as error:
        raise WorkspaceError(f"cannot be read: {error.strerror}", where=shown) from error
    patterns = dockerignore_patterns(text)
    for number, pattern in patterns:
        try:
            PathRules([pattern])
        except ValueError as error:
            raise WorkspaceError(str(error), where=f"{shown}:{number}") from error
    return PathRules(pattern for _, pattern in patterns)


def _content(file: PackageFile) -> bytes:
    try:
        return file.source.read_bytes()
    except OSError as error:
        raise BuildError(
            f"cannot be read: {error.strerror}",
            where=shown_path(file.source),
            hint=f"let it be read, or name it in {IGNORE_FILE}",
        ) from error


def shown_size(size_bytes: int) -> str:
    """Return a size for people: ``812 B``, ``48.2 KiB``, ``1.5 MiB``."""
    if size_bytes < 1024:
        return f"{size_bytes} B"
    size = size_bytes / 1024
    for unit in ("KiB", "MiB"):
        if size < 1024:
            return f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} GiB"
