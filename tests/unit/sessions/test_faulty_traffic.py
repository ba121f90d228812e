"""The rule that makes HTTP calls of plugins fail, without any HTTP."""

import gc
import json
import threading
from contextlib import contextmanager

import pytest

from arkdev.observe.attempt import current_attempt
from arkdev.plugin.traffic.exchange import HttpFailure, HttpRequest, HttpResponse
from arkdev.sessions.faults.grammar import parse_faults
from arkdev.sessions.faults.plan import FaultPlan
from arkdev.sessions.faults.traffic import FaultyTraffic

OK = HttpResponse(200, {"content-type": "application/json"}, b'{"results": [1, 2, 3]}')


class Attempt:
    def __init__(self, name="0.0", number=1):
        self.name = name
        self.number = number
        self.faults = []
        self.answered = []

    def note(self, code, detail=""):
        raise AssertionError("nothing to note")

    def answered_later(self, fault):
        self.answered.append(fault)

    def fault(self, side, kind, target, *, detail="", is_injected=False):
        self.faults.append((str(side), kind, target, detail, is_injected))
        return self.faults[-1]


class Clock:
    """Keeps what is to be called later."""

    def __init__(self):
        self.later = []

    def __call__(self, delay_s, call):
        self.later.append((delay_s, call))


@contextmanager
def inside(attempt):
    token = current_attempt.set(attempt)
    try:
        yield attempt
    finally:
        current_attempt.reset(token)


def rule_of(inject, *, call_later=None):
    plan = FaultPlan(parse_faults(inject), seed=0)
    return FaultyTraffic(plan, call_later=call_later or Clock())


def asked(number=0, *, port=80, body=b"{}"):
    url = f"http://127.0.0.1:{port}/search?q={number}"
    return HttpRequest("httpx", "POST", url, {"content-type": "application/json"}, body)


def outcome_of(rule, request, *, response=OK):
    """What the plugin gets, by the steps of an adapter."""
    held = rule.before(request)
    assert held is None
    outcome = rule.answer(request) or rule.changed(request, response)
    rule.after(request, outcome, duration_s=0.0)
    return outcome


@pytest.mark.parametrize("kind", ["timeout", "raise"])
def test_no_answer_is_a_failure_that_says_that_it_is_injected(kind):
    with inside(Attempt()) as attempt:
        outcome = outcome_of(rule_of(f"tool.{kind}=100%"), asked(port=81))
    assert outcome == HttpFailure(kind, f"injected {kind}", is_injected=True)
    assert attempt.faults == [("tool", kind, "127.0.0.1:81", f"injected {kind}", True)]


def test_a_status_is_an_answer_of_the_service_with_its_retry_after():
    with inside(Attempt()):
        outcome = outcome_of(rule_of("tool.429=100%:4s"), asked())
    assert (outcome.status, outcome.headers["retry-after"]) == (429, "4")
    assert json.loads(outcome.body)["error"]["message"] == "injected 429"


def test_bodies_are_spoilt_and_nothing_else():
    bodies = {}
    for kind in ("garbage", "cut_json", "empty"):
        with inside(Attempt()) as attempt:
            outcome = outcome_of(rule_of(f"tool.{kind}=100%"), asked())
        assert (outcome.status, outcome.headers, outcome.is_injected) == (200, OK.headers, True)
        assert [fault[1] for fault in attempt.faults] == [kind]
        bodies[kind] = outcome.body
    assert bodies["empty"] == b""
    assert OK.body.startswith(bodies["cut_json"]) and 0 < len(bodies["cut_json"]) < len(OK.body)
    with pytest.raises(ValueError):
        json.loads(bodies["garbage"])


@pytest.mark.parametrize("body", [None, b""])
def test_what_has_no_body_stays_as_it_is_and_is_not_recorded(body):
    response = HttpResponse(204, {}, body)
    with inside(Attempt()) as attempt:
        outcome = outcome_of(rule_of("tool.garbage=100%"), asked(), response=response)
    assert outcome is response
    assert attempt.faults == []


def test_a_text_without_json_cannot_be_cut():
    response = HttpResponse(200, {}, b"plain words")
    with inside(Attempt()) as attempt:
        assert outcome_of(rule_of("tool.cut_json=100%"), asked(), response=response) is response
    assert attempt.faults == []


def test_slow_and_late_timeouts_are_held_back_for_their_time():
    clock = Clock()
    late = HttpFailure("timeout", "injected timeout", is_injected=True)
    for kind, outcome in (("slow", None), ("timeout", late)):
        rule = rule_of(f"tool.{kind}=100%:7s", call_later=clock)
        request = asked()
        with inside(Attempt()) as attempt:
            held = rule.before(request)
            assert [fault[1] for fault in attempt.faults] == [kind]
            assert held is not None and not held.done()
            delay_s, release = clock.later.pop()
            assert delay_s == 7.0
            release()
            release()  # of a call that gave up: nothing happens
            assert held.done()
            assert rule.answer(request) == outcome


def test_calls_outside_of_attempts_are_left_alone():
    assert outcome_of(rule_of("tool.raise=100%"), asked()) is OK


def drawn(rule, attempt, requests):
    with inside(attempt):
        return [isinstance(outcome_of(rule, request), HttpFailure) for request in requests]


def test_draws_depend_on_what_is_asked_and_not_on_the_order_or_the_port():
    numbers = list(range(40))
    forwards = drawn(rule_of("tool.raise=50%"), Attempt(), [asked(n) for n in numbers])
    backwards = drawn(
        rule_of("tool.raise=50%"), Attempt(), [asked(n, port=9000) for n in reversed(numbers)]
    )
    assert forwards == backwards[::-1]
    assert 8 < sum(forwards) < 32


def test_equal_calls_attempts_and_trajectories_draw_apart():
    rule = rule_of("tool.raise=50%")
    first = Attempt()
    same = drawn(rule, first, [asked()] * 30)
    assert 5 < sum(same) < 25
    assert drawn(rule, Attempt(number=2), [asked()] * 30) != same
    assert drawn(rule, Attempt("0.0 judge"), [asked()] * 30) != same
    assert drawn(rule, Attempt(), [asked()] * 30) == same


def test_nothing_is_kept_of_calls_and_attempts_that_are_over():
    rule = rule_of("tool.raise=100%")
    attempt = Attempt()
    drawn(rule, attempt, [asked(n) for n in range(5)])
    with inside(attempt):
        rule.before(asked(99))  # and its end never comes
    del attempt
    gc.collect()
    assert len(rule._strikes) == 0
    assert len(rule._num_seen) == 0


def test_threads_of_one_attempt_may_call_at_once():
    rule, attempt = rule_of("tool.raise=50%"), Attempt()
    results = {}

    def work(name):
        results[name] = drawn(rule, attempt, [asked(name * 100 + n) for n in range(20)])

    threads = [threading.Thread(target=work, args=(name,)) for name in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    alone = drawn(rule_of("tool.raise=50%"), Attempt(), [asked(n) for n in range(20)])
    assert results[0] == alone


def test_a_fault_that_the_same_call_makes_good_in_its_attempt_is_told():
    rule = rule_of("tool.503=50%")
    with inside(Attempt()) as attempt:
        tries = [[outcome_of(rule, asked(n)).status for _ in range(2)] for n in range(20)]
    assert {tuple(two) for two in tries} == {(200, 200), (200, 503), (503, 200), (503, 503)}
    # another query is another call: only the same one makes good
    assert len(attempt.answered) == tries.count([503, 200])
