"""`arkdev freeze` on workspaces with an environment of their own (SURFACE FT-01)."""

from __future__ import annotations

import hashlib
import json
import sys
import threading
import venv
import zipfile
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from textwrap import dedent

import pytest

from arkdev.faas_emulator.freezing.frozen_text import SECTION
from arkdev.faas_emulator.requirement_files.requirements import read_requirements
from arkdev.flows.init_workspace import TEMPLATES, create_workspace
from tests.integration.workspace import Command, Workspace


class Environment:
    """The workspace's ``.venv``, with packages that nobody published."""

    def __init__(self, root: Path) -> None:
        venv.create(root / ".venv", symlinks=True, with_pip=False)
        [self.site] = (root / ".venv" / "lib").glob("python3*/site-packages")

    def install(
        self, name: str, version: str, *requires: str, files: tuple[str, ...] = (), url: str = ""
    ) -> None:
        """Install a package with the module `name`, or with `files`."""
        files = files or (f"{name}.py",)
        for file in files:
            path = self.site / file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()
        info = self.site / f"{name.replace('-', '_')}-{version}.dist-info"
        info.mkdir()
        needs = "".join(f"Requires-Dist: {text}\n" for text in requires)
        metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{needs}"
        (info / "METADATA").write_text(metadata, encoding="utf-8")
        record = "".join(f"{file},,\n" for file in files)
        (info / "RECORD").write_text(record, encoding="utf-8")
        if url:
            direct = {"url": url, "dir_info": {"editable": url.endswith("-editable")}}
            if url.startswith("git"):
                vcs = {"vcs": "git", "commit_id": url.rpartition("@")[2]}
                direct = {"url": url.partition("+")[2].rpartition("@")[0], "vcs_info": vcs}
            (info / "direct_url.json").write_text(json.dumps(direct), encoding="utf-8")


@pytest.fixture
def environment(workspace: Workspace) -> Environment:
    return Environment(workspace.root)


def requirements(workspace: Workspace) -> str:
    return (workspace.root / "requirements.txt").read_text(encoding="utf-8")


def test_exact_versions_of_direct_and_indirect_imports_are_written(
    workspace: Workspace, environment: Environment, arkdev: Command
) -> None:
    environment.install(
        "web",
        "2.0",
        "wires>=1; sys_platform == 'linux'",
        "never; sys_platform == 'win32'",
        "never; extra == 'cli'",
        "speedy; extra == 'fast'",
        "ark-sdk",
    )
    environment.install("wires", "1.5", "Deep_Wires")
    environment.install("deep-wires", "0.1", "web")
    environment.install("speedy", "3.0")
    environment.install("trace-sdk", "1.1", files=("tracing/sdk/__init__.py",))
    environment.install("trace-web", "1.2", files=("tracing/web.py",))
    environment.install("unused", "9.9")
    workspace.write("plugins/tools.py", "def f():\n    from tracing.sdk import x\n    import web\n")
    workspace.write("requirements.txt", "# what plugins need\nweb[fast]>=1  # http\nunused==9.9\n")
    told = arkdev("freeze")
    assert told.exit_code == 0, told.err
    assert requirements(workspace) == dedent(f"""\
        # what plugins need
        web[fast]==2.0  # http
        trace-sdk==1.1

        {SECTION}
        deep-wires==0.1
        speedy==3.0
        wires==1.5
        """)
    assert "requirements.txt:3: `unused==9.9`: nothing imports it" in told.out
    assert arkdev("freeze", "--check").exit_code == 0
    document = arkdev("freeze", "--json").document
    assert document["unused"] == ["trace-web", "unused"]
    assert {pin["name"]: pin["required_by"] for pin in document["pins"]}["wires"] == ["web"]
    assert document["pins"][-2]["imported_at"] == ["plugins/tools.py:3"]


def test_check_ends_with_1_shows_the_difference_and_writes_nothing(
    workspace: Workspace, environment: Environment, arkdev: Command
) -> None:
    environment.install("web", "2.0")
    workspace.write("plugins/tools.py", "import web\n")
    assert arkdev("freeze", "--check").exit_code == 1
    text = "web==1.0\n-e ./lib\nfoo @ git+ssh://git@h/foo\n"
    workspace.write("requirements.txt", text)
    told = arkdev("freeze", "--check")
    assert told.exit_code == 1
    assert "-web==1.0" in told.out and "+web==2.0" in told.out
    assert [f"error: requirements.txt:{line}" in told.out for line in (1, 2, 3)] == [
        False,
        True,
        True,
    ]
    assert requirements(workspace) == text
    assert arkdev("freeze").exit_code == 0
    assert requirements(workspace) == "web==2.0\n"
    assert arkdev("freeze", "--check").exit_code == 0


def test_an_import_that_is_not_installed_is_an_error_with_its_line(
    workspace: Workspace, environment: Environment, arkdev: Command
) -> None:
    workspace.write(
        "plugins/tools.py",
        "import json\nimport nowhere.sub\nimport grader\nfrom tracing import web\n",
    )
    environment.install("tracing-sdk", "1.1", files=("tracing/sdk/__init__.py",))
    told = arkdev("freeze")
    assert (told.exit_code, told.out) == (2, "")
    assert "plugins/tools.py:4: tracing is imported and not installed in" in told.err
    assert "plugins/tools.py:2: nowhere.sub is imported and not installed in" in told.err
    assert "plugins/tools.py:3" in told.err and "write `import plugins.grader`" in told.err
    assert not (workspace.root / "requirements.txt").exists()


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("file:///src/web-editable", "a path of this machine"),
        ("file:///src/web", "a path of this machine"),
        ("git+ssh://git@h/a/web@0123456789abcdef0123456789abcdef01234567", "ssh"),
        ("git+https://h/a/web@0123456789abcdef0123456789abcdef01234567", ""),
    ],
)
def test_what_is_installed_from_where_no_function_reaches_is_refused(
    workspace: Workspace, environment: Environment, arkdev: Command, url: str, says: str
) -> None:
    environment.install("web", "2.0", url=url)
    workspace.write("plugins/tools.py", "import web\n")
    told = arkdev("freeze")
    if says:
        assert told.exit_code == 2
        assert "plugins/tools.py:1" in told.err and says in told.err
    else:
        assert told.exit_code == 0, told.err
        assert f"web @ {url}\n" in requirements(workspace)


def test_optional_imports_count_where_they_are_installed_and_not_commented_out(
    workspace: Workspace, environment: Environment, arkdev: Command
) -> None:
    for name in ("here", "beside", "commented"):
        environment.install(name, "1.0")
    attempt = "try:\n    import {}\nexcept ImportError:\n    pass\n"
    source = "".join(map(attempt.format, ("here", "beside, missing", "commented")))
    workspace.write("plugins/tools.py", source)
    workspace.write("requirements.txt", "# commented==1.0\n")
    told = arkdev("freeze")
    assert told.exit_code == 0, told.err
    assert requirements(workspace) == "# commented==1.0\nhere==1.0\n"
    assert "optional import of missing: it is not installed" in told.out
    assert "optional import of commented: its line in requirements.txt is a comment" in told.out


def test_a_utf_16_file_is_frozen_as_utf_8_with_its_own_line_ends(
    workspace: Workspace, environment: Environment, arkdev: Command
) -> None:
    """Field case 7.2."""
    environment.install("web", "2.0")
    workspace.write("plugins/tools.py", "import web\n")
    path = workspace.root / "requirements.txt"
    path.write_bytes("# 依赖\r\nweb==2.0\r\n".encode("utf-16"))
    told = arkdev("freeze", "--check")
    assert (told.exit_code, "the file is UTF-16" in told.out) == (1, True)
    assert arkdev("freeze").exit_code == 0
    assert path.read_bytes() == "# 依赖\r\nweb==2.0\r\n".encode()
    path.write_bytes("web==2.0\n".encode("utf-16-le"))
    told = arkdev("freeze")
    assert told.exit_code == 2
    assert "UTF-16" in told.err and "save the file as UTF-8" in told.err
    assert "\0" not in told.err and "x00" not in told.err


def test_nothing_is_written_by_a_dry_run_and_output_names_another_file(
    workspace: Workspace, environment: Environment, arkdev: Command
) -> None:
    environment.install("web", "2.0")
    workspace.write("plugins/tools.py", "import web\n")
    workspace.write("requirements.txt", "# https://u:hidden@h\nweb\n")
    told = arkdev("freeze", "--dry-run")
    assert (told.exit_code, told.out) == (0, "# https://***@h\nweb==2.0\n")
    assert requirements(workspace) == "# https://u:hidden@h\nweb\n"
    assert arkdev("freeze", "--output", "locked.txt").exit_code == 0
    locked = (workspace.root / "locked.txt").read_text(encoding="utf-8")
    assert locked == "# https://u:hidden@h\nweb==2.0\n"
    for flags in (
        ("--check", "--dry-run"),
        ("--check", "--output", "x"),
        ("--dry-run", "--output", "x"),
    ):
        told = arkdev("freeze", *flags)
        assert told.exit_code == 2 and "has no effect" in told.err


def test_options_that_a_function_cannot_use_are_not_written_again(
    workspace: Workspace, environment: Environment, arkdev: Command
) -> None:
    text = "--index-url https://u:hidden-pw@h/simple\nx @ https://u:hidden-pw@h/x.tar.gz\n"
    workspace.write("requirements.txt", text)
    for flags in ((), ("--check",), ("--dry-run",), ("--json",)):
        told = arkdev("freeze", *flags)
        assert told.exit_code == 2
        assert "requirements.txt:1" in told.err and "credentials" in told.err
        assert "hidden-pw" not in told.out + told.err
    assert requirements(workspace) == text


@pytest.fixture
def index(tmp_path: Path) -> Iterator[str]:
    """A package index on this machine with `linuxonly` 1.0 and 1.1, for aarch64 alone."""
    for version in ("1.0", "1.1"):
        name = f"linuxonly-{version}-py3-none-manylinux_2_17_aarch64.whl"
        path = tmp_path / "index" / "files" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        info = f"linuxonly-{version}.dist-info"
        with zipfile.ZipFile(path, "w") as wheel:
            metadata = f"Metadata-Version: 2.1\nName: linuxonly\nVersion: {version}\n"
            wheel.writestr(f"{info}/METADATA", metadata)
            wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\n")
            wheel.writestr(f"{info}/RECORD", "")
        page = tmp_path / "index" / "simple" / "linuxonly" / "index.html"
        page.parent.mkdir(parents=True, exist_ok=True)
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        with page.open("a", encoding="utf-8") as links:
            links.write(f'<a href="../../files/{name}#sha256={digest}">{name}</a>\n')
    handler = partial(_Quiet, directory=str(tmp_path / "index"))
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/simple"
    server.shutdown()
    thread.join()
    server.server_close()


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None: ...


def test_what_only_the_functions_platform_needs_is_resolved_for_it(
    workspace: Workspace,
    environment: Environment,
    arkdev: Command,
    index: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Field case 7.3: the platform that is declared counts, not this machine's."""
    monkeypatch.setenv("UV_NO_CACHE", "1")
    environment.install("web", "2.0", "linuxonly; platform_machine == 'aarch64'")
    workspace.write("plugins/tools.py", "import web\n")
    monkeypatch.setenv("UV_OFFLINE", "1")
    told = arkdev("freeze")
    assert (told.exit_code, requirements(workspace).splitlines()[-1]) == (0, "web==2.0"), told.err
    told = arkdev("freeze", "--platform", "linux/arm64")
    assert told.exit_code == 2 and "uv pip compile failed" in told.err
    monkeypatch.delenv("UV_OFFLINE")
    workspace.write("requirements.txt", f"--index-url {index}\nweb==2.0\n")
    page = workspace.root.parent / "index" / "simple" / "web" / "index.html"
    page.parent.mkdir()
    name = _web_wheel(workspace.root.parent / "index" / "files")
    page.write_text(f'<a href="../../files/{name}">{name}</a>', encoding="utf-8")
    told = arkdev("freeze", "--platform", "linux/arm64")
    assert told.exit_code == 0, told.err
    assert requirements(workspace).endswith("linuxonly==1.1\n")
    assert "uv chose versions from the package index for linux/arm64" in told.out
    text = requirements(workspace).replace("linuxonly==1.1", "linuxonly==1.0")
    workspace.write("requirements.txt", text)  # what the file has stays
    assert arkdev("freeze", "--platform", "linux/arm64", "--check").exit_code == 0


def _web_wheel(folder: Path) -> str:
    name = "web-2.0-py3-none-any.whl"
    metadata = (
        "Metadata-Version: 2.1\nName: web\nVersion: 2.0\n"
        "Requires-Dist: linuxonly; platform_machine == 'aarch64'\n"
    )
    with zipfile.ZipFile(folder / name, "w") as wheel:
        wheel.writestr("web-2.0.dist-info/METADATA", metadata)
        wheel.writestr("web-2.0.dist-info/WHEEL", "Wheel-Version: 1.0\n")
        wheel.writestr("web-2.0.dist-info/RECORD", "")
    return name


def test_a_file_with_hashes_keeps_having_them(
    workspace: Workspace,
    environment: Environment,
    arkdev: Command,
    index: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("UV_NO_CACHE", "1")
    environment.install("linuxonly", "1.1")
    workspace.write("plugins/tools.py", "import linuxonly\n")
    stale = f"--index-url {index}\nlinuxonly==1.0 --hash=sha256:{'0' * 64}\n"
    workspace.write("requirements.txt", stale)
    told = arkdev("freeze", "--platform", "linux/arm64")
    assert told.exit_code == 0, told.err
    wheel = workspace.root.parent / "index/files/linuxonly-1.1-py3-none-manylinux_2_17_aarch64.whl"
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    expected = f"linuxonly==1.1 \\\n    --hash=sha256:{digest}\n"
    assert requirements(workspace).partition("\n")[2] == expected
    monkeypatch.setenv("UV_OFFLINE", "1")  # the file has all that is needed
    assert arkdev("freeze", "--platform", "linux/arm64", "--check").exit_code == 0


def test_without_uv_the_extra_is_named(
    workspace: Workspace, arkdev: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "uv", None)
    told = arkdev("freeze")
    assert told.exit_code == 2
    assert 'pip install "arkdev[faas]"' in told.err


def test_a_python_that_does_not_run_is_named(workspace: Workspace, arkdev: Command) -> None:
    told = arkdev("freeze", "--python", "none/bin/python")
    assert told.exit_code == 2
    assert "none/bin/python" in told.err


@pytest.mark.parametrize("template", TEMPLATES)
def test_a_template_is_frozen_and_keeps_its_comments(
    tmp_path: Path, arkdev: Command, monkeypatch: pytest.MonkeyPatch, template: str
) -> None:
    root = tmp_path / template
    create_workspace(root, template=template)
    monkeypatch.chdir(root)
    path = root / "requirements.txt"
    before = path.read_text(encoding="utf-8").splitlines()
    told = arkdev("freeze")
    assert told.exit_code == 0, told.err
    after = path.read_text(encoding="utf-8").splitlines()
    assert after[: len(before)] == before  # every version is the environment's
    found = read_requirements(path)
    assert (found.problems, found.warnings) == ((), ())
    assert arkdev("freeze", "--check").exit_code == 0


def test_a_folder_that_is_no_workspace_is_refused_before_it_is_searched(
    tmp_path: Path, arkdev: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "home"
    folder.mkdir()
    (folder / "notes.py").write_text("import web\n", encoding="utf-8")
    monkeypatch.setenv("HOME", str(folder))
    monkeypatch.chdir(folder)
    told = arkdev("freeze")
    assert told.exit_code == 2
    assert "there are no plugins here" in told.err
