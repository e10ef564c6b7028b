"""A listener: a bounded buffer between the one thread that reads the log and the code that iterates over it."""

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Literal, Protocol, Self

from pubsub.errors import UnreadableEvent
from pubsub.events import Event

from .scan import Interest, Item, Tip
from .start import Start

Overflow = Literal["catch_up", "drop_oldest"]

Waiter = tuple[asyncio.AbstractEventLoop, "asyncio.Future[None]"]


class Reader(Protocol):
    """What a listener needs from the thread that reads for it."""

    reached: Tip | None

    def wake(self) -> None: ...

    def remove(self, listener: "Listener") -> None: ...


class Listener:
    """What :func:`pubsub.listen` returns: iterate it, by ``async for`` or ``for``, until it is closed.

    Events are shared by all listeners of the process: do not change their payloads. For one that Python cannot
    represent, UnreadableEvent is raised instead; the next call goes on behind it.
    """

    def __init__(
        self,
        interest: Interest,
        *,
        start: Start,
        buffer: int,
        buffer_bytes: int,
        overflow: Overflow,
        reader: Reader,
    ) -> None:
        self.interest = interest
        self.start = start
        self.position = 0
        """The listener has got every event of interest before this. Only kept while it is behind."""
        self.buffer = buffer
        self.buffer_bytes = buffer_bytes
        self.overflow = overflow
        self.dropped = 0
        """How many events it has dropped because its buffer was full, with `overflow="drop_oldest"`."""
        self.opened_at: Tip | None = None
        """The tip when it was opened."""
        self.closed = False
        self.error: BaseException | None = None
        self.behind = True
        """Whether it reads from a position of its own, instead of the one that all current listeners share."""
        self.reached: Tip | None = None
        """While it is behind: the last tip up to which it has been given every event of interest."""
        self.served = 0
        """When it was last read for while it was behind, as a number that grows."""
        self._items: deque[Item] = deque()
        self._size = 0
        """Of the items, in bytes of memory, about."""
        self._changed = threading.Condition()
        self._waiters: list[Waiter] = []
        self._reader = reader

    # For the code that iterates

    def get(self, timeout: float | None = None) -> Event | None:
        """The next event; None if there is none within this many seconds, or if the listener is closed."""
        item = self.get_item(timeout)
        return event_of(item) if item else None

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
            self._size = 0
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
        return event_of(item)

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
        """A tip up to which it has been given every event of interest; None if that cannot be said now."""
        reached = self.reached if self.behind else self._reader.reached  # first: what was given later is behind it
        return None if self._items else reached

    def _take(self) -> Item | None:
        with self._changed:
            had_room = self.has_room
            item = self._items.popleft() if self._items else None
            self._size -= item.size if item else 0
        if item is None:
            self._raise()
        elif self.behind and self.has_room and not had_room:
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
    def _drops(self) -> bool:
        """Whether it is so far that it loses the oldest event rather than wait: not while it reads the past."""
        return self.overflow == "drop_oldest" and (not self.behind or self.reached is not None)

    @property
    def has_room(self) -> bool:
        return self._drops or (len(self._items) <= self.buffer // 2 and self._size <= self.buffer_bytes // 2)

    def _fits(self, item: Item) -> bool:
        """One event always fits, however large it is."""
        return not self._items or (len(self._items) < self.buffer and self._size + item.size <= self.buffer_bytes)

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
            if not self._fits(item):
                if not self._drops:
                    self.position = item.position
                    self.reached = None
                    self.behind = True
                    return False
                while not self._fits(item):
                    self._size -= self._items.popleft().size
                    self.dropped += 1
            self._items.append(item)
            self._size += item.size
            self._changed.notify_all()
            waiters += self._waiters
            self._waiters.clear()
            return True

    def take_waiters(self) -> list[Waiter]:
        with self._changed:
            waiters, self._waiters = self._waiters, []
        return waiters


def event_of(item: Item) -> Event:
    if item.event is None:
        raise UnreadableEvent(
            f'The event at offset {item.offset} of topic "{item.topic}" cannot be represented in Python '
            f"({item.error}). Go on with the next one."
        )
    return item.event


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
