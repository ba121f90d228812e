"""requirements.txt as freeze writes it into the author's file."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

from arkdev.faas_emulator.freezing.freeze import Pin
from arkdev.faas_emulator.freezing.frozen_text import HEADER, SECTION, merged, read_author
from arkdev.faas_emulator.requirement_files.platforms import target
from arkdev.faas_emulator.requirement_files.requirement_lines import logical_lines
from arkdev.faas_emulator.requirement_files.requirements import judge_requirements


def pins(*imported: str, required: tuple[str, ...] = ()) -> dict[str, Pin]:
    def pin(text: str, where: tuple[str, ...]) -> Pin:
        name, _, version = text.partition("==")
        return Pin(name.partition("[")[0], text, version, where, ())

    found = [pin(text, ("plugins/a.py:1",)) for text in imported]
    return {pin.name: pin for pin in [*found, *(pin(text, ()) for text in required)]}


def frozen(text: str, wanted: dict[str, Pin]) -> tuple[str, list[str]]:
    """(the new text, what is said of the lines that are left out)"""
    new = merged(logical_lines(dedent(text)), wanted, shown_name="requirements.txt")
    again = merged(logical_lines(new.text), wanted, shown_name="requirements.txt")
    assert (again.text, again.left_out) == (new.text, ())
    return new.text, [str(line) for line in new.left_out]


def test_a_new_file_has_a_header_and_what_is_required_apart() -> None:
    text, _ = frozen("", pins("a==1", "b==2", required=("c==3",)))
    assert text == f"{HEADER}\na==1\nb==2\n\n{SECTION}\nc==3\n"


def test_comments_order_spelling_and_options_stay_the_authors() -> None:
    text, left_out = frozen(
        """\
        # mine
        --index-url https://h/simple

        Big.Name>=1  # why
        old==1
        a[x]==1 ; python_version > "3"
        # optional:
        # c==3
        """,
        pins("big-name==2", "a==1", "new==4", required=("c==3",)),
    )
    assert text == dedent(f"""\
        # mine
        --index-url https://h/simple

        Big.Name==2  # why
        a[x]==1 ; python_version > "3"
        new==4
        # optional:
        # c==3

        {SECTION}
        c==3
        """)
    assert left_out == ["requirements.txt:5: `old==1`: nothing imports it"]


def test_lines_that_no_function_can_have_are_left_out_and_told_without_credentials() -> None:
    text, left_out = frozen(
        "-e ./lib\n-r base.txt\nark_sdk\nx @ https://u:pw@h/x.whl\na==1\na==2\n", pins("a==3")
    )
    assert text == "a==3\n"
    assert [line.partition(": `")[0] for line in left_out] == [
        f"requirements.txt:{number}" for number in (1, 2, 3, 4, 6)
    ]
    assert "pw" not in "".join(left_out)


def test_what_an_author_adds_below_our_section_is_the_authors() -> None:
    before = f"a==1\n\n{SECTION}\nc==3\n\ngone==1\nd  # arkdev: keep\nnew\n# mine\n"
    text, left_out = frozen(before, pins("a==1", "new==5", required=("c==3",)))
    assert text == f"a==1\nd  # arkdev: keep\nnew==5\n# mine\n\n{SECTION}\nc==3\n"
    assert left_out == ["requirements.txt:6: `gone==1`: nothing imports it"]


def test_hashes_follow_their_version() -> None:
    wanted = pins("a==1")
    wanted["a"] = Pin("a", "a==2", "2", ("plugins/a.py:1",), (), ("--hash=sha256:aa",))
    text, _ = frozen("a==1 --hash=sha256:old  # why\n", wanted)
    assert text == "a==2 \\\n    --hash=sha256:aa  # why\n"


def test_what_the_author_says_beside_versions_is_read(tmp_path: Path) -> None:
    path = tmp_path / "requirements.txt"
    path.write_text(
        "a[x]==1\nb  # arkdev: keep\n# c==3\n# just words\n# a==1\n--pre\n", encoding="utf-8"
    )
    lines = logical_lines(path.read_text(encoding="utf-8"))
    judged = judge_requirements(path, target=target())
    author = read_author(lines, judged, shown_name="requirements.txt")
    assert author.extras == {"a": frozenset({"x"})}
    assert author.commented == {"c"}
    assert [line.name for line in author.kept] == ["b"]
    assert (author.pinned, author.options) == (("a==1",), ("--pre",))
