"""The workspace: its root, and what ``arkworkspace.toml`` says (SURFACE WS-12, WS-22, X-19)."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from arkdev.errors import WorkspaceError
from arkdev.job.paths import filesystem_path, shown_path
from arkdev.job.prices import MODEL_PRICE, PRICES, ModelPrice, Prices, price_problem
from arkdev.job.problems import Problem, make_error
from arkdev.job.spelling import unknown_name
from arkdev.job.tools import TOOL_LIMITS, ToolLimits, host_problem

WORKSPACE_FILE = "arkworkspace.toml"
JOB_FILES = ("job.yaml", "job.yml", "job.py")
"""Names of job files, the preferred one first."""
PLUGIN_FOLDER = "plugins"

_TABLES = ("plugin", "endpoints", "tools", "datasets", "hyperparameters", "prices", "train")


@dataclass(frozen=True)
class PlacedValue:
    """A value of the file, and where it stands."""

    value: object
    where: str
    """file:line."""


@dataclass(frozen=True)
class Workspace:
    """A folder with plugins, data and a job."""

    root: Path
    """Absolute."""
    is_bare: bool
    """True when nothing marks the folder as a workspace."""
    package_include: tuple[str, ...] = ()
    """Patterns of the files that belong to the plugins' package; empty when not given."""
    endpoints: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """The ``[endpoints.NAME]`` tables as they are."""
    tools: Mapping[str, ToolLimits] = field(default_factory=dict)
    """The ``[tools."HOST"]`` and ``[tools."HOST:PORT"]`` tables, hosts in lower case."""
    datasets: Mapping[str, tuple[Path, ...]] = field(default_factory=dict)
    """``[datasets]``: the files that stand here for a dataset of the platform, by its id."""
    hyperparameters: tuple[str, ...] = ()
    """``known`` of ``[hyperparameters]``: names that the platform has, the catalogue or not."""
    prices: Prices = field(default_factory=Prices)
    """``[prices]``: what tokens and training cost."""
    train_local: Mapping[str, PlacedValue] = field(default_factory=dict)
    """``[train.local]``: hyperparameters of training on this machine, in place of the job's. What
    they may be is checked where a job's method is known (`arkdev.job.local_values`)."""


def find_workspace(start: Path, *, job: Path | None = None) -> Workspace:
    """Return the workspace that `start` lies in: the nearest folder upwards with a marker.

    Markers are arkworkspace.toml, a job file and a folder ``plugins``. The search ends at the home
    directory. Without a marker it is the workspace that the job file `job` lies in, when one is
    named; else `start` itself is a bare workspace. Raises `WorkspaceError`.
    """
    found = _nearest(start)
    if found.is_bare and job is not None and job.absolute().parent.is_dir():
        around = _nearest(job.absolute().parent.resolve())  # no ".." in what is shown of it
        return found if around.is_bare else around
    return found


def _nearest(start: Path) -> Workspace:
    start = Path(start).absolute()
    if not start.is_dir():
        raise WorkspaceError("there is no such folder", where=shown_path(start))
    home = Path.home()
    for folder in (start, *start.parents):
        if _is_marked(folder):
            return read_workspace(folder)
        if folder == home:
            break
    return Workspace(root=start, is_bare=True)


def _is_marked(folder: Path) -> bool:
    files = (WORKSPACE_FILE, *JOB_FILES)
    return any((folder / name).is_file() for name in files) or (folder / PLUGIN_FOLDER).is_dir()


def read_workspace(root: Path) -> Workspace:
    """Return the workspace whose root is `root`. Raises `WorkspaceError`."""
    path = root / WORKSPACE_FILE
    if not path.is_file():
        return Workspace(root=root, is_bare=False)
    shown = shown_path(path)
    try:
        text = path.read_bytes().decode("utf-8-sig")
        values = tomllib.loads(text)
    except UnicodeDecodeError as error:
        raise WorkspaceError(
            f"not UTF-8 text (byte {error.start})", where=shown, hint="save the file as UTF-8"
        ) from error
    except tomllib.TOMLDecodeError as error:
        place = re.search(r" \(at line (\d+), column (\d+)\)", str(error))
        raise WorkspaceError(
            f"not valid TOML: {str(error).partition(' (at ')[0]}",
            where=f"{shown}:{place[1]}:{place[2]}" if place else shown,
        ) from error
    except OSError as error:
        raise WorkspaceError(f"cannot be read: {error.strerror}", where=shown) from error
    return _Tables(text, shown=shown).workspace(values, root=root)


class _Tables:
    """Checks the parsed tables; finds the line of a key in the text for its errors."""

    def __init__(self, text: str, *, shown: str) -> None:
        self._lines = text.splitlines()
        self._shown = shown
        self._problems: list[Problem] = []

    def workspace(self, values: Mapping[str, Any], *, root: Path) -> Workspace:
        self._check_names(values, table="", known=_TABLES)
        plugin = self._table(values, "plugin")
        self._check_names(plugin, table="plugin", known=("package",))
        package = self._table(plugin, "package")
        self._check_names(package, table="plugin.package", known=("include",))
        include = self._texts(package, "plugin.package.include", "patterns")
        endpoints = self._table(values, "endpoints")
        tables = {name: self._table(endpoints, name) for name in endpoints}
        tools = self._table(values, "tools")
        limits = {host.lower(): self._tool(host, self._table(tools, host)) for host in tools}
        named = self._table(values, "datasets")
        datasets = {name: self._files(name, value, root=root) for name, value in named.items()}
        declared = self._table(values, "hyperparameters")
        self._check_names(declared, table="hyperparameters", known=("known",))
        hyperparameters = self._texts(declared, "hyperparameters.known", "names")
        prices = self._prices(self._table(values, "prices"))
        train = self._table(values, "train")
        self._check_names(train, table="train", known=("local",))
        local = self._table(train, "local")
        if self._problems:
            raise make_error(WorkspaceError, self._problems)
        return Workspace(
            root=root,
            is_bare=False,
            package_include=include,
            endpoints=tables,
            tools=limits,
            datasets=datasets,
            hyperparameters=hyperparameters,
            prices=prices,
            train_local={name: self._placed(name, value) for name, value in local.items()},
        )

    def _placed(self, name: str, value: object) -> PlacedValue:
        after = self._line_of("local", after=self._line_of("train", after=0) - 1)
        return PlacedValue(value, f"{self._shown}:{self._line_of(name, after=after)}")

    def _texts(self, table: Mapping[str, Any], key: str, what: str) -> tuple[str, ...]:
        """The list of texts at the end of `key`, empty when it is not there."""
        name = key.rpartition(".")[2]
        texts = table.get(name, [])
        if isinstance(texts, list) and all(isinstance(text, str) for text in texts):
            return tuple(texts)
        self._problem(name, f"{key}: a list of {what} is expected")
        return ()

    def _files(self, name: str, value: Any, *, root: Path) -> tuple[Path, ...]:
        """The files that stand for the dataset `name`: a path, or a list of some."""
        paths = [value] if isinstance(value, str) else value
        if (
            isinstance(paths, list)
            and paths
            and all(isinstance(path, str) and path for path in paths)
        ):
            try:
                return tuple(root / filesystem_path(path) for path in paths)
            except ValueError as error:
                self._problem(name, f"datasets.{name}: {error}")
                return ()
        self._problem(name, f"datasets.{name}: a path is expected, or a list of them")
        return ()

    def _prices(self, table: Mapping[str, Any]) -> Prices:
        self._check_names(table, table="prices", known=PRICES)
        if not table:
            return Prices()
        currency = table.get("currency")
        if not isinstance(currency, str) or not currency:
            message = 'prices.currency: a word is expected, such as "CNY"'
            self._problem("currency" if currency is not None else "prices", message)
        hourly = table.get("training_per_hour")
        if hourly is not None and (problem := price_problem(hourly)):
            self._problem("training_per_hour", f"prices.training_per_hour: {problem}")
        models = self._table(table, "models")
        found = {name: self._price(name, self._table(models, name)) for name in models}
        if self._problems:
            return Prices()
        return Prices(str(currency), hourly, {n: ModelPrice(**one) for n, one in found.items()})

    def _price(self, model: str, table: Mapping[str, Any]) -> Mapping[str, float]:
        where = f'prices.models."{model}"'
        self._check_names(table, table=where, known=MODEL_PRICE)
        for name in MODEL_PRICE:
            if name not in table:
                self._problem(model, f"[{where}] has no {name}")
            elif problem := price_problem(table[name]):
                self._problem(name, f"{where}.{name}: {problem}", table=model)
        return table

    def _tool(self, host: str, table: Mapping[str, Any]) -> ToolLimits:
        where = f'tools."{host}"'
        if problem := host_problem(host):
            self._problem(host, f"[{where}]: {problem}")
        self._check_names(table, table=where, known=TOOL_LIMITS)
        limits = {name: value for name, value in table.items() if name in TOOL_LIMITS}
        for name, value in limits.items():
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                message = f"{where}.{name}: a whole number of at least 1 is expected, not {value!r}"
                self._problem(name, message, table=host)
        if not table:
            self._problem(host, f"[{where}] sets no limit; it may have {' and '.join(TOOL_LIMITS)}")
        return ToolLimits(**limits)

    def _table(self, values: Mapping[str, Any], name: str) -> Mapping[str, Any]:
        value = values.get(name, {})
        if isinstance(value, dict):
            return value
        self._problem(name, f"{name}: a table is expected")
        return {}

    def _check_names(
        self, values: Mapping[str, Any], *, table: str, known: tuple[str, ...]
    ) -> None:
        for name in values:
            if name not in known:
                kind = f"key in [{table}]" if table else "table"
                self._problem(name, unknown_name(kind, name, known=known))

    def _problem(self, name: str, message: str, *, table: str = "") -> None:
        """Note a problem at the line of the key or table `name`, of that in `table` when given."""
        first = self._line_of(table, after=0) if table else 0
        self._problems.append(Problem(f"{self._shown}:{self._line_of(name, after=first)}", message))

    def _line_of(self, name: str, *, after: int) -> int:
        key = rf"[\"']?{re.escape(name)}[\"']?"
        pattern = re.compile(rf"\s*(\[+\s*([^\]]*\.)?\s*{key}\s*[\].]|([^=]*\.)?{key}\s*[.=])")
        lines = enumerate(self._lines[after:], after + 1)
        return next((number for number, line in lines if pattern.match(line)), max(after, 1))
