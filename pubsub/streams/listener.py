"""A listener: a bounded buffer between the one thread that reads the log and the code that iterates over it."""

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Literal, NamedTuple, Protocol, Self

from pubsub.events import Event

from .scan import Interest, Tip


@dataclass(frozen=True)
class Position:
    """A position in the log of all topics."""

    number: int


Start = Literal["latest", "earliest"] | int | Position
Overflow = Literal["catch_up", "drop_oldest"]


class Item(NamedTuple):
    position: int
    """In the log of all topics. The next event is at a higher position."""
    event: Event


Waiter = tuple[asyncio.AbstractEventLoop, "asyncio.Future[None]"]


class Reader(Protocol):
    """What a listener needs from the thread that reads for it."""

    reached: Tip | None

    def wake(self) -> None: ...

    def remove(self, listener: "Listener") -> None: ...


class Listener:
    """What :func:`pubsub.listen` returns: iterate it, by ``async for`` or ``for``, until it is closed.

    Events are shared by all listeners of the process: do not change their payloads.
    """

    def __init__(
        self,
        interest: Interest,
        *,
        start: Start,
        buffer: int,
        overflow: Overflow,
        reader: Reader,
    ) -> None:
        self.interest = interest
        self.start = start
        self.position = 0
        """The listener has got every event of interest before this. Only kept while it is behind."""
        self.buffer = buffer
        self.overflow = overflow
        self.dropped = 0
        """How many events it has dropped because its buffer was full, with `overflow="drop_oldest"`."""
        self.opened_at: Tip | None = None
        """The tip when it was opened."""
        self.closed = False
        self.error: BaseException | None = None
        self.behind = True
        """Whether it reads from a position of its own, instead of the one that all current listeners share."""
        self._items: deque[Item] = deque()
        self._changed = threading.Condition()
        self._waiters: list[Waiter] = []
        self._reader = reader

    # For the code that iterates

    def get(self, timeout: float | None = None) -> Event | None:
        """The next event; None if there is none within this many seconds, or if the listener is closed."""
        item = self.get_item(timeout)
        return item.event if item else None

    def get_item(self, timeout: float | None = None) -> Item | None:
        """The same with its position in the log."""
        with self._changed:
            self._changed.wait_for(lambda: self._items or self.error or self.closed, timeout)
        return self._take()

    async def aget_item(self, timeout: float | None = None) -> Item | None:
        """The next event with its position in the log; None as in :meth:`get`."""
        if not self._items:
            await self._wait(lambda: bool(self._items or self.error or self.closed), timeout)
        return self._take()

    def close(self) -> None:
        """Closes the listener. Code that waits for an event gets None, and a loop ends."""
        with self._changed:
            self.closed = True
            self._items.clear()
            self._changed.notify_all()
        wake(self.take_waiters())
        self._reader.remove(self)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Event:
        event = self.get()
        if event is None:
            raise StopIteration
        return event

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event:
        item = await self.aget_item()
        if item is None:
            raise StopAsyncIteration
        return item.event

    def __enter__(self) -> Self:
        with self._changed:
            self._changed.wait_for(lambda: self.opened_at or self.error)
        self._raise()
        return self

    async def __aenter__(self) -> Self:
        await self._wait(lambda: bool(self.opened_at or self.error), None)
        self._raise()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def passed(self) -> Tip | None:
        """A tip up to which it has got every event of interest; None if that is unknown at the moment."""
        reached = self._reader.reached  # first: what was given later is behind it
        return None if self.behind or self._items else reached

    def _take(self) -> Item | None:
        with self._changed:
            item = self._items.popleft() if self._items else None
            has_room = len(self._items) == self.buffer // 2
        if item is None:
            self._raise()
        elif self.behind and has_room:
            self._reader.wake()
        return item

    def _raise(self) -> None:
        if self.error:
            self.close()
            raise self.error

    async def _wait(self, condition: Callable[[], bool], timeout: float | None) -> None:
        loop = asyncio.get_running_loop()
        deadline = None if timeout is None else loop.time() + timeout
        while not condition():
            waiter: Waiter = loop, loop.create_future()
            with self._changed:
                if condition():
                    return
                self._waiters.append(waiter)
            try:
                await asyncio.wait_for(waiter[1], None if deadline is None else deadline - loop.time())
            except TimeoutError:
                return
            finally:
                with self._changed:
                    if waiter in self._waiters:
                        self._waiters.remove(waiter)

    # For the thread that reads

    @property
    def has_room(self) -> bool:
        return len(self._items) <= self.buffer // 2

    def open_at(self, position: int, tip: Tip) -> None:
        with self._changed:
            self.position = position
            self.opened_at = tip
            self._changed.notify_all()

    def fail(self, error: BaseException) -> None:
        with self._changed:
            self.error = error
            self._changed.notify_all()

    def give(self, item: Item, waiters: list[Waiter]) -> bool:
        """Puts an event into the buffer, and adds to `waiters` those who wait for one. Returns False if the buffer is
        full; the listener then continues from this event later."""
        with self._changed:
            if self.closed or (self.behind and item.position < self.position):
                return True
            if len(self._items) >= self.buffer:
                if self.behind or self.overflow == "catch_up":
                    self.position = item.position
                    self.behind = True
                    return False
                self._items.popleft()
                self.dropped += 1
            self._items.append(item)
            self._changed.notify_all()
            waiters += self._waiters
            self._waiters.clear()
            return True

    def take_waiters(self) -> list[Waiter]:
        with self._changed:
            waiters, self._waiters = self._waiters, []
        return waiters


def wake(waiters: Sequence[Waiter]) -> None:
    """Ends waiting in event loops, with one call per loop."""
    by_loop: dict[asyncio.AbstractEventLoop, list[asyncio.Future[None]]] = {}
    for loop, future in waiters:
        by_loop.setdefault(loop, []).append(future)
    for loop, futures in by_loop.items():
        try:
            loop.call_soon_threadsafe(_resolve, futures)
        except RuntimeError:
            continue  # the loop has ended, and with it what waited there


def _resolve(futures: Sequence["asyncio.Future[None]"]) -> None:
    for future in futures:
        if not future.done():
            future.set_result(None)
