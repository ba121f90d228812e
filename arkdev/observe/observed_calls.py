"""One call of a function whose calls are recorded: its span, its input and its output.

Whatever goes wrong in recording, the call itself and what it returns are untouched.
"""

from __future__ import annotations

import functools
import inspect
from asyncio import CancelledError, Future
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from arkdev.observe import spans
from arkdev.observe.gen_ai import EXECUTE_TOOL, OPERATION, TOOL_ARGUMENTS, TOOL_RESULT
from arkdev.observe.read_iterators import is_iterator, recorded_iterator
from arkdev.observe.values import MAX_ITEMS, error_text, plain

Process = Callable[[Any], Any]

SPAN_TYPE = "arkdev.span_type"
INPUT, OUTPUT = "input", "output"
_TOOLS = ("custom", "tool")


@dataclass(frozen=True)
class ObservedFunction:
    """What to record of the calls of one function."""

    name: str
    span_type: str = "custom"
    tags: Mapping[str, Any] = field(default_factory=dict)
    baggage: Mapping[str, str] = field(default_factory=dict)
    process_inputs: Process | None = None
    process_outputs: Process | None = None
    process_iterator_outputs: Process | None = None
    is_method: bool = False
    plugin: Any = None
    """The function without what decorates it, of a plugin: its span is the harness's, if any."""

    def open(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> ObservedCall:
        """Begin a call."""
        given = {"args": args[1:] if self.is_method else args, "kwargs": kwargs}
        around = spans.current()
        if self.plugin is not None and around is not None and self._is_attempt(around.root):
            call = ObservedCall(self, around.root, is_ours=False)
            call.keep(INPUT, given, self.process_inputs)
            return call
        recording = spans.active()
        span = recording.child(self.name) if recording is not None else None
        call = ObservedCall(self, span)
        if span is not None:
            baggage = plain(self.baggage)
            span.baggage = {**span.baggage, **baggage}
            span.attributes |= {SPAN_TYPE: self.span_type, **baggage, **plain(self.tags)}
            if self.span_type in _TOOLS:
                span.attributes |= {OPERATION: EXECUTE_TOOL, "gen_ai.tool.name": self.name}
            call.keep(self._key(TOOL_ARGUMENTS, INPUT), given, self.process_inputs)
        return call

    def _is_attempt(self, root: spans.Span) -> bool:
        """Whether it is this call that the harness made."""
        is_ours = root.function is None or root.function is self.plugin
        return is_ours and root.is_open and INPUT not in root.attributes

    @property
    def output_key(self) -> str:
        """The attribute that holds what the function returned."""
        return self._key(TOOL_RESULT, OUTPUT)

    def _key(self, of_tool: str, otherwise: str) -> str:
        return of_tool if self.span_type in _TOOLS else otherwise


class ObservedCall:
    """A call under way. As a context manager it is where the function's code runs.

    The span ends with the block, unless the call `goes_on` after it: an iterator that is read, or
    an awaitable.
    """

    def __init__(
        self, function: ObservedFunction, span: spans.Span | None, *, is_ours: bool = True
    ) -> None:
        self.span = span
        self.goes_on = False
        self._function = function
        self._is_ours = is_ours
        self._inside: Any = None

    def __enter__(self) -> ObservedCall:
        if self.span is not None and self._is_ours:
            self._inside = spans.current_is(self.span)
            self._inside.__enter__()
        return self

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if self._inside is not None:
            self._inside.__exit__(None, None, None)
            self._inside = None
        if error is not None:
            self.fail(error)
        if error is not None or not self.goes_on:
            self.end()

    def fail(self, error: BaseException) -> None:
        """Say what went wrong; a plugin's error the harness notes itself."""
        if self.span is not None and self._is_ours:
            self.span.fail(error)

    def end(self) -> None:
        """End the span."""
        recording = spans.active()
        if self.span is not None and self._is_ours and recording is not None:
            recording.end(self.span)

    def result(self, value: Any) -> Any:
        """Keep what the function returned; return what the caller gets."""
        process = self._function.process_iterator_outputs
        if self.span is not None and process is not None and is_iterator(value):
            self.goes_on = True
            return recorded_iterator(value, Reading(self, process))
        self.keep_output(value, self._function.process_outputs or process)
        return value

    def returned(self, value: Any) -> Any:
        """Do the same for a plain function, which may return something that is awaited later.

        A future is the caller's own, to cancel or to wait for.
        """
        if self.span is None or not (inspect.iscoroutine(value) or isinstance(value, Future)):
            return self.result(value)
        self.goes_on = True
        if isinstance(value, Future):
            value.add_done_callback(self._settled)
            return value
        return self._awaited(value)

    def _settled(self, future: Future[Any]) -> None:
        # `exception()` would count as looking at it, and asyncio complains where nobody does
        error = CancelledError() if future.cancelled() else getattr(future, "_exception", None)
        if error is not None:
            self.fail(error)
        else:
            self.keep_output(future.result(), self._function.process_outputs)
        self.end()

    def keep_output(self, value: Any, process: Process | None) -> None:
        """Keep what the function gave."""
        self.keep(self._function.output_key, value, process)

    def keep(self, key: str, value: Any, process: Process | None) -> None:
        """Keep `value`, as the user's own `process` has it."""
        if self.span is None:
            return
        if process is not None:
            try:
                value = process(value)
            except (Exception, SystemExit) as error:  # noqa: BLE001 (the call must not fail)
                name = getattr(process, "__name__", type(process).__name__)
                value = f"<{name} raised {type(error).__name__}: {error_text(error)}>"
        self.span.attributes[key] = plain(value)

    async def _awaited(self, coroutine: Any) -> Any:
        """Await what a plain function returned: the call goes on until then."""
        self.goes_on = False
        with self:
            return self.result(await coroutine)


class Reading:
    """The items of an iterator while it is read, at most `MAX_ITEMS` of them."""

    def __init__(self, call: ObservedCall, process: Process | None) -> None:
        self.span = call.span
        self._call = call
        self._process = process
        self._items: list[Any] = []
        self._is_done = False

    def add(self, item: Any) -> None:
        """Keep an item."""
        if len(self._items) < MAX_ITEMS:
            self._items.append(item)

    def finish(self, error: BaseException | None = None) -> None:
        """End the call, once."""
        if self._is_done:
            return
        self._is_done = True
        if error is not None:
            self._call.fail(error)
        self._call.keep_output(self._items, self._process)
        self._call.end()


def observed_generator(function: Any, described: ObservedFunction) -> Any:
    """Return a generator function of which each step runs inside the call's span.

    Between the steps the caller's code runs, which is outside.
    """

    @functools.wraps(function)
    def observed(*args: Any, **kwargs: Any) -> Any:
        call = described.open(args, kwargs)
        generator = function(*args, **kwargs)
        reading = Reading(call, described.process_outputs)
        step: Callable[[], Any] = functools.partial(next, generator)
        try:
            while True:
                with spans.current_is(call.span):
                    item = step()
                reading.add(item)
                try:
                    sent = yield item
                    step = functools.partial(generator.send, sent)
                except GeneratorExit:
                    generator.close()
                    raise
                except BaseException as error:  # noqa: BLE001 (handed to the generator)
                    step = functools.partial(generator.throw, error)
        except StopIteration as stop:
            return stop.value
        except Exception as error:
            reading.finish(error)
            raise
        finally:
            reading.finish()

    return observed


def observed_async_generator(function: Any, described: ObservedFunction) -> Any:
    """Return an asynchronous generator function of which each step runs inside the call's span."""

    @functools.wraps(function)
    async def observed(*args: Any, **kwargs: Any) -> AsyncIterator[Any]:
        call = described.open(args, kwargs)
        generator = function(*args, **kwargs)
        reading = Reading(call, described.process_outputs)
        step: Callable[[], Any] = generator.__anext__
        try:
            while True:
                with spans.current_is(call.span):
                    item = await step()
                reading.add(item)
                try:
                    sent = yield item
                    step = functools.partial(generator.asend, sent)
                except GeneratorExit:
                    await generator.aclose()
                    raise
                except BaseException as error:  # noqa: BLE001 (handed to the generator)
                    step = functools.partial(generator.athrow, error)
        except StopAsyncIteration:
            return
        except Exception as error:
            reading.finish(error)
            raise
        finally:
            reading.finish()

    return observed
