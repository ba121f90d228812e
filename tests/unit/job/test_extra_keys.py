"""Keys of `extra` that graders read, found without running them."""

from pathlib import Path
from textwrap import dedent

import pytest

from arkdev import single_grader
from arkdev.job.extra_keys import extra_reads


def reads_of(root: Path, body: str, *, name: str = "g", more: dict[str, str] | None = None):
    folder = root / "plugins"
    folder.mkdir(exist_ok=True)
    for file, text in {"grader.py": body, **(more or {})}.items():
        (folder / file).write_text(dedent(text), encoding="utf-8")
    found = extra_reads(f"plugins.grader:{name}", root=root)
    return {read.key: read.is_required for read in found.reads}, found


@pytest.mark.parametrize(
    ("expression", "is_required"),
    [
        ('sample.extra["k"]', True),
        ('sample["extra"]["k"]', True),
        ('sample.get("extra")["k"]', True),
        ('sample.extra.get("k")', False),
        ('(sample.extra or {}).get("k", 0)', False),
        ('dict(sample.extra).pop("k")', False),
        ('sample.model_dump()["extra"]["k"]', True),
        ('"k" in sample.extra', False),
        ('(sample.extra if sample.extra else {})["k"]', True),
        ('copy.deepcopy(sample.extra)["k"]', True),
        ('cast(dict, sample.extra)["k"]', True),
        ('[a for a in [1] if sample.extra["k"]]', True),
        ("sample.extra[KEY]", True),
        ('(lambda: sample.extra["k"])()', True),
        ('(e := sample.extra) and e["k"]', True),
    ],
)
def test_every_way_to_read_a_key_is_seen(tmp_path, expression, is_required):
    keys, found = reads_of(
        tmp_path,
        f"""
        KEY = "k"

        @single_grader
        def g(context, sample, trajectory):
            return {expression}
        """,
    )
    assert keys == {"k": is_required}
    assert found.reads[0].where.endswith("plugins/grader.py:6")
    assert found.unknown == []


def test_a_name_given_to_extra_is_followed_and_a_guarded_key_is_not_required(tmp_path):
    keys, _ = reads_of(
        tmp_path,
        """
        @group_grader(runtime=None)
        async def g(context, the_sample, trajectories):
            row: dict = the_sample.extra or {}
            again = row
            match row:
                case {"kind": "a", "level": int()}:
                    pass
            if "hint" in again:
                print(again["hint"])
            return [float(again["answer"])]
        """,
    )
    assert keys == {"kind": False, "level": False, "hint": False, "answer": True}


def test_a_trajectorys_extra_is_another_one(tmp_path):
    keys, _ = reads_of(
        tmp_path,
        """
        def g(context, sample, trajectory):
            extra = trajectory.extra or {}
            trajectory.extra["reward"], extra.get("reward")
            sample.extra["written"] = 1
            return {"answer": 1}["answer"]
        """,
    )
    assert keys == {}


def test_functions_of_the_workspace_are_followed_whatever_they_are_called(tmp_path):
    keys, found = reads_of(
        tmp_path,
        """
        from plugins.answers import expected as wanted
        from . import answers
        from .answers import twice
        import plugins.answers as others

        def local(x, *, of):
            return of.extra["local"]

        def g(context, sample, trajectory):
            local(1, of=sample)
            wanted(sample.extra)
            twice(sample)
            answers.third(sample, 1)
            others.fourth(sample)
            len(sample), sample.extra.keys(), wanted(trajectory)
        """,
        more={
            "answers.py": """
                def expected(row):
                    return row["imported"]

                def twice(s):
                    return twice(s) or s.extra["recursive"]

                def third(s, n):
                    return s["extra"]["third"]

                def fourth(s):
                    return s.extra.get("fourth")
            """
        },
    )
    assert keys == {
        "local": True,
        "imported": True,
        "recursive": True,
        "third": True,
        "fourth": False,
    }
    places = {read.key: read.where.rpartition("/")[2] for read in found.reads}
    assert (places["imported"], places["local"]) == ("answers.py:3", "grader.py:8")


def test_a_grader_may_be_imported_or_have_another_name(tmp_path):
    keys, _ = reads_of(
        tmp_path,
        "from .real import inner\ng = inner\n",
        more={"real.py": 'def inner(context, sample, t):\n    return sample.extra["k"]\n'},
    )
    assert keys == {"k": True}


def test_what_cannot_be_found_out_is_said(tmp_path):
    keys, found = reads_of(
        tmp_path,
        """
        def g(context, sample, trajectory):
            for name in ("a", "b"):
                sample.extra[name]
        """,
    )
    assert keys == {}
    [unknown] = found.unknown
    assert unknown.endswith("plugins/grader.py:4: a key of extra that is computed")
    nothing = extra_reads("plugins.none:g", root=tmp_path)
    assert nothing.unknown == ["plugins.none:g: its source was not found"]
    assert extra_reads("plugins.grader:none", root=tmp_path).unknown != []
    (tmp_path / "plugins" / "grader.py").write_text("def g(:", encoding="utf-8")
    assert extra_reads("plugins.grader:g", root=tmp_path).unknown != []


@single_grader
def of_this_file(context, sample, trajectory):
    return float(sample.extra["mine"])


def test_a_function_of_a_job_py_is_found_by_its_code(tmp_path):
    found = extra_reads(of_this_file, root=tmp_path)
    assert [read.key for read in found.reads] == ["mine"]
    assert "test_extra_keys.py" in found.reads[0].where
    assert extra_reads(len, root=tmp_path).unknown == ["len: its source was not found"]
