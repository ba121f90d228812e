"""What a function can install of a requirements file (field cases 7.1, 7.2, 7.3; SURFACE FT-01)."""

from __future__ import annotations

import codecs
import platform
import sysconfig
from collections.abc import Sequence
from pathlib import Path

import pytest

from arkdev.errors import RequirementsError, UsageError
from arkdev.faas_emulator.requirement_files.platforms import target
from arkdev.faas_emulator.requirement_files.requirements import (
    Requirements,
    judge_requirements,
    read_requirements,
)

COMMIT = "0123456789abcdef0123456789abcdef01234567"


def write(folder: Path, text: str, *, name: str = "requirements.txt") -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def judged(folder: Path, text: str, **where: str) -> Requirements:
    goal = target(where.get("platform", "linux/amd64"), python=where.get("python", "3.11"))
    return judge_requirements(write(folder, text), target=goal)


def numbers(findings: Sequence[object]) -> list[int]:
    """Line numbers, in order, each once."""
    return sorted({int(str(finding).split(": ")[0].rpartition(":")[2]) for finding in findings})


def test_every_line_that_cannot_be_installed_is_told_at_once_with_advice(tmp_path: Path) -> None:
    """Field case 7.1."""
    text = (
        "-e file:///src/proj\n-e ./lib\npkg @ file:///tmp/x.whl\n"
        "foo @ git+ssh://git@github.com/a/foo.git\nbar\n"
        f"ok @ git+https://github.com/a/ok@{COMMIT}\n./lib\nlib/sub\n/abs/lib\nC:\\lib\n"
        "git@github.com:a/b.git\nfoo-1.0-py3-none-any.whl\nhg+https://h/a\n"
    )
    path = write(tmp_path, text)
    with pytest.raises(RequirementsError) as told:
        read_requirements(path)
    assert told.value.exit_code == 2
    assert numbers(told.value.problems) == [1, 2, 3, 4, 7, 8, 9, 10, 11, 12, 13]
    said = told.value.message
    assert "--exclude-editable" in said and "copy its package into the workspace" in said
    found = judged(tmp_path, text)
    assert numbers(found.warnings) == [5]
    assert "arkdev freeze" in found.warnings[0].advice


@pytest.mark.parametrize(
    ("line", "is_pinned"),
    [
        ("bar==1.0", True),
        ("bar===1.0", True),
        ("bar", False),
        ("bar>=1", False),
        ("bar==1.*", False),
        (f"bar @ git+https://github.com/a/bar@{COMMIT}", True),
        (f"git+https://github.com:8443/a/bar.git@{COMMIT}#egg=bar", True),
        ("bar @ git+https://github.com/a/bar@main", False),
        ("bar @ git+https://github.com/a/bar@feature/x", False),
        ("git+https://github.com/a/bar.git", False),
        ("bar @ https://example.com/bar-1.0.tar.gz", True),
    ],
)
def test_what_may_give_another_version_tomorrow_is_warned_of(
    tmp_path: Path, line: str, is_pinned: bool
) -> None:
    found = judged(tmp_path, line)
    assert found.problems == ()
    assert [bool(found.warnings), found.lines[0].is_pinned] == [not is_pinned, is_pinned]
    assert found.needs_git == ("git+" in line)


def test_a_constraint_pins_and_stays_apart(tmp_path: Path) -> None:
    write(tmp_path, "bar==3\nark-sdk==1\n", name="deps/pins.txt")
    found = judged(tmp_path, "-c deps/pins.txt\nbar\n")
    assert (found.problems, found.warnings) == ((), ())
    assert found.install_files == {
        "requirements.txt": "-c constraints.txt\nbar\n",
        "constraints.txt": "bar==3\n",
    }


@pytest.mark.parametrize(
    "mark", [b"", codecs.BOM_UTF8, codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE], ids=repr
)
def test_utf_8_and_utf_16_files_are_read_alike(tmp_path: Path, mark: bytes) -> None:
    """Field case 7.2."""
    codec = {codecs.BOM_UTF16_LE: "utf-16-le", codecs.BOM_UTF16_BE: "utf-16-be"}.get(mark, "utf-8")
    path = tmp_path / "requirements.txt"
    path.write_bytes(
        mark + "# 依赖\r\nhttpx==0.28.1 \\\r\n  ; python_version > '3'\r\n".encode(codec)
    )
    found = read_requirements(path)
    assert [line.name for line in found.lines] == ["httpx"]
    assert [warning.message for warning in found.warnings] == ["UTF-16 text"] * ("16" in codec)
    assert "\0" not in found.install_text and "\r" not in found.install_text


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        ("a==1\n".encode("utf-16-le"), "UTF-16 without a byte order mark"),
        ("a==1\n".encode("utf-32"), "UTF-32"),
        (codecs.BOM_UTF16_LE + b"a", "broken UTF-16"),
        ("a==1  # 依赖\n".encode("gb18030"), "perhaps GBK"),
        ("# coding: gbk\n# 依赖\n".encode("gb18030"), "gbk, as it says"),
    ],
)
def test_another_encoding_is_refused_by_name(tmp_path: Path, data: bytes, kind: str) -> None:
    path = tmp_path / "requirements.txt"
    path.write_bytes(data)
    with pytest.raises(RequirementsError, match=kind) as told:
        read_requirements(path)
    assert "save the file as UTF-8" in told.value.hint
    assert "x00" not in str(told.value) and "\0" not in str(told.value)


@pytest.fixture
def arm64_host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "arm64")
    monkeypatch.setattr(sysconfig, "get_platform", lambda: "macosx-14.0-arm64")


@pytest.mark.usefixtures("arm64_host")
@pytest.mark.parametrize(
    ("wheel", "platforms"),
    [
        ("cp311-cp311-manylinux_2_17_x86_64.manylinux2014_x86_64", ["linux/amd64"]),
        ("cp311-cp311-manylinux_2_28_aarch64", ["linux/arm64"]),
        ("cp38-abi3-manylinux_2_5_x86_64", ["linux/amd64"]),
        ("py3-none-any", ["linux/amd64", "linux/arm64"]),
        ("cp311-cp311-macosx_11_0_arm64", []),
        ("cp311-cp311-win_amd64", []),
        ("cp311-cp311-musllinux_1_2_x86_64", []),
        ("cp312-cp312-manylinux_2_17_x86_64", []),
    ],
)
def test_a_wheel_is_judged_by_the_declared_platform_whatever_the_host(
    tmp_path: Path, wheel: str, platforms: list[str]
) -> None:
    """Field case 7.3."""
    line = f"numpy @ https://example.com/numpy-2.0.0-{wheel}.whl"
    for name in ("linux/amd64", "linux/arm64"):
        problems = judged(tmp_path, line, platform=name).problems
        assert bool(problems) == (name not in platforms)
        assert all(f"the function runs on {name}" in problem.message for problem in problems)


def test_a_wheel_is_judged_by_the_functions_python(tmp_path: Path) -> None:
    line = "https://example.com/numpy-2.0.0-cp312-cp312-manylinux_2_17_x86_64.whl"
    assert judged(tmp_path, line, python="3.12").problems == ()
    assert "with Python 3.11" in judged(tmp_path, line).problems[0].message


def test_a_platform_that_functions_do_not_have_is_refused() -> None:
    with pytest.raises(UsageError, match="windows/amd64"):
        target("windows/amd64")
    with pytest.raises(UsageError, match=r"'3\.9'"):
        target(python="3.9")


@pytest.mark.parametrize(
    "line",
    [
        "ark_sdk",
        "Ark.SDK==0.2.11",
        "ark-sdk[x] @ https://example.com/ark_sdk-latest.tar.gz",
        "https://example.com/ark-sdk/ark_sdk-0.2.11.tar.gz",
        "./ark_sdk-0.2.11.tar.gz",
        "-e ../ark_sdk",
    ],
)
def test_a_line_for_ark_sdk_is_replaced_and_never_comes_from_a_registry(
    tmp_path: Path, line: str
) -> None:
    found = judged(tmp_path, f"a==1\n{line}\n")
    assert (found.problems, found.install_text) == ((), "a==1\n")
    assert numbers(found.notes) == [2]
    assert "another product" in found.notes[0].message


def test_arkdev_is_replaced_too_and_names_that_only_look_alike_are_not(tmp_path: Path) -> None:
    found = judged(tmp_path, "arkdev[ark]==0.1.0\n-e .\nark-sdk-test==1\narkdevs==1\n")
    assert numbers(found.notes) == [1]
    assert numbers(found.problems) == [2]
    assert found.install_text == "ark-sdk-test==1\narkdevs==1\n"
    assert "extra ark is not installed" in found.warnings[0].message


SECRET = "s3cr3t-t0ken"


@pytest.mark.parametrize(
    "line",
    [
        f"a @ https://user:{SECRET}@example.com/a.tar.gz",
        f"git+https://{SECRET}@github.com/a/b@{COMMIT}",
        f"https://example.com/a.tar.gz?token={SECRET}",
        f"https://example.com/a.tar.gz?X-Amz-Signature={SECRET}",
        f"https://u:p@{SECRET}@example.com/a.tar.gz",
        f"https://u:p/{SECRET}@example.com/a.tar.gz",
        f"--index-url https://u:{SECRET}@example.com/simple",
        f"--extra-index-url=https://u:{SECRET}@example.com/simple",
        f"-e git+https://{SECRET}@github.com/a/b",
        f"-r https://u:{SECRET}@example.com/more.txt",
        f"not a requirement https://u:{SECRET}@example.com",
        f"--find-links file://u:{SECRET}@h/x",
    ],
)
def test_credentials_are_refused_and_never_shown(tmp_path: Path, line: str) -> None:
    found = judged(tmp_path, f"{line}\n{line}\n")
    assert numbers(found.problems) == [1, 2]
    assert SECRET not in " ".join(map(str, [*found.problems, *found.warnings, *found.notes]))


def test_includes_are_read_inside_the_workspace_alone(tmp_path: Path) -> None:
    write(tmp_path, "outside==1", name="outside.txt")
    root = tmp_path / "ws"
    write(root, "b==1\n-r ../requirements.txt\n", name="deps/base.txt")
    text = "a==1\n-r deps/base.txt\n--requirement ../outside.txt\n-rnone.txt\n-r https://h/x.txt\n"
    found = judge_requirements(write(root, text), target=target())
    assert found.install_text == "a==1\nb==1\n"
    said = [str(problem).partition("ws/")[2] for problem in found.problems]
    assert [line.partition(" ")[0] for line in said] == [
        "deps/base.txt:2:",
        "requirements.txt:3:",
        "requirements.txt:4:",
        "requirements.txt:5:",
    ]


def test_options_hashes_markers_and_extras_are_kept(tmp_path: Path) -> None:
    text = (
        "--index-url https://h/simple --extra-index-url=https://h/more\n--pre\n"
        "a[x,y]==1 ; python_version < '3.12'  # why\n"
        "b==1 \\\n    --hash=sha256:aa \\\n    --hash=sha256:bb\n"
    )
    found = judged(tmp_path, text)
    assert (found.problems, found.warnings, found.uses_hashes) == ((), (), True)
    assert found.install_text.splitlines() == [
        "--index-url https://h/simple",
        "--extra-index-url https://h/more",
        "--pre",
        "a[x,y]==1 ; python_version < '3.12'",
        "b==1     --hash=sha256:aa     --hash=sha256:bb",
    ]


def test_a_line_for_another_platform_is_left_to_its_marker(tmp_path: Path) -> None:
    found = judged(tmp_path, "a @ file:///c/a.whl ; sys_platform == 'win32'\nb; os_name == 'nt'\n")
    assert (found.problems, found.warnings) == ((), ())


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("a==1\nA==2\n", 2),
        ("foo bar\n", 1),
        ("--no-such-option x\n", 1),
        ("https://[::1/x.tar.gz\n", 1),
        ("ftp://h/x.tar.gz\n", 1),
        ("https://h/${TOKEN}/x.tar.gz\n", 1),
        ("--index-url ./simple\n", 1),
        ("--index-url 'x\n", 1),
    ],
)
def test_what_no_installer_takes_is_refused(tmp_path: Path, text: str, line: int) -> None:
    found = judged(tmp_path, text)
    assert numbers(found.problems) == [line]
    assert all(problem.advice for problem in found.problems)


def test_a_workspace_without_requirements_installs_nothing(tmp_path: Path) -> None:
    assert read_requirements(tmp_path / "requirements.txt") == Requirements()
