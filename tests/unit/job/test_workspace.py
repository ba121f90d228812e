"""Finding the workspace and reading arkworkspace.toml."""

from __future__ import annotations

from pathlib import Path

import pytest

from arkdev.errors import WorkspaceError
from arkdev.job.tools import ToolLimits
from arkdev.job.workspace import find_workspace


@pytest.mark.parametrize(
    "marker", ["arkworkspace.toml", "job.yaml", "job.yml", "job.py", "plugins/"]
)
def test_the_nearest_marked_folder_upwards_is_the_root(tmp_path: Path, marker: str) -> None:
    root = tmp_path / "工作区"
    deep = root / "data" / "deep"
    deep.mkdir(parents=True)
    (root / marker).mkdir() if marker.endswith("/") else (root / marker).touch()
    (tmp_path / "job.py").touch()
    found = find_workspace(deep)
    assert (found.root, found.is_bare) == (root, False)


def test_without_a_marker_the_start_is_a_bare_workspace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "plugins").mkdir()
    home = tmp_path / "home"
    start = home / "project"
    start.mkdir(parents=True)
    monkeypatch.setenv("HOME", str(home))
    found = find_workspace(start)
    assert (found.root, found.is_bare) == (start, True)


def test_a_missing_start_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(WorkspaceError, match="no such folder"):
        find_workspace(tmp_path / "nope")


def test_the_workspace_file_is_read(tmp_path: Path) -> None:
    (tmp_path / "arkworkspace.toml").write_text(
        '\ufeff[plugin.package]\ninclude=["*.py"]\n'
        '[endpoints.lab]\nbase_url = "http://127.0.0.1:1"\nmodel = "模型"\napi_key_env = "K"\n',
        encoding="utf-8",
    )
    found = find_workspace(tmp_path)
    assert found.package_include == ("*.py",)
    assert found.endpoints == {
        "lab": {"base_url": "http://127.0.0.1:1", "model": "模型", "api_key_env": "K"}
    }


def test_limits_of_tools_are_read_by_host(tmp_path: Path) -> None:
    (tmp_path / "arkworkspace.toml").write_text(
        '[tools."API.example.com"]\nrequests_per_minute = 60\n'
        '[tools."127.0.0.1:8000"]\nmax_in_flight = 2\n',
        encoding="utf-8",
    )
    assert find_workspace(tmp_path).tools == {
        "api.example.com": ToolLimits(requests_per_minute=60),
        "127.0.0.1:8000": ToolLimits(max_in_flight=2),
    }


@pytest.mark.parametrize(
    ("text", "place", "message"),
    [
        ("\n[endpoint.lab]\n", ":2: ", "unknown table 'endpoint'; did you mean 'endpoints'?"),
        ("[plugin.pakage]\n", ":1: ", "key in [plugin] 'pakage'; did you mean 'package'?"),
        ("[plugin.package]\n\nincldue = []\n", ":3: ", "did you mean 'include'?"),
        ("[plugin.package]\ninclude = 3\n", ":2: ", "a list of patterns"),
        ("a = 1\n\n[endpoints]\nlab = 'x'\n", ":4: ", "lab: a table is expected"),
        ("[plugin\n", ":1:8: ", "not valid TOML"),
        ("[tools.h]\nmax_in_fligth = 1\n", ":2: ", "did you mean 'max_in_flight'?"),
        ("[tools.'h:1']\nmax_in_flight = 0\n", ":2: ", 'tools."h:1".max_in_flight: a whole'),
        ("[tools.h]\n", ":1: ", "sets no limit"),
        ("[hyperparameters]\nknown = 'lrs'\n", ":2: ", "a list of names is expected"),
        ("[hyperparameters]\nknwon = []\n", ":2: ", "did you mean 'known'?"),
        ("[tools]\nh = 3\n", ":2: ", "h: a table is expected"),
        ("[tools.'http://h']\nmax_in_flight = 1\n", ":1: ", "without a scheme or a path"),
        (
            "[tools.a]\nmax_in_flight = 1\n[tools.b]\nmax_in_flight = true\n",
            ":4: ",
            'tools."b".max_in_flight: a whole number',
        ),
    ],
)
def test_a_mistake_in_the_workspace_file_has_its_line(
    tmp_path: Path, text: str, place: str, message: str
) -> None:
    (tmp_path / "arkworkspace.toml").write_text(text, encoding="utf-8")
    with pytest.raises(WorkspaceError) as caught:
        find_workspace(tmp_path)
    assert f"arkworkspace.toml{place}" in str(caught.value)
    assert message in str(caught.value)


def test_a_job_named_from_outside_brings_its_own_workspace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    inside, outside, other = (tmp_path / name for name in ("inside", "outside", "other"))
    (inside / "jobs").mkdir(parents=True)
    (inside / "arkworkspace.toml").touch()
    outside.mkdir()
    (other / "plugins").mkdir(parents=True)
    job = inside / "jobs" / "grpo.yaml"
    job.touch()
    assert find_workspace(outside, job=job).root == inside
    monkeypatch.chdir(outside)
    assert find_workspace(outside, job=Path("../inside/jobs/grpo.yaml")).root == inside
    assert find_workspace(other, job=job).root == other
    assert find_workspace(outside, job=tmp_path / "gone" / "job.yaml").is_bare


def test_a_name_that_is_no_path_is_told(tmp_path: Path) -> None:
    (tmp_path / "arkworkspace.toml").write_text('[datasets]\nds = "a\\u0000"\n', encoding="utf-8")
    with pytest.raises(WorkspaceError, match=r"datasets\.ds: a path has no NUL in it"):
        find_workspace(tmp_path)
