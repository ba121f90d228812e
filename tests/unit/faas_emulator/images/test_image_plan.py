"""The plan of an image: Dockerfile, context, tag. No engine is asked."""

import io
import json
import tarfile
from pathlib import Path

import pytest

from arkdev.errors import BuildError, UsageError
from arkdev.faas_emulator.images.image_plan import ImagePlan, plan_image, workspace_id
from arkdev.faas_emulator.packages.package import PluginPackage, plugin_package
from arkdev.faas_emulator.requirement_files.requirements import Requirements, read_requirements
from arkdev.job.workspace import find_workspace

BASE = ("python:3.11-slim", "sha256:0a")


@pytest.fixture
def package(tmp_path: Path) -> PluginPackage:
    (tmp_path / "plugins").mkdir()
    (tmp_path / "plugins/a.py").write_text("x = 1\n", encoding="utf-8")
    (tmp_path / ".env").write_text("KEY=sk-hidden\n", encoding="utf-8")
    return plugin_package(find_workspace(tmp_path))


def requirements(folder: Path, text: str = "idna==3.10\nhttpx==0.28.1\n") -> Requirements:
    (folder / "req.txt").write_text(text, encoding="utf-8")
    return read_requirements(folder / "req.txt")


def plan(package: PluginPackage, wanted: Requirements, **changes: object) -> ImagePlan:
    given = {"base": BASE, "platform": "linux/amd64", "engine_platform": "linux/amd64"}
    return plan_image(package, wanted, **{**given, "environ": {}, **changes})  # type: ignore[arg-type]


def context(made: ImagePlan, package: PluginPackage, wanted: Requirements) -> tuple[str, bytes]:
    target = io.BytesIO()
    tag = made.write_context(target, package=package, requirements=wanted)
    return tag, target.getvalue()


def test_what_changes_more_rarely_is_built_first(package: PluginPackage, tmp_path: Path) -> None:
    made = plan(package, requirements(tmp_path))
    lines = made.dockerfile.splitlines()
    assert lines[0] == "FROM python:3.11-slim"
    assert lines[-1] == "COPY package/ /workspace/"
    copies = [line.split()[1] for line in lines if line.startswith("COPY")]
    assert copies == ["requirements/", "site/", "package/"]
    assert lines.index("USER 65534:65534") < len(lines) - 1
    assert f"LABEL arkdev.workspace={workspace_id(package.root)}" in lines


def test_requirements_and_what_arkdev_needs_are_installed_in_one_go(
    package: PluginPackage, tmp_path: Path
) -> None:
    made = plan(package, requirements(tmp_path))
    [command] = [json.loads(line[4:]) for line in made.dockerfile.splitlines() if '"pip"' in line]
    assert "--no-cache-dir" in command
    folder = "/opt/arkdev/requirements"
    assert command[-4:] == ["-r", f"{folder}/requirements.txt", "-r", f"{folder}/arkdev.txt"]


def test_with_hashes_arkdev_is_installed_apart(package: PluginPackage, tmp_path: Path) -> None:
    made = plan(package, requirements(tmp_path, f"idna==3.10 --hash=sha256:{'0' * 64}\n"))
    assert made.dockerfile.count('"pip"') == 2


def test_the_context_holds_the_package_the_requirements_and_arkdevs_function_side(
    package: PluginPackage, tmp_path: Path
) -> None:
    wanted = requirements(tmp_path)
    _, data = context(plan(package, wanted), package, wanted)
    with tarfile.open(fileobj=io.BytesIO(data)) as opened:
        names = {entry.name for entry in opened if entry.isfile()}
        text = opened.extractfile("requirements/requirements.txt").read()  # type: ignore[union-attr]
    own = {name for name in names if name.startswith("site/")}
    assert names - own == {
        *("Dockerfile", "package/plugins/a.py"),
        *("requirements/requirements.txt", "requirements/arkdev.txt"),
    }
    assert "site/arkdev/plugin/proxy.py" in own
    assert not any("/cli/" in name for name in own)
    assert text == b"idna==3.10\nhttpx==0.28.1\n"
    assert b"sk-hidden" not in data


def test_the_tag_follows_from_the_content_alone(package: PluginPackage, tmp_path: Path) -> None:
    wanted = requirements(tmp_path)
    tag, _ = context(plan(package, wanted), package, wanted)
    assert tag.startswith("arkdev-function:")
    assert context(plan(package, wanted), package, wanted)[0] == tag
    others = [
        plan(package, wanted, base=(BASE[0], "sha256:0b")),
        plan(package, wanted, platform="linux/arm64"),
        plan(package, wanted, environ={"PIP_INDEX_URL": "https://packages.example/simple"}),
    ]
    tags = {context(other, package, wanted)[0] for other in others}
    other = requirements(tmp_path, "idna==3.9\n")
    tags.add(context(plan(package, other), package, other)[0])
    (package.root / "plugins/a.py").write_text("x = 2\n", encoding="utf-8")
    tags.add(context(plan(package, wanted), package, wanted)[0])
    assert len(tags - {tag}) == 5


def test_the_plan_names_the_platform_and_an_engine_of_another(
    package: PluginPackage, tmp_path: Path
) -> None:
    wanted = requirements(tmp_path)
    assert plan(package, wanted).notes == ("platform linux/amd64, the engine's own",)
    [note] = plan(package, wanted, engine_platform="linux/arm64").notes
    assert note.startswith("platform linux/amd64; the engine's own is linux/arm64")


def test_an_index_is_told_to_the_build_but_not_its_password(
    package: PluginPackage, tmp_path: Path
) -> None:
    wanted = requirements(tmp_path)
    made = plan(package, wanted, environ={"PIP_INDEX_URL": "https://packages.example/simple"})
    assert made.build_args == {"PIP_INDEX_URL": "https://packages.example/simple"}
    assert "ARG PIP_INDEX_URL" in made.dockerfile
    with pytest.raises(BuildError, match="PIP_EXTRA_INDEX_URL has a password") as caught:
        plan(
            package, wanted, environ={"PIP_EXTRA_INDEX_URL": "https://me:pw1234@packages.example/s"}
        )
    assert "pw1234" not in f"{caught.value} {caught.value.hint}"


@pytest.mark.parametrize("base", ["", "-x", "python:3.11\nRUN x", "a b"])
def test_a_base_that_is_none_is_refused(package: PluginPackage, tmp_path: Path, base: str) -> None:
    with pytest.raises(UsageError, match="names no base image"):
        plan(package, requirements(tmp_path), base=(base, "sha256:0a"))
