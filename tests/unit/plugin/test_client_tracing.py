"""`wrap_inplace_trace`: which calls have a span, and that streams stay what they are."""

import json
from contextlib import contextmanager

import httpx
import openai
import pydantic
import pytest

from arkdev.observe import spans
from arkdev.plugin.client_tracing import wrap_inplace_trace

ASK = {"model": "judge", "messages": [{"role": "user", "content": "Good?"}]}


@contextmanager
def recorded():
    found = []
    with (
        spans.recording(found.append) as recording,
        spans.opened(recording.root("attempt", trajectory_ids=("7.1",), attempt=0)),
    ):
        yield found


def answered(request):
    """Answer a call; the content is the name of the span that the HTTP call was made in."""
    inside = spans.current()
    text = json.dumps({"name": inside.name if inside else ""})
    common = {"id": "c1", "created": 1, "model": "judge"}
    choice = {"index": 0, "finish_reason": "stop"}
    if not json.loads(request.content).get("stream"):
        whole = {**choice, "message": {"role": "assistant", "content": text}}
        return httpx.Response(200, json={**common, "object": "chat.completion", "choices": [whole]})
    part = {**choice, "delta": {"content": text}}
    chunk = {**common, "object": "chat.completion.chunk", "choices": [part]}
    lines = f"data: {json.dumps(chunk)}\n\n" * 2 + "data: [DONE]\n\n"
    return httpx.Response(200, text=lines, headers={"content-type": "text/event-stream"})


@pytest.fixture
def client():
    transport = httpx.MockTransport(answered)
    with httpx.Client(transport=transport) as http:
        made = openai.OpenAI(base_url="http://judge.example", api_key="none", http_client=http)
        yield wrap_inplace_trace(wrap_inplace_trace(made))


@pytest.fixture
async def async_client():
    transport = httpx.MockTransport(answered)
    async with httpx.AsyncClient(transport=transport) as http:
        yield wrap_inplace_trace(
            openai.AsyncOpenAI(base_url="http://judge.example", api_key="none", http_client=http)
        )


class Answer(pydantic.BaseModel):
    name: str


def test_every_way_to_call_has_one_span_and_its_http_call_is_inside(client):
    with recorded() as found:
        content = client.chat.completions.create(**ASK).choices[0].message.content
        assert json.loads(content)["name"] == "chat judge"
        parsed = client.chat.completions.parse(**ASK, response_format=Answer)
        assert parsed.choices[0].message.parsed == Answer(name="chat judge")
        client.with_options(timeout=5).chat.completions.create(**ASK)
        client.copy().with_options(timeout=5).chat.completions.create(**ASK)
        assert spans.current().name == "attempt"
    assert [span.name for span in found] == ["chat judge"] * 4 + ["attempt"]
    for span in found[:-1]:
        assert span.attributes["gen_ai.response.finish_reasons"] == ["stop"]


def test_a_stream_stays_a_stream_and_its_span_ends_with_it(client):
    with recorded() as found:
        stream = client.chat.completions.create(**ASK, stream=True)
        assert isinstance(stream, openai.Stream)
        assert next(stream).object == "chat.completion.chunk"
        assert found == []
        stream.close()
        assert [span.name for span in found] == ["chat judge"]
        with client.chat.completions.create(**ASK, stream=True) as stream:
            assert len(list(stream)) == 2
        assert len(found) == 2
        for _chunk in client.chat.completions.create(**ASK, stream=True):
            break
        assert len(found) == 3


async def test_an_asynchronous_stream_stays_one(async_client):
    with recorded() as found:
        stream = await async_client.chat.completions.create(**ASK, stream=True)
        assert isinstance(stream, openai.AsyncStream)
        assert (await anext(stream)).object == "chat.completion.chunk"
        await stream.close()
        assert [span.name for span in found] == ["chat judge"]
        stream = await async_client.chat.completions.create(**ASK, stream=True)
        await stream.close()  # unread
        async with await async_client.chat.completions.create(**ASK, stream=True) as stream:
            assert len([chunk async for chunk in stream]) == 2
    assert [span.name for span in found] == ["chat judge"] * 3 + ["attempt"]
