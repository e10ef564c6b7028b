"""A listener: a bounded buffer between the one thread that reads the log and whoever iterates over it."""

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Literal, NamedTuple, Protocol, Self

from pubsub.events import Event

from .log_walk import Tip, Wish


@dataclass(frozen=True)
class Position:
    """A place in the log of all topics."""

    number: int


Start = Literal["latest", "earliest"] | int | Position
Overflow = Literal["catch_up", "drop_oldest"]


class Item(NamedTuple):
    position: int
    """In the log of all topics: where one that has seen this goes on is one further."""
    event: Event


Waiter = tuple[asyncio.AbstractEventLoop, "asyncio.Future[None]"]


class Follows(Protocol):
    """The thread that reads for listeners."""

    place: Tip | None

    def wake(self) -> None: ...

    def remove(self, listener: "Listener") -> None: ...


class Listener:
    """What :func:`pubsub.listen` returns: iterate it, by ``async for`` or ``for``, until it is closed.

    Events are shared by all listeners of the process: do not change their payloads.
    """

    def __init__(
        self,
        wish: Wish,
        *,
        start: Start,
        buffer: int,
        overflow: Overflow,
        follower: "Follows",
    ) -> None:
        self.wish = wish
        self.start = start
        self.position = 0
        """What is before it has been given, or is not wanted. Kept while it is behind the shared place."""
        self.buffer = buffer
        self.overflow = overflow
        self.dropped = 0
        """Events that came while the buffer was full, where it drops the oldest ones."""
        self.opened_at: Tip | None = None
        """Where the log ended when it was opened."""
        self.closed = False
        self.error: BaseException | None = None
        self.behind = True
        """Whether it reads the log from a place of its own, instead of following along with the others."""
        self._items: deque[Item] = deque()
        self._changed = threading.Condition()
        self._waiters: list[Waiter] = []
        self._follower = follower

    # For whoever iterates

    def get(self, timeout: float | None = None) -> Event | None:
        """The next event; none if there was none within so many seconds, or if it is closed."""
        item = self.get_item(timeout)
        return item.event if item else None

    def get_item(self, timeout: float | None = None) -> Item | None:
        """The same with its place in the log."""
        with self._changed:
            self._changed.wait_for(lambda: self._items or self.error or self.closed, timeout)
        return self._take()

    async def aget_item(self, timeout: float | None = None) -> Item | None:
        """The next event with its place in the log; none as in :meth:`get`."""
        if not self._items:
            await self._wait(lambda: bool(self._items or self.error or self.closed), timeout)
        return self._take()

    def close(self) -> None:
        """Ends it; who waits for an event is told that there are no more."""
        with self._changed:
            self.closed = True
            self._items.clear()
            self._changed.notify_all()
        wake(self.take_waiters())
        self._follower.remove(self)

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
        """A place up to which it has been given everything that it wants; none, if that cannot be told now."""
        place = self._follower.place  # first: what was given later is behind it
        return None if self.behind or self._items else place

    def _take(self) -> Item | None:
        with self._changed:
            item = self._items.popleft() if self._items else None
            has_room = len(self._items) == self.buffer // 2
        if item is None:
            self._raise()
        elif self.behind and has_room:
            self._follower.wake()
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
        """Takes an event in, and says who waits for it. False: it is full, and goes on later from this event on."""
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
    """Wakes those that wait in event loops, with one call to each loop."""
    by_loop: dict[asyncio.AbstractEventLoop, list[asyncio.Future[None]]] = {}
    for loop, future in waiters:
        by_loop.setdefault(loop, []).append(future)
    for loop, futures in by_loop.items():
        try:
            loop.call_soon_threadsafe(_resolve, futures)
        except RuntimeError:
            continue  # the loop has ended, and whoever waited in it


def _resolve(futures: Sequence["asyncio.Future[None]"]) -> None:
    for future in futures:
        if not future.done():
            future.set_result(None)
