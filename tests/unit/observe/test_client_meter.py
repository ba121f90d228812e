"""How many clients the plugins build."""

import threading
from contextlib import contextmanager

import pytest

from arkdev import rollout
from arkdev.observe.attempt import current_attempt
from arkdev.observe.client_meter import ClientMeter
from tests.running import LINE, running

openai = pytest.importorskip("openai")
NOWHERE = {"base_url": "http://127.0.0.1:9", "api_key": "k"}


class Noted:
    name = "0.0"

    def __init__(self):
        self.notes = []

    def note(self, code, detail=""):
        self.notes.append((code, detail))


@contextmanager
def inside(attempt):
    token = current_attempt.set(attempt)
    try:
        yield attempt
    finally:
        current_attempt.reset(token)


@pytest.mark.parametrize("name", ["OpenAI", "AsyncOpenAI"])
def test_a_client_built_inside_an_attempt_is_counted_with_its_cost(name):
    meter = ClientMeter()
    with meter.running(), inside(Noted()) as attempt:
        getattr(openai, name)(**NOWHERE)
    assert meter.num_built == 1
    assert 0 < meter.total_s < 60
    assert attempt.notes == [("client_built_per_rollout", name)]


def test_clients_of_ark_are_counted():
    ark = pytest.importorskip("volcenginesdkarkruntime")
    meter = ClientMeter()
    with meter.running(), inside(Noted()) as attempt:
        ark.Ark(**NOWHERE)
        ark.AsyncArk(**NOWHERE)
    assert meter.num_built == 2
    assert [detail for _, detail in attempt.notes] == ["Ark", "AsyncArk"]


def test_clients_from_outside_an_attempt_or_with_a_transport_of_their_own_are_not():
    transport = openai.DefaultHttpxClient()
    meter = ClientMeter()
    with meter.running():
        openai.OpenAI(**NOWHERE)
        with inside(Noted()) as attempt:
            openai.OpenAI(**NOWHERE, http_client=transport)
    assert (meter.num_built, attempt.notes) == (0, [])
    transport.close()


def test_afterwards_nothing_is_measured():
    before = openai.OpenAI.__init__
    meter = ClientMeter()
    with pytest.raises(KeyError), meter.running():
        assert openai.OpenAI.__init__ is not before
        raise KeyError
    assert openai.OpenAI.__init__ is before


def test_clients_of_many_threads_are_all_counted():
    meter = ClientMeter()
    attempt = Noted()

    def builds():
        with inside(attempt):
            for _ in range(5):
                openai.OpenAI(**NOWHERE)

    with meter.running():
        threads = [threading.Thread(target=builds) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert (meter.num_built, len(attempt.notes)) == (10, 10)


async def test_a_rollout_that_builds_a_client_is_told_so_and_one_that_takes_it_is_not():
    question = {"model": "m", "messages": LINE["messages"]}

    @rollout
    def builds(context, proxy, sample):
        with openai.OpenAI(base_url=proxy.url, api_key=proxy.jwt_token) as client:
            client.chat.completions.create(**question)

    @rollout
    def takes(context, proxy, sample):
        proxy.rollout_client().chat.completions.create(**question)

    meter = ClientMeter()
    async with running() as run:
        with meter.running():
            built = (await run.rollout(builds)).record.warnings
            taken = (await run.rollout(takes)).record.warnings
    assert "client_built_per_rollout: OpenAI" in built
    assert (taken, meter.num_built) == ((), 1)
