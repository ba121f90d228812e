"""Sums in sentences, English and Chinese."""

from __future__ import annotations

import pytest

from arkdev.endpoints.scripted.policy import sum_in


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ("12 + 7", "19"),
        ("3 乘以 4", "12"),
        ("What is 17 plus 5?", "22"),
        ("1+1=？", "2"),
        ("100减去37等于多少", "63"),
        ("(3+4)*2 = ?", "14"),
        ("2 + 3 * 4", "14"),
        ("计算 12 - -3", "15"),
        ("the sum of 3 and 5", "8"),
        ("3 和 5 的乘积", "15"),
        ("三加五等于几", "8"),
        ("十二乘以三", "36"),
        ("1,200 + 30", "1230"),
        ("计算：１５＋３", "18"),
        ("7/2", "3.5"),
        ("5 minus 8", "-3"),
        ("what is 5 multiplied by 6?", "30"),
    ],
)
def test_a_sum_is_worked_out(text: str, result: str) -> None:
    assert sum_in(text) == result


@pytest.mark.parametrize(
    "text", ["7 and 8", "on 2024-01-05", "从10到12", "What is 9 / 0", "hello", "call +86 10 1234"]
)
def test_a_text_without_a_sum_has_no_result(text: str) -> None:
    assert sum_in(text) is None
