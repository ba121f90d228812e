"""`observe`, `trace_monitor`, `coze_monitor`: what they record, and that they change nothing."""

import asyncio
import collections.abc
import inspect
import json
import types
from contextlib import contextmanager

import pydantic
import pytest

from arkdev.observe import spans
from arkdev.observe.gen_ai import request_attributes
from arkdev.observe.tracing import coze_monitor, observe, trace_monitor
from arkdev.observe.values import MAX_TOTAL, masked_before_cut

ARGUMENTS, RESULT = "gen_ai.tool.call.arguments", "gen_ai.tool.call.result"


@contextmanager
def recorded():
    """Spans of the calls in the block, which is inside an attempt."""
    found = []
    with spans.recording(found.append) as recording:
        root = recording.root("attempt", trajectory_ids=("7.1",), attempt=0)
        with spans.opened(root):
            yield found


def test_a_call_is_recorded_with_what_went_in_and_out():
    @observe()
    def weather(city, *, unit="C"):
        return {"city": city, "degrees": 21, "unit": unit}

    with recorded() as found:
        assert weather("Paris", unit="F")["degrees"] == 21
    span, root = found
    assert (span.name, span.parent_id) == ("weather", root.span_id)
    assert span.attributes["gen_ai.operation.name"] == "execute_tool"
    assert span.attributes["gen_ai.tool.name"] == "weather"
    assert span.attributes[ARGUMENTS] == {"args": ["Paris"], "kwargs": {"unit": "F"}}
    assert span.attributes[RESULT] == {"city": "Paris", "degrees": 21, "unit": "F"}


async def test_the_parameters_of_cozeloop_s_decorator_are_taken():
    @observe(
        name="search",
        span_type="retriever",
        tags={"team": "rl"},
        baggage={"session": "s1", "held": b"12"},
        process_inputs=lambda given: given["kwargs"]["query"],
        process_outputs=len,
    )
    async def search(client, *, query):
        await inside()
        return [query] * 3

    @observe
    async def inside():
        await asyncio.sleep(0)

    with recorded() as found:
        assert await search(object(), query="x") == ["x"] * 3
    inner, span, _ = found
    assert (span.name, inner.parent_id) == ("search", span.span_id)
    assert span.attributes["arkdev.span_type"] == "retriever"
    assert span.attributes["team"] == "rl"
    assert (span.attributes["input"], span.attributes["output"]) == ("x", 3)
    assert inner.attributes["held"] == "<2 bytes>"
    assert (span.attributes["session"], inner.attributes["session"]) == ("s1", "s1")


def test_a_misspelt_parameter_is_an_error():
    with pytest.raises(TypeError, match="proces_inputs"):
        observe(proces_inputs=len)


def test_a_call_never_fails_for_its_trace():
    class Odd:
        def model_dump(self):
            raise RuntimeError("no")

    @observe(process_inputs=lambda given: given["kwargs"]["name"], process_outputs=lambda _: 1 / 0)
    def tool(value):
        return value

    odd = Odd()
    with recorded() as found:
        assert tool(odd) is odd
    assert found[0].attributes[ARGUMENTS] == "<<lambda> raised KeyError: 'name'>"
    assert found[0].attributes[RESULT].startswith("<<lambda> raised ZeroDivisionError")

    @observe
    def plain(value):
        return None

    with recorded() as found:
        assert plain(odd) is None  # cozeloop's decorator and some others lose a None
    [said] = found[0].attributes[ARGUMENTS]["args"]
    assert said.endswith("Odd>")


async def test_errors_go_on_and_are_kept():
    @observe
    async def fails():
        raise KeyError("gone")

    with recorded() as found, pytest.raises(KeyError):
        await fails()
    assert found[0].error == "KeyError: 'gone'"


def test_a_method_s_self_is_no_input():
    class Tool:
        @observe
        def run(self, city):
            return city

    with recorded() as found:
        Tool().run("Paris")
    assert found[0].attributes[ARGUMENTS] == {"args": ["Paris"], "kwargs": {}}


def test_a_generator_keeps_its_protocol_and_its_span_ends_with_it():
    @observe(process_outputs=list)
    def numbers(stop):
        assert spans.current().name == "numbers"
        for number in range(stop):
            try:
                if (yield number) == "stop":
                    return "stopped"
            except ValueError:
                yield "caught"
        return "done"

    with recorded() as found:
        generator = numbers(5)
        assert (next(generator), next(generator)) == (0, 1)
        assert spans.current().name == "attempt"  # between the steps the caller's code runs
        assert generator.throw(ValueError()) == "caught"
        assert generator.send(None) == 2
        with pytest.raises(StopIteration) as stopped:
            generator.send("stop")
        assert stopped.value.value == "stopped"
        assert found[0].attributes[RESULT] == [0, 1, "caught", 2]

        closed = numbers(2)
        next(closed)
        closed.close()
        assert found[1].error == ""
    assert inspect.isgeneratorfunction(numbers)


async def test_an_asynchronous_generator_is_recorded_as_it_is_read():
    @observe(span_type="stream")
    async def chunks():
        for part in "abc":
            await asyncio.sleep(0)
            yield part

    with recorded() as found:
        assert [part async for part in chunks()] == ["a", "b", "c"]
    assert found[0].attributes["output"] == ["a", "b", "c"]
    assert inspect.isasyncgenfunction(chunks)


async def test_an_iterator_that_is_returned_is_recorded_when_it_is_read():
    @observe(process_iterator_outputs="".join)
    def parts():
        return iter("abc")

    with recorded() as found:
        stream = parts()
        assert found == []
        assert list(stream) == ["a", "b", "c"]
        assert found[0].attributes[RESULT] == "abc"


async def test_what_a_plain_function_returns_to_be_awaited_is_part_of_the_call():
    async def work():
        await asyncio.sleep(0)
        return spans.current().name

    @observe
    def tool():
        return work()

    with recorded() as found:
        assert await tool() == "tool"
    assert found[0].attributes[RESULT] == "tool"


@pytest.mark.parametrize("monitor", [trace_monitor, coze_monitor])
def test_a_plugin_s_data_goes_into_the_span_of_its_attempt(monitor):
    @monitor
    def demo_rollout(context, proxy, sample):
        return {"status": "ok"}

    with recorded() as found:
        demo_rollout("context", "key sk-1", {"messages": []})
        demo_rollout("context", proxy="key", sample={"again": 1})  # by another plugin
    again, root = found
    assert root.name == "attempt"
    assert root.attributes["input"] == {"context": "context", "sample": {"messages": []}}
    assert root.attributes["output"] == {"status": "ok"}
    assert (again.name, again.attributes["input"]["sample"]) == ("demo_rollout", {"again": 1})


def test_a_plugin_is_recorded_once_whatever_decorates_it():
    @observe
    @coze_monitor
    @trace_monitor
    def demo_rollout(sample):
        other(sample)
        return "done"

    @trace_monitor
    def other(sample):
        return "other"

    with recorded() as found:
        root = spans.current()
        root.function = inspect.unwrap(demo_rollout)
        demo_rollout("hello")
    assert [span.name for span in found] == ["other", "demo_rollout", "attempt"]
    assert (root.attributes["input"], root.attributes["output"]) == ({"sample": "hello"}, "done")


def test_a_plugin_that_calls_another_keeps_its_span_for_itself():
    @trace_monitor
    def other(sample):
        return "other"

    with recorded() as found:
        spans.current().function = len
        other("hello")
    assert [span.name for span in found] == ["other", "attempt"]
    assert "input" not in found[1].attributes


def test_values_are_bounded_and_what_is_no_data_is_named_only():
    class Client:
        def __repr__(self):
            return "Client(api_key='sk-1')"

    @observe
    def tool(*values):
        return list(range(1000))

    with recorded() as found:
        tool("x" * 20_000, Client(), b"12", float("nan"), {1: {2}})
    text, client, data, nan, mapping = found[0].attributes[ARGUMENTS]["args"]
    assert text.endswith("… (3,616 more characters)")
    assert client.endswith("Client>") and "sk-1" not in client
    assert (data, nan, mapping) == ("<2 bytes>", "nan", {"1": [2]})
    assert found[0].attributes[RESULT][99:] == [99, "… (900 more)"]


async def test_a_task_that_is_returned_stays_the_task():
    @observe
    def spawn(seconds):
        return asyncio.ensure_future(asyncio.sleep(seconds, "slept"))

    with recorded() as found:
        done, _ = await asyncio.wait({spawn(0)})
        assert done.pop().result() == "slept"
        task = spawn(60)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    first, second, _ = found
    assert (first.attributes[RESULT], first.error) == ("slept", "")
    assert second.error == "CancelledError: "


def test_only_what_is_read_once_is_read_along_and_it_stays_what_it_was():
    @observe(process_iterator_outputs=list)
    def give(value):
        return value

    def numbers():
        try:
            assert (yield 1) == "sent"
            yield spans.current().name
        finally:
            closed.append(True)

    closed = []
    with recorded() as found:
        for value in ("hello", [1, 2], {"a": 1}):
            assert give(value) is value
        assert found[0].attributes[RESULT] == ["h", "e", "l", "l", "o"]
        iterator = give(iter("ab"))
        assert next(iterator) == "a"
        assert iter(iterator) is iterator
        assert list(iterator) == ["b"]
        assert next(iterator, "end") == "end"
        assert found[3].attributes[RESULT] == ["a", "b"]
        generator = give(numbers())
        assert isinstance(generator, types.GeneratorType)
        assert not isinstance(generator, collections.abc.AsyncIterator)
        assert next(generator) == 1
        generator.send("sent")
        generator.close()
        assert closed == [True]
        assert found[4].attributes[RESULT] == [1]
        give(iter("ab"))  # never read
    assert len(found) == 7


async def test_an_asynchronous_iterator_is_read_by_anext_as_well():
    async def numbers():
        yield 1
        yield spans.current().name

    @observe(process_iterator_outputs=list)
    def give():
        return numbers()

    with recorded() as found:
        iterator = give()
        assert isinstance(iterator, types.AsyncGeneratorType)
        assert await anext(iterator) == 1
        assert await anext(iterator) == "give"
        await iterator.aclose()
    assert found[0].attributes[RESULT] == [1, "give"]


def test_objects_of_plugins_are_looked_at_without_calling_them():
    class Lazy:
        def __getattr__(self, name):
            raise KeyError(name)

    class Answer(pydantic.BaseModel):
        text: str
        key: str = pydantic.Field(exclude=True)

        def model_dump(self, **_):
            raise SystemExit("called")

    class Unreadable(Exception):
        def __str__(self):
            raise RuntimeError("no text")

    @observe(process_iterator_outputs=list)
    def give(value):
        if isinstance(value, Exception):
            raise value
        return value

    with recorded() as found:
        lazy = Lazy()
        assert give(lazy) is lazy
        give(Answer(text="x", key="sk-1"))
        with pytest.raises(Unreadable):
            give(Unreadable())
    assert found[1].attributes[ARGUMENTS]["args"] == [{"text": "x"}]
    assert found[2].error == "Unreadable: <its text raised RuntimeError>"


def test_a_secret_at_the_place_of_the_cut_is_masked():
    secret = "sk-" + "0123456789" * 4

    @observe
    def tool(text):
        raise ValueError(text)

    def mask(text):
        return text.replace(secret, "***")

    text = "x" * 16_370 + secret + "y" * 100
    with masked_before_cut(mask), recorded() as found, pytest.raises(ValueError, match="sk-"):
        tool(text)
    span = found[0]
    for kept in (span.error, span.attributes[ARGUMENTS]["args"][0]):
        assert "sk-0" not in kept and "***" in kept
        assert kept.endswith("more characters)")


def test_a_span_is_bounded_as_a_whole():
    @observe
    def tool(*_):
        raise ValueError("x" * 3_000_000)

    numbers = [[[list(range(100))] * 100] * 60]
    texts = [["y" * 16_000] * 100] * 100
    many = [{"role": "user", "content": "z" * 16_000}] * 300
    asked = request_attributes({"messages": many}, sampling={}, model="m", provider="p")
    assert len(json.dumps(asked)) < 2 * MAX_TOTAL
    with recorded() as found, pytest.raises(ValueError, match="x"):
        tool(numbers, texts, {"k" * 3_000_000: 1})
    assert len(found[0].error) < 17_000
    assert len(json.dumps(found[0].attributes[ARGUMENTS])) < 2 * MAX_TOTAL
