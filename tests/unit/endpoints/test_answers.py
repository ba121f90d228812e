"""`check_answer`: what counts as an answer, and what the error says otherwise."""

from __future__ import annotations

import pytest

from arkdev.endpoints.answers import check_answer
from arkdev.errors import EndpointResponseError

GOOD = {"choices": [{"message": {"role": "assistant", "content": None}, "finish_reason": "stop"}]}


def refused(body: object, *, status: int) -> EndpointResponseError:
    with pytest.raises(EndpointResponseError) as caught:
        check_answer(body, status=status, headers={"X-Request-Id": "r1"})
    return caught.value


def test_a_good_answer_is_returned_unchanged() -> None:
    assert check_answer(GOOD, status=200, headers={}) is GOOD
    with_null_error = {**GOOD, "error": None}
    assert check_answer(with_null_error, status=200, headers={}) is with_null_error


@pytest.mark.parametrize(
    "body",
    [
        {"error": {"message": "overloaded"}, "choices": None},
        {"error": {"message": "overloaded"}, **GOOD},
        {"error": "overloaded"},
    ],
)
def test_an_error_hidden_in_a_200_is_transient_and_says_its_message(body: object) -> None:
    error = refused(body, status=200)
    assert error.status == 200 and error.is_transient and error.body == body
    assert "200" in str(error) and "overloaded" in str(error)


@pytest.mark.parametrize(
    "body", [{"choices": None}, {"choices": []}, {"choices": [None]}, {"choices": [{}]}, {}, [], 3]
)
def test_a_200_without_a_usable_choice_is_transient(body: object) -> None:
    assert refused(body, status=200).is_transient


@pytest.mark.parametrize(
    ("status", "is_transient"),
    [(400, False), (401, False), (404, False), (408, True), (409, True), (429, True), (503, True)],
)
def test_the_status_says_whether_trying_again_can_help(status: int, is_transient: bool) -> None:
    assert refused({"error": {"code": "C", "message": "m"}}, status=status).is_transient is (
        is_transient
    )


def test_the_message_has_status_code_and_server_message() -> None:
    body = {"error": {"code": "ServerOverloaded", "message": "busy. Request id: 7", "type": "T"}}
    error = refused(body, status=429)
    assert str(error) == "the endpoint answered 429: ServerOverloaded: busy. Request id: 7"
    assert error.headers == {"x-request-id": "r1"} and "--concurrency" in error.hint


def test_at_most_200_characters_of_a_body_that_is_not_json_are_kept() -> None:
    error = refused("<html>" + "x" * 1000, status=502)
    assert isinstance(error.body, str) and len(error.body) == 200
    assert "502" in str(error) and "<html>" in str(error) and len(str(error)) < 260


def test_an_empty_body_says_so() -> None:
    assert "empty body" in str(refused("", status=500))


@pytest.mark.parametrize("page", ["<!DOCTYPE HTML><p>x", "  <html lang=en>"])
def test_a_web_page_in_a_200_is_final_and_in_a_502_is_not(page: str) -> None:
    assert not refused(page, status=200).is_transient
    assert "a web page" in str(refused(page, status=200))
    assert refused(page, status=502).is_transient


def test_a_label_says_what_is_a_web_page_too() -> None:
    with pytest.raises(EndpointResponseError) as caught:
        check_answer("<p>Sign in", status=200, headers={"Content-Type": "text/html; charset=x"})
    assert not caught.value.is_transient


def test_a_code_that_repeats_the_status_gives_way_to_the_type() -> None:
    body = {"error": {"message": "no tools", "type": "BadRequestError", "code": 400}}
    assert str(refused(body, status=400)) == "the endpoint answered 400: BadRequestError: no tools"
