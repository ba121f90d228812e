"""Images of functions, built by a real engine; pip takes packages from the configured index."""

import asyncio
import json
import time
import uuid

import pytest

from arkdev.errors import BuildError
from arkdev.faas_emulator.engines.engine import ContainerSpec
from arkdev.faas_emulator.engines.run_once import run_once
from arkdev.faas_emulator.images.image import build_image
from arkdev.faas_emulator.images.image_plan import WORKSPACE_LABEL, workspace_id
from arkdev.faas_emulator.packages.package import plugin_package
from arkdev.faas_emulator.requirement_files.requirements import read_requirements
from arkdev.job.workspace import find_workspace

pytestmark = pytest.mark.docker
PLUGIN = "from idna import __version__\n"
LOOK = """
import importlib.util, json, os, pwd, subprocess, sys
import arkdev.faas_emulator.worker, arkdev.plugin, plugins.a
def fails(path):
    try:
        open(path, "w").close()
    except OSError as error:
        return error.strerror
found = [os.path.relpath(os.path.join(f, n), ".") for f, _, names in os.walk(".") for n in names]
modes = {path: oct(os.stat(path).st_mode)[-3:] for path in ("plugins", "plugins/a.py")}
print(json.dumps({
    "user": [os.getuid(), os.getgid(), pwd.getpwuid(os.getuid()).pw_name],
    "folder": os.getcwd(),
    "files": sorted(found),
    "modes": modes,
    "written": fails("plugins/x.py"),
    "idna": plugins.a.__version__,
    "compiled": os.path.exists(importlib.util.cache_from_source(arkdev.plugin.__file__)),
    "secret": subprocess.run(["grep", "-rlF", sys.argv[1], "/workspace", "/opt/arkdev"],
                             capture_output=True, text=True).stdout,
}))
"""


@pytest.fixture
def workspace(tmp_path):
    for path, text in {
        "plugins/a.py": PLUGIN,
        "plugins/403.html": "<p>no</p>",
        "requirements.txt": "idna==3.10\n",
        ".dockerignore": "**/.*\n",
        ".env": "KEY=sk-value-of-this-workspace\n",
        ".git/config": "[core]\n",
        ".venv/bin/python": "",
        "data/train.jsonl": "{}\n",
        "runs/1/run.json": "{}\n",
    }.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text, encoding="utf-8")
    return tmp_path


@pytest.fixture
def build(engine, workspace):
    """Build the workspace as it is."""
    _built_for.append(workspace_id(workspace))

    async def built(**given):
        given.setdefault("on_output", lambda line: None)
        return await build_image(
            plugin_package(find_workspace(workspace)),
            read_requirements(workspace / "requirements.txt"),
            engine=engine.images,
            platform=engine.images.platform(),
            **given,
        )

    return built


_built_for = []


@pytest.fixture(scope="module", autouse=True)
def images_are_removed():
    """At the end: a removed image takes along the layers that the next test would find."""
    yield
    if _built_for:
        import docker

        client = docker.from_env()
        for workspace in _built_for:
            for image in client.images.list(filters={"label": f"{WORKSPACE_LABEL}={workspace}"}):
                client.images.remove(image.id)
        client.close()


def edit(workspace):
    (workspace / "plugins/a.py").write_text(f"{PLUGIN}# {uuid.uuid4()}\n", encoding="utf-8")


async def test_an_image_holds_the_package_and_runs_as_nobody(engine, build):
    image = await build()
    spec = ContainerSpec(
        image=image.tag,
        name=f"arkdev-test-{uuid.uuid4().hex[:8]}",
        labels={},
        command=["python", "-c", LOOK, "sk-value-of-this-workspace"],
        memory_mb=96,
    )
    seen = json.loads(await run_once(engine, spec, limit_s=60))
    assert seen["files"] == ["plugins/403.html", "plugins/a.py", "requirements.txt"]
    assert seen["secret"] == ""
    assert seen["user"] == [65534, 65534, "nobody"]
    assert seen["folder"] == "/workspace"
    assert seen["modes"] == {"plugins": "755", "plugins/a.py": "644"}
    assert seen["written"] == "Read-only file system"
    assert (seen["idna"], seen["compiled"]) == ("3.10", True)


async def test_an_edit_of_code_builds_the_last_layer_alone(build, workspace):
    first = await build()
    assert (await build()).was_cached
    edit(workspace)
    lines = []
    second = await build(on_output=lines.append)
    assert second.tag != first.tag
    assert (second.was_cached, second.requirements_were_cached) == (False, True)
    steps = [line.split("]")[1] for line in lines if line.startswith("  [")]
    assert [step.endswith("(cached)") for step in steps] == [False, True, True, True, True, False]
    assert steps[-1].startswith(" plugins: 3 files")
    assert second.duration_s < 3  # about 0.3 s on a machine that does nothing else


async def test_an_edit_of_requirements_installs_them_anew(engine, build, workspace):
    await build()
    (workspace / "requirements.txt").write_text("idna==3.9\n", encoding="utf-8")
    edited = await build()
    spec = ContainerSpec(
        image=edited.id,
        name=f"arkdev-test-{uuid.uuid4().hex[:8]}",
        labels={},
        command=["python", "-c", "import plugins.a; print(plugins.a.__version__)"],
        memory_mb=96,
    )
    assert await run_once(engine, spec, limit_s=60) == b"3.9\n"


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("idna==3.10\nidna-of-nobody-at-all==1.0\n", "No matching distribution found for idna-of"),
        ("idna==3.10\npydantic==1.10.2\n", "The user requested pydantic<3 and >=2.8"),
    ],
)
async def test_requirements_that_cannot_be_installed_are_told_with_their_line(
    build, workspace, text, cause
):
    (workspace / "requirements.txt").write_text(text, encoding="utf-8")
    with pytest.raises(BuildError, match=cause) as caught:
        await build()
    assert caught.value.where.endswith("requirements.txt:2")
    assert caught.value.hint


async def test_a_base_that_cannot_be_fetched_is_told(build):
    with pytest.raises(BuildError, match="arkdev-no-such-base:1 cannot be fetched") as caught:
        await build(base="arkdev-no-such-base:1")
    assert "check its name" in caught.value.hint


async def test_older_images_of_the_workspace_are_removed(engine, build, workspace):
    for _ in range(5):
        edit(workspace)
        last = await build()
    label = f"{WORKSPACE_LABEL}={workspace_id(workspace)}"
    there = engine.images.images(label=label)
    assert len(there) == 3
    assert last.id in {image.id for image in there}


async def test_a_cancelled_build_ends_at_once_and_leaves_no_image(engine, build, workspace):
    (workspace / "requirements.txt").write_text("idna==3.8\n", encoding="utf-8")
    installing = asyncio.Event()

    def see(line):
        if "[3/6]" in line:
            installing.set()

    running = asyncio.create_task(build(on_output=see))
    waiting = asyncio.create_task(installing.wait())
    await asyncio.wait([running, waiting], timeout=60, return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
    started = time.monotonic()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert time.monotonic() - started < 60
    label = f"{WORKSPACE_LABEL}={workspace_id(workspace)}"
    assert engine.images.images(label=label) == []
