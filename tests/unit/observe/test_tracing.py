"""`observe`, `trace_monitor`, `coze_monitor`: what they record, and that they change nothing."""

import asyncio
import inspect
from contextlib import contextmanager

import pytest

from arkdev.observe import spans
from arkdev.observe.tracing import coze_monitor, observe, trace_monitor

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
        baggage={"session": "s1"},
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
    said = "<Odd: RuntimeError while it was read>"
    assert found[0].attributes[ARGUMENTS] == {"args": [said], "kwargs": {}}


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
