"""Stands for an iterator that somebody reads, and records what passes.

It behaves as the iterator itself: ``next``, ``isinstance``, ``close``, ``with`` and its own
attributes work as they would without it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any, Protocol

from arkdev.observe import spans


class Reader(Protocol):
    """Who records: what it does must not raise."""

    span: spans.Span | None
    """The iterator's own code runs in it."""

    def add(self, item: Any) -> None:
        """Keep an item."""
        ...

    def finish(self, error: BaseException | None = None) -> None:
        """End: it was read to its end, broke, or was closed. What comes after is ignored."""
        ...


def is_iterator(value: Any) -> bool:
    """Whether `value` can be read once, item by item; nothing of it is called."""
    return isinstance(value, (Iterator, AsyncIterator))


def recorded_iterator(iterator: Any, reader: Reader) -> Any:
    """Return what stands for `iterator`, sync or async."""
    is_async = isinstance(iterator, AsyncIterator)
    has_exit = hasattr(type(iterator), "__aexit__" if is_async else "__exit__")
    return _KINDS[is_async, has_exit](iterator, reader)


class _Read:
    """What both kinds share."""

    def __init__(self, iterator: Any, reader: Reader) -> None:
        self._iterator = iterator
        self._reader = reader

    @property  # type: ignore[misc]
    def __class__(self) -> Any:  # what `isinstance` asks
        return type(self._iterator)

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._iterator, name)
        if name in ("close", "aclose"):
            return _Closing(value, self._reader)
        return value

    def __repr__(self) -> str:
        return repr(self._iterator)

    def __del__(self) -> None:
        self._reader.finish()


class _Closing:
    """The iterator's method that closes it."""

    def __init__(self, close: Any, reader: Reader) -> None:
        self._close = close
        self._reader = reader

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self._reader.finish()
        return self._close(*args, **kwargs)


class _ReadSync(_Read):
    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        try:
            with spans.current_is(self._reader.span):
                item = next(self._iterator)
        except StopIteration:
            self._reader.finish()
            raise
        except BaseException as error:
            self._reader.finish(error)
            raise
        self._reader.add(item)
        return item


class _ReadAsync(_Read):
    def __aiter__(self) -> AsyncIterator[Any]:
        return self

    async def __anext__(self) -> Any:
        try:
            with spans.current_is(self._reader.span):
                item = await anext(self._iterator)
        except StopAsyncIteration:
            self._reader.finish()
            raise
        except BaseException as error:
            self._reader.finish(error)
            raise
        self._reader.add(item)
        return item


class _ReadInside(_ReadSync):
    def __enter__(self) -> Any:
        entered = self._iterator.__enter__()
        return self if entered is self._iterator else entered

    def __exit__(self, *error: Any) -> Any:
        self._reader.finish()
        return self._iterator.__exit__(*error)


class _ReadAsyncInside(_ReadAsync):
    async def __aenter__(self) -> Any:
        entered = await self._iterator.__aenter__()
        return self if entered is self._iterator else entered

    async def __aexit__(self, *error: Any) -> Any:
        self._reader.finish()
        return await self._iterator.__aexit__(*error)


_KINDS: dict[tuple[bool, bool], type[_Read]] = {
    (False, False): _ReadSync,
    (False, True): _ReadInside,
    (True, False): _ReadAsync,
    (True, True): _ReadAsyncInside,
}
