"""Spans on their way out: batches, losses and their reasons, and an end that does not wait."""

import threading
import time

from arkdev.observe import span_export
from arkdev.observe.span_export import BATCH_SIZE, SpanExport
from arkdev.observe.spans import Span


class Receiver:
    name = "there"
    num_unconfirmed = 0
    trouble = ""

    def __init__(self, send=lambda spans: ""):
        self.batches = []
        self._send = send

    def send(self, spans):
        self.batches.append(spans)
        return self._send(spans)

    def close(self, timeout_s):
        return ""


def span(name="tool"):
    return Span(name, kind="internal", ids=(1, 2), started_ns=0)


def closed(export, timeout_s=60.0):
    export.begin_closing(timeout_s)
    return export.closed()


def unmasked(value):
    return value


def test_spans_go_in_batches_and_none_is_lost():
    receiver = Receiver()
    export = SpanExport(receiver, mask=unmasked)

    def adds():
        for _ in range(1000):
            export.add(span())

    threads = [threading.Thread(target=adds) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    counts = closed(export)
    assert (counts.num_sent, counts.num_lost, counts.reason) == (4000, 0, "")
    assert sum(map(len, receiver.batches)) == 4000
    assert max(map(len, receiver.batches)) <= BATCH_SIZE


def test_secrets_are_masked_before_the_receiver_sees_them():
    receiver = Receiver()
    export = SpanExport(receiver, mask=lambda value: "***" if value else value)
    secret = span("key sk-1")
    secret.attributes["k"] = "sk-1"
    export.add(secret)
    closed(export)
    [[seen]] = receiver.batches
    assert (seen.name, seen.attributes) == ("***", "***")
    assert secret.name == "key sk-1"


def test_a_failed_batch_is_counted_with_the_first_reason_and_the_next_is_sent(monkeypatch):
    monkeypatch.setattr(span_export, "BATCH_SIZE", 2)
    monkeypatch.setattr(span_export, "EVERY_S", 60.0)
    answers = iter(["refused", RuntimeError("broke"), ""])
    all_are_added = threading.Event()

    def send(_spans):
        all_are_added.wait(60)
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    export = SpanExport(Receiver(send), mask=unmasked)
    for _ in range(6):
        export.add(span())
    all_are_added.set()
    counts = closed(export)
    assert (counts.num_sent, counts.num_lost, counts.reason) == (2, 4, "refused")


def test_a_receiver_that_hangs_is_left_behind():
    forever = threading.Event()
    export = SpanExport(Receiver(lambda _spans: forever.wait() and ""), mask=unmasked)
    export.add(span())
    started = time.monotonic()
    counts = closed(export, 0.05)
    assert time.monotonic() - started < 30
    assert (counts.num_sent, counts.num_lost) == (0, 1)
    assert counts.reason == "no answer within 0.05 s"
    forever.set()


def test_what_waits_is_bounded(monkeypatch):
    monkeypatch.setattr(span_export, "MAX_WAITING", 3)
    monkeypatch.setattr(span_export, "EVERY_S", 60.0)
    export = SpanExport(Receiver(), mask=unmasked)
    for _ in range(5):
        export.add(span())
    counts = closed(export)
    assert (counts.num_sent, counts.num_lost, counts.reason) == (3, 2, "too many at once")


def test_spans_that_a_receiver_took_and_lost_are_lost():
    receiver = Receiver()
    export = SpanExport(receiver, mask=unmasked)
    export.add(span())
    receiver.num_unconfirmed = 1
    counts = closed(export)
    assert (counts.num_sent, counts.num_lost) == (0, 1)


def test_receivers_that_hang_are_left_behind_together():
    forever = threading.Event()
    exports = [
        SpanExport(Receiver(lambda _spans: forever.wait() and ""), mask=unmasked) for _ in range(10)
    ]
    started = time.monotonic()
    for export in exports:
        export.add(span())
        export.begin_closing(1.0)
    assert [export.closed().num_lost for export in exports] == [1] * 10
    assert time.monotonic() - started < 8  # one after the other they take 10 s
    forever.set()


def test_a_receiver_that_tries_again_gets_less_time_and_its_trouble_is_the_reason(monkeypatch):
    monkeypatch.setattr(span_export, "TROUBLE_S", 0.05)
    forever = threading.Event()
    receiver = Receiver(lambda _spans: forever.wait() and "")
    receiver.trouble = "503 Service Unavailable"
    export = SpanExport(receiver, mask=unmasked)
    export.add(span())
    started = time.monotonic()
    counts = closed(export, 120.0)
    assert time.monotonic() - started < 60
    assert (counts.num_lost, counts.reason) == (1, "503 Service Unavailable")
    forever.set()
