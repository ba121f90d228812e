"""Attacks on graders as JUnit XML: a suite for each grader, a case for each attack."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from xml.etree import ElementTree

from arkdev.cli.terminal import number
from arkdev.errors import OutputError
from arkdev.harness.attack_verdicts import AttackedGraderReport, AttackRow, AttackVerdict
from arkdev.harness.grader_attacks import text_of
from arkdev.job.paths import readable

_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")

_FAILURES = (AttackVerdict.HACKABLE, AttackVerdict.NOT_AT_TOP)


def write_junit(path: Path, graders: Sequence[AttackedGraderReport]) -> None:
    """Write the file. Raises `OutputError` when the disk refuses."""
    root = ElementTree.Element("testsuites", name="arkdev test grader --attack")
    for grader in graders:
        root.append(_suite(grader))
    ElementTree.indent(root)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        ElementTree.ElementTree(root).write(path, encoding="utf-8", xml_declaration=True)
    except OSError as error:
        raise OutputError(
            f"the JUnit file cannot be written: {error.strerror}", where=readable(str(path))
        ) from error


def _suite(grader: AttackedGraderReport) -> ElementTree.Element:
    verdicts = [row.verdict for row in grader.rows]
    suite = ElementTree.Element(
        "testsuite",
        name=_xml(grader.name),
        tests=str(len(grader.rows)),
        failures=str(sum(verdict in _FAILURES for verdict in verdicts)),
        errors=str(verdicts.count(AttackVerdict.FAILED)),
        skipped=str(verdicts.count(AttackVerdict.SKIPPED)),
    )
    for row in grader.rows:
        suite.append(_case(row, grader))
    return suite


def _case(row: AttackRow, grader: AttackedGraderReport) -> ElementTree.Element:
    case = ElementTree.Element("testcase", classname=_xml(grader.reference), name=_xml(row.name))
    if row.verdict is AttackVerdict.SKIPPED:
        ElementTree.SubElement(case, "skipped", message="no sample has what the attack needs")
    elif row.verdict in _FAILURES:
        failure = ElementTree.SubElement(case, "failure", message=_xml(_message(row)))
        failure.text = _xml(_last_text(row))
    elif row.verdict is AttackVerdict.FAILED:
        said = (row.example.error if row.example else None) or "the grader failed"
        error = ElementTree.SubElement(case, "error", message=_xml(said))
        error.text = _xml(_last_text(row))
    elif row.verdict is AttackVerdict.SELDOM:
        ElementTree.SubElement(case, "system-out").text = _xml(_message(row))
    return case


def _message(row: AttackRow) -> str:
    counts = f"{row.num_through} of {row.num_samples} samples"
    example = row.example
    if example is None:
        return counts
    score = f"{number(example.reward)}, the floor is {number(example.floor)}"
    return f"{counts}; sample {example.sample_index}, {example.variant}: {score}"


def _last_text(row: AttackRow) -> str:
    return text_of(row.example.messages[-1]) if row.example and row.example.messages else ""


def _xml(text: str) -> str:
    """What XML cannot hold shows as ``\\x00``."""
    return _NOT_XML.sub(lambda match: f"\\x{ord(match.group()):02x}", readable(text))
