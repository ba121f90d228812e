"""The disk refuses: the command says which folder and why, and it is no fault of arkdev's."""

from __future__ import annotations

import resource
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.workspace import Workspace

NOT_WRITTEN = "the run folder cannot be written any more: "
BREAKS = {
    "import shutil; shutil.rmtree(OUT)": "the run folder was removed while the run wrote it",
    "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))": NOT_WRITTEN,
    "import os; HELD = [os.dup(0) for _ in range(limit() - count())]": NOT_WRITTEN,
}


@pytest.mark.parametrize(
    ("breaks", "expected"),
    BREAKS.items(),
    ids=["the folder is removed", "files have a limit", "no descriptor is left"],
)
def test_a_run_folder_that_cannot_be_written_any_more(
    workspace: Workspace, breaks: str, expected: str
) -> None:
    out = workspace.root / "out"
    workspace.write(
        "plugins/rollout.py",
        f"""
        import os, resource
        from arkdev import rollout

        OUT = {str(out)!r}

        def limit():
            return resource.getrlimit(resource.RLIMIT_NOFILE)[0]

        def count():
            return len(os.listdir("/dev/fd")) - 1

        @rollout
        def answer(context, proxy, sample):
            client = proxy.rollout_client()
            client.chat.completions.create(model="m", messages=sample.model_dump()["messages"])
            print("something")
            global HELD
            {breaks}
        """,
    )
    process = subprocess.run(
        [sys.executable, "-m", "arkdev", "test", "plugin", "--out", str(out)],
        cwd=workspace.root,
        capture_output=True,
        env=workspace.environment(),
        timeout=300,
        check=False,
        preexec_fn=few_descriptors,
    )
    said = process.stderr.decode()
    assert process.returncode == 1, said
    assert expected in said
    assert str(out) in said
    assert "fault" not in said
    assert "Traceback" not in said


def few_descriptors() -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="Linux has it")
@pytest.mark.parametrize("command", ["test plugin --json", "test plugin", "runs", "--help"])
def test_output_without_space(workspace: Workspace, command: str) -> None:
    assert shutil.which("sh")
    process = subprocess.run(
        ["sh", "-c", f"'{sys.executable}' -m arkdev {command} >/dev/full"],
        cwd=workspace.root,
        capture_output=True,
        env=workspace.environment(),
        timeout=300,
        check=False,
    )
    assert process.returncode == 1
    said = process.stderr.decode().splitlines()
    assert said[-1] == "error: the output cannot be written: No space left on device"
    assert "Exception ignored" not in process.stderr.decode()
