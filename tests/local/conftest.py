"""Training on this machine: without torch these tests are skipped, or fail where it is required."""

import atexit
import importlib.util
import os
import shutil
import tempfile
from pathlib import Path

import pytest

_HERE = Path(__file__).parent
# read when libraries are imported, so it cannot wait for a fixture; no user's files are touched
os.environ["HF_HOME"] = tempfile.mkdtemp(prefix="arkdev-tests-")
atexit.register(shutil.rmtree, os.environ["HF_HOME"], ignore_errors=True)


def pytest_collection_modifyitems(items):
    for item in items:
        if _HERE in Path(item.fspath).parents:
            item.add_marker(pytest.mark.local)


def pytest_ignore_collect(collection_path):
    """Leave out modules that cannot be imported without torch."""
    if importlib.util.find_spec("torch") is not None or collection_path == _HERE:
        return None
    if os.environ.get("ARKDEV_REQUIRE_ENGINES") == "1":
        return None
    return True if collection_path.name.startswith("test_") else None


@pytest.fixture(scope="session", autouse=True)
def one_thread():
    """The tests' models are tiny: a second thread only waits."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
