import io
from dataclasses import replace
from pathlib import Path

import pytest
from rich.cells import cell_len
from rich.console import Console

from arkdev.cli.report import headline, print_next, render_summary
from arkdev.cli.terminal import duration, share, symbols
from arkdev.harness.services import ServiceSummary
from arkdev.harness.stability import Instability, QuarterSummary
from arkdev.harness.statistics import RunStatistics
from arkdev.harness.summary import Summary
from arkdev.runs.records import (
    Attempt,
    GraderRecord,
    GroupRecord,
    TrajectoryRecord,
    TurnRecord,
    Verdict,
)

S, F = Verdict.SUCCESS, Verdict.FAILURE


def mixed_run() -> Summary:
    """Eight samples of four rollouts: some fail, some groups are equal, one is ungraded."""
    statistics = RunStatistics(4)
    for sample in range(8):
        rewards: list[float | None] = []
        for generation in range(4):
            is_failed = (sample, generation) == (3, 2)
            attempts = (Attempt(S, 0.9),)
            if is_failed:
                error = "KeyError: '城市' [bold]"
                attempts = (Attempt(F, 0.2, error=error, where="plugins/rollout.py:61"),) * 4
            tools = ("get_weather",)
            turns = (
                TurnRecord(0.0, 0.3, "tool_calls", 200, 30, tools, 0.02),
                TurnRecord(0.4, 0.5, "stop", 260, None if sample == 1 else 20),
            )
            statistics.add_trajectory(
                TrajectoryRecord(
                    f"{sample}.{generation}",
                    sample,
                    generation,
                    F if is_failed else S,
                    1.0 + generation,
                    attempts,
                    finish_reason="stop",
                    turns=turns,
                    warnings=("client_built_per_rollout",),
                )
            )
            rewards.append(None if is_failed else float((sample * generation) % 2))
        is_ungraded = sample == 6
        graded = (None,) * 4 if is_ungraded else tuple(rewards)
        weather = GraderRecord(
            "weather",
            1.0,
            F if is_ungraded else S,
            graded,
            {"length": 10.0 * sample},
            attempts=4 if is_ungraded else 1,
            duration_s=0.004,
            error="judge answered 503" if is_ungraded else None,
        )
        ids = tuple(f"{sample}.{generation}" for generation in range(4))
        verdict = F if is_ungraded or None in rewards else S
        statistics.add_group(GroupRecord(sample, verdict, ids, graded, (weather,)))
    return statistics.summary()


def shown(summary: Summary, *, width: int, encoding: str = "utf-8", color: bool = False) -> str:
    raw = io.BytesIO()
    file = io.TextIOWrapper(raw, encoding=encoding, errors="strict", newline="")
    console = Console(
        file=file, width=width, force_terminal=color, color_system="standard" if color else None
    )
    render_summary(summary, console, folder=Path("runs/20250301T101530Z-test-3fa9"))
    file.flush()
    return raw.getvalue().decode(encoding)


def test_first_line_says_the_outcome_in_words():
    first = shown(mixed_run(), width=160).splitlines()[0].strip()
    assert first == (
        "27 of 32 rollouts graded, mean reward 0.30 ± 0.11; 1 failed, 4 ungraded: a job would fail"
    )


@pytest.mark.parametrize("width", [60, 80, 100, 160, 250])
def test_no_line_is_wider_than_the_terminal(width):
    text = shown(mixed_run(), width=width)
    assert max(cell_len(line) for line in text.splitlines()) <= width


def test_attempts_that_were_repeated_are_called_attempts():
    words = shown(mixed_run(), width=100).split()
    assert words[words.index("repeated") :][:3] == ["repeated", "3", "attempts"]


def test_a_metric_s_name_stays_in_its_row():
    statistics = RunStatistics(1)
    grader = GraderRecord("g", 1.0, S, (1.0,), {"two\nlines": 1.0, "": 2.0}, 1, 0.1)
    statistics.add_group(GroupRecord(0, S, ("0.0",), (1.0,), (grader,)))
    text = shown(statistics.summary(), width=100)
    assert "g: two\\nlines" in text
    assert "g: ''" in text


@pytest.mark.parametrize("width", [80, 160])
def test_every_number_of_the_run_is_there(width):
    text = shown(mixed_run(), width=width)
    for part in (
        "weather ×1",
        "p5 0.000 p25 0.000 p50 0.000 p75 1.000 p95 1.000",
        "31 succeeded 97%  ·  1 failed 3%",
        "31 in 1  ·  1 in 4",
        "4 ungraded",
        "3 of 7 (43%): no signal (3 all 0)",
        "k=1",
        "model call",
        "get_weather",
        "KeyError: '城市' [bold]",
        "plugins/rollout.py:61",
        "judge answered 503",
        "proxy.rollout_client()",
        "arkdev show 20250301T101530Z-test-3fa9 3.2",
    ):
        assert part in text


def test_the_outcome_stands_first_and_again_at_the_end():
    lines = [line.strip() for line in shown(mixed_run(), width=160).splitlines()]
    assert lines.count(lines[0]) == 2
    assert lines.index(lines[0], 1) > len(lines) - 6


def test_at_50_columns_names_and_outcomes_are_there():
    statistics = RunStatistics(1)
    statistics.add_trajectory(TrajectoryRecord("0.0", 0, 0, S, 1.0, (Attempt(S, 1.0),)))
    name = "a_grader_whose_name_is_longer_than_any_column_should_be"
    grader = GraderRecord(name, 1.0, S, (1.0,), {"m": 1.0}, attempts=2)
    statistics.add_group(GroupRecord(0, S, ("0.0",), (1.0,), (grader,)))
    text = shown(statistics.summary(), width=50)
    assert max(cell_len(line) for line in text.splitlines()) <= 50
    assert "1 succeeded" in text[text.index("Graders") :]
    assert "attempts: 1 in 2" in text
    assert "a_grader_whos" in text[: text.index("Rollouts")]
    assert "1.000" in text


def shaky_run() -> Summary:
    """One service that got slower, one that fails, and a tool that got slower."""
    quarter = QuarterSummary(40, 0, 0.1, 0.2, 3)
    weather = ServiceSummary(
        *("weather.test:9000", 160, {"2xx": 155, "5xx": 3, "timeout": 2}, 5),
        *(0.1, 1.9, 4.0, 14, (quarter,) * 4),
        (
            Instability("latency", 4, 0.2, 2.1, "p95"),
            Instability("errors", 0, 0.031, 0.031),
        ),
    )
    search = ServiceSummary(
        *("search.test", 80, {"2xx": 80}, 0, 0.01, 0.02, 0.03, 14, (quarter,) * 4),
        (Instability("in_flight", 3, 4, 14), Instability("error_rate", 2, 0, 0.25)),
    )
    statistics = RunStatistics(1, services=lambda: (weather, search))
    for index in range(160):
        turns = (
            TurnRecord(0.0, 0.3, "tool_calls", 200, 30, ("query",), 0.1 if index < 80 else 0.9),
        )
        statistics.add_trajectory(
            TrajectoryRecord(f"{index}.0", index, 0, S, 1.0, (Attempt(S, 1.0),), turns=turns)
        )
    return statistics.summary()


def test_what_is_unstable_is_called_out_in_words():
    text = " ".join(shown(shaky_run(), width=120).split())
    for part in (
        "weather.test:9000: p95 200 ms in the first quarter, 2.10 s in the last quarter; "
        "14 in flight at the peak; 3.1% errors",
        "search.test: up to 4 in flight in the first quarter, 14 in the third quarter; "
        "0% errors in the first quarter, 25% in the second quarter",
        "tool query: p95 101 ms in the first quarter, 907 ms in the last quarter",
        "weather.test:9000 3 5xx · 2 timeout",
    ):
        assert part in text


@pytest.mark.parametrize("width", [60, 80, 100, 160])
def test_services_fit_the_terminal(width):
    text = shown(shaky_run(), width=width)
    assert max(cell_len(line) for line in text.splitlines()) <= width
    assert "weather.test" in text


def test_a_run_without_services_says_nothing_of_them():
    assert "Services" not in shown(mixed_run(), width=100)


def failed(index: int, error: str) -> TrajectoryRecord:
    return TrajectoryRecord(f"{index}.0", index, 0, F, 1.0, (Attempt(F, 0.1, error=error),))


def test_errors_that_differ_in_ids_and_data_are_one_row_with_its_hint():
    statistics = RunStatistics(1)
    for index in range(3):
        error = f"EndpointResponseError: the endpoint answered 429: busy with 'q{index}'. "
        error += f"Request id: 02f{index}ab-77\nhint: Lower --concurrency."
        statistics.add_trajectory(failed(index, error))
    text = shown(statistics.summary(), width=80)
    section = text[text.index("Failed attempts") :]
    assert section.count("busy with") == 1
    assert " 3 ×" in section
    assert "→ Lower --concurrency." in section


def test_a_validation_error_shows_field_and_value():
    statistics = RunStatistics(1)
    statistics.add_trajectory(
        failed(
            0,
            "ValidationError: 1 validation error for City\nname\n  Input should be a valid string "
            "[type=string_type, input_value=7, input_type=int]\n    For further information visit "
            "https://errors.pydantic.dev/2.14/v/string_type",
        )
    )
    text = " ".join(shown(statistics.summary(), width=120).split())
    assert "for City name Input should be a valid string" in text
    assert "input_value=7" in text
    assert "errors.pydantic.dev" not in text


def test_a_long_message_keeps_its_end():
    statistics = RunStatistics(1)
    statistics.add_trajectory(failed(0, "start " + "x" * 900 + " the useful end"))
    assert "the useful end" in " ".join(shown(statistics.summary(), width=80).split())


def test_lines_that_plugins_logged_are_pointed_at(tmp_path: Path):
    (tmp_path / "logs").mkdir()
    lines = '{"text":"a","num_left_out":0}\n{"text":"b"}\n{"num_left_out":1234}\n'
    (tmp_path / "logs" / "plugin.jsonl").write_text(lines, encoding="utf-8")
    console = Console(file=io.StringIO(), width=100)
    render_summary(mixed_run(), console, folder=tmp_path)
    said = (
        "logs/plugin.jsonl in it: 2 lines that plugins logged or printed, 1,234 more are left out"
    )
    assert said in console.file.getvalue()  # type: ignore[attr-defined]


def test_what_is_summed_up_and_what_to_type_first_are_said(tmp_path: Path):
    console = Console(file=io.StringIO(), width=100)
    render_summary(mixed_run(), console, of="all steps together")
    print_next(mixed_run(), console, tmp_path, "run-1", first=["arkdev export run-1"])
    said = console.file.getvalue()  # type: ignore[attr-defined]
    assert said.startswith("all steps together: 27 of 32 rollouts graded")
    assert said.index("next  arkdev export run-1") < said.index("next  arkdev show run-1")


def test_sections_stand_side_by_side_only_where_there_is_room():
    def has_both(width: int) -> bool:
        lines = shown(mixed_run(), width=width).splitlines()
        return any("Rewards " in line and "Latency " in line for line in lines) or any(
            "Rewards " in line and line.count("───") and "Graders " in line for line in lines
        )

    assert has_both(160)
    assert not has_both(80)


def test_without_colour_there_is_no_escape_and_with_it_there_is():
    assert "\x1b" not in shown(mixed_run(), width=80)
    assert "\x1b[" in shown(mixed_run(), width=80, color=True)


def test_colour_changes_nothing_but_colour():
    import re

    coloured = shown(mixed_run(), width=80, color=True)
    assert re.sub(r"\x1b\[[0-9;]*m", "", coloured) == shown(mixed_run(), width=80)


def test_ascii_terminal_gets_ascii_bars_and_rules():
    summary = mixed_run()
    ascii_only = RunStatistics(4)
    ascii_only.add_trajectory(TrajectoryRecord("0.0", 0, 0, S, 1.0, (Attempt(S, 1.0),)))
    ascii_only.add_group(GroupRecord(0, S, ("0.0",), (1.0,)))
    text = shown(ascii_only.summary(), width=80, encoding="ascii")
    assert "Rewards ----" in text
    assert "####" in text
    assert "±" in shown(summary, width=80)


def test_gbk_terminal_gets_what_gbk_carries():
    text = shown(mixed_run(), width=80, encoding="gbk")
    assert "城市" in text
    assert "█" in text


def test_empty_sections_are_left_out():
    statistics = RunStatistics(1)
    statistics.add_trajectory(TrajectoryRecord("0.0", 0, 0, S, 1.0, (Attempt(S, 1.0),)))
    text = shown(statistics.summary(), width=80)
    assert "0 of 1 rollout graded" in text
    for title in ("Rewards", "Graders", "Groups", "Failed attempts", "Warnings"):
        assert title not in text
    assert "no rollout finished" in shown(RunStatistics(1).summary(), width=80)


def test_control_characters_of_a_plugin_cannot_steer_the_terminal():
    statistics = RunStatistics(1)
    attempt = Attempt(F, 0.1, error="\x1b[2J\x07wiped")
    statistics.add_trajectory(TrajectoryRecord("0.0", 0, 0, F, 1.0, (attempt,)))
    text = shown(statistics.summary(), width=80)
    assert "\x1b" not in text
    assert r"\x1b[2J\x07wiped" in text


def test_shares_and_durations_do_not_round_to_a_lie():
    assert [share(0, 9), share(1, 1000), share(999, 1000), share(9, 9)] == [
        "0%",
        "1%",
        "99%",
        "100%",
    ]
    assert [duration(s) for s in (0.0004, 0.312, 0.9996, 99.0, 125.0)] == [
        "0.4 ms",
        "312 ms",
        "1.00 s",
        "99.00 s",
        "2m05s",
    ]


def test_both_counts_of_a_headline_are_written_alike() -> None:
    many = replace(mixed_run(), num_graded=2560, num_rollouts=2561)
    told = headline(many, signs=symbols(Console(file=io.StringIO())))
    assert "2,560 of 2,561 rollouts graded" in told.plain


@pytest.mark.parametrize(
    ("num_graded", "num_dropped", "verdicts", "is_told"),
    [
        (0, 8, {"success": 8}, True),
        (0, 0, {"discard": 8}, True),
        (0, 5, {"success": 5, "discard": 3}, True),
        (1, 7, {"success": 8}, False),
        (0, 5, {"success": 8}, False),  # others were not graded yet when the run was cut short
    ],
)
def test_where_plugins_gave_up_everything_the_headline_says_so(
    num_graded: int, num_dropped: int, verdicts: dict[str, int], is_told: bool
) -> None:
    given_up = replace(
        mixed_run(),
        num_rollouts=8,
        num_graded=num_graded,
        num_dropped=num_dropped,
        num_ungraded=0,
        verdicts=verdicts,
        reward=None,
        would_fail_job=False,
    )
    told = headline(given_up, signs=symbols(Console(file=io.StringIO())))
    assert ("all were given up" in told.plain) == is_told
