"""Sessions of a worker's threads: in a partition, or in several of a group that have little to do each."""

import logging
import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from typing import Any

from django.db import connections

from pubsub.consuming.failing import Interrupted, interrupted_behind
from pubsub.consuming.find_work import Work
from pubsub.consuming.mode import Allowance, Mode, Outcome, Together
from pubsub.db.errors import is_transient
from pubsub.dead_letters.failure import loggable
from pubsub.delivery import Delivery
from pubsub.signals import batch_handled, tell
from pubsub.subscriptions.task import PartitionTask

from .in_hand import InHand

logger = logging.getLogger(__name__)

SESSION_S = 0.1
"""How long a worker goes on reading in a partition with a backlog before it looks at the others. Then it uses up what
it has read, for as long again at most."""

TOGETHER_S = 0.02
"""How long what is handled in several partitions at once may take, by how long it took before: what takes longer is for
the other workers as well."""

Share = Sequence[Work]
"""What one session works on: partitions of one group."""


class Sessions:
    """What the threads of a worker share while they work, and what has come of it."""

    def __init__(
        self,
        modes: Mapping[Delivery, Mode],
        *,
        using: str,
        worker_id: str,
        batch_size: int,
        rest_s: float,
        threads: int,
        drain: bool,
        max_events: int | None,
        stop: Callable[[], None],
        show_life: Callable[[], None] | None,
    ) -> None:
        self.in_hand = InHand(threads)
        self.passed = 0
        self.failed = 0
        self.retried = 0
        self.stopping = threading.Event()
        self._modes = modes
        self._using = using
        self._worker_id = worker_id
        self._batch_size = batch_size
        self._rest_s = rest_s
        """How long a partition is left alone that has failed once."""
        self._drain = drain
        self._max_events = max_events
        self._stop = stop
        self._show_life = show_life
        self._counters = threading.Lock()
        self._paces: dict[tuple[int, str], float] = {}
        """Seconds that an event took last, by topic and group."""

    def plan(self, found: Iterable[Work]) -> Iterator[Share]:
        """The work that there is, in its order. What may share a transaction, and is little, comes at once."""
        free = [work for work in found if not work.is_leased and not work.is_resting]
        order: dict[tuple[int, int], int] = {}
        for work in free:
            order.setdefault(work.task.key[1:], len(order))
        free.sort(key=lambda work: order[work.task.key[1:]])  # so that what one group has read is at hand for the next
        joining: dict[tuple[int, str], deque[Work]] = defaultdict(deque)
        for work in free:
            if self._may_join(work):
                joining[work.task.topic_id, work.task.declared.group].append(work)
        planned: set[int] = set()
        for work in free:
            if id(work) in planned:
                continue
            share, events = [work], work.events
            others, most = joining[work.task.topic_id, work.task.declared.group], self._at_once(work)
            if others and others[0] is work:
                others.popleft()
                while others and events < most:
                    share.append(others.popleft())
                    events += share[-1].events
            planned.update(map(id, share))
            yield share

    def take(self, share: Share) -> Share:
        """Takes a share in hand; the part of it, where a thread has the rest."""
        taken = set(self.in_hand.take([work.task.key for work in share]))
        return [work for work in share if work.task.key in taken]

    def took_long_since(self, begun: float) -> bool:
        return time.monotonic() > begun + SESSION_S

    def work_on_moved(self, share: Share) -> bool:
        """Handles what a pass has moved, without looking first. Returns whether that was all; if not, looking for work
        tells what is left."""
        if not (self._may_join(share[0]) and self._at_once(share[0]) >= len(share)):
            return False
        taken = self.take(share)
        together = self._work_on_several(taken) if taken else None
        if together is None:
            for work in taken:
                self.in_hand.release(work.task.key)
        return bool(together and together.is_all and len(taken) == len(share))

    def work_on(self, share: Share) -> bool:
        """Returns whether there was anything to do."""
        if len(share) > 1 and (together := self._work_on_several(share)):
            return bool(together.handled)
        worked = False
        for work in share:
            if worked and self.stopping.is_set():
                self.in_hand.release(work.task.key)
            else:
                worked = self._work_on_one(work) or worked
        return worked

    def _work_on_several(self, share: Share) -> Together | None:
        """None if each is to be worked on by itself, because something has failed, or may."""
        mode, begun = self._modes[share[0].task.declared.delivery], time.monotonic()
        allowance = self._allowance(begun)
        allowance.size = max(1, self._at_once(share[0]))
        try:
            together = mode.work_on_several(share, allowance)
        except Exception as error:
            logger.debug("%s: %s; each partition by itself", share[0].task, error)
            return None
        except BaseException:
            for work in share:
                self.in_hand.release(work.task.key)
            raise
        if together is None:
            return None
        seconds = (time.monotonic() - begun) / max(len(together.handled), 1)
        for work in share:
            self.in_hand.release(work.task.key)
        for task, outcome in together.handled:
            self._count(task, outcome, allowance)
        if self._show_life:
            self._show_life()
        for task, outcome in together.handled:
            self._tell(task, [(outcome, seconds)])
        return together

    def _may_join(self, work: Work) -> bool:
        return self._modes[work.task.declared.delivery].may_join(work)

    def _at_once(self, work: Work) -> int:
        """How many events of a group one transaction handles."""
        pace = self._paces.get((work.task.topic_id, work.task.declared.group))
        return 0 if pace is None else min(self._next_size(), int(TOGETHER_S / max(pace, 1e-9)))

    def _work_on_one(self, work: Work) -> bool:
        """Returns whether there was anything to do. What fails here, though no event is to blame, is left alone for a
        while: other partitions go on."""
        task = work.task
        mode = self._modes[task.declared.delivery]
        done: list[tuple[Outcome, float]] = []
        begun = time.monotonic()
        allowance = self._allowance(begun)
        try:
            with closing(mode.work_on(work, allowance)) as outcomes:
                for outcome in outcomes:
                    done.append((outcome, time.monotonic() - begun))
                    self._count(task, outcome, allowance)
                    if self.stopping.is_set():
                        break
                    begun = time.monotonic()
        except Exception as raised:
            error = interrupted_behind(raised)
            rest_s = self.in_hand.rest(task.key, self._rest_s)
            if self._drain and not is_transient(error):
                raise
            facts = error.facts if isinstance(error, Interrupted) else task.facts
            self.give_up_connection(error, f"{task} rests for {rest_s:.1f} s", facts)
            mode.broke_off(work, error)
            return False
        except BaseException:
            self.in_hand.release(task.key)
            raise
        else:
            self.in_hand.release(task.key)
            return bool(done and (done[0][0].passed or done[0][0].retried))
        finally:
            if self._show_life:
                self._show_life()
            if batch_handled.receivers or logger.isEnabledFor(
                logging.DEBUG
            ):  # now that no transaction is open in which a receiver could be
                self._tell(task, done)

    def _allowance(self, begun: float) -> Allowance:
        def may_go_on(passed: int, reads: bool) -> bool:
            is_enough = self._max_events and self.passed + passed >= self._max_events
            in_time = time.monotonic() - begun < (SESSION_S if reads else 2 * SESSION_S)
            return in_time and not is_enough and not self.stopping.is_set()

        return Allowance(batch_size=self._batch_size, size=self._next_size(), may_go_on=may_go_on)

    def _next_size(self) -> int:
        if not self._max_events:
            return self._batch_size
        return max(1, min(self._batch_size, self._max_events - self.passed))

    def _count(self, task: PartitionTask, outcome: Outcome, allowance: Allowance) -> None:
        with self._counters:
            self.passed += outcome.passed
            if outcome.handling_s is not None and outcome.passed:
                self._paces[task.topic_id, task.declared.group] = outcome.handling_s / outcome.passed
            self.failed += outcome.failed
            self.retried += outcome.retried
            allowance.size = self._next_size()
            if self._max_events and self.passed >= self._max_events:
                self._stop()

    def _tell(self, task: PartitionTask, done: Sequence[tuple[Outcome, float]]) -> None:
        for outcome, seconds in done:
            facts: dict[str, Any] = {
                **task.facts,
                "using": self._using,
                "passed": outcome.passed,
                "failed": outcome.failed,
                "seconds": seconds,
                "worker_id": self._worker_id,
            }
            if outcome.last:
                logger.debug(
                    "%s: passed %d events, now behind offset %d",
                    task,
                    outcome.passed,
                    outcome.last.offset,
                    extra={**facts, "offset": outcome.last.offset},
                )
            if batch_handled.receivers and (outcome.passed or outcome.retried):
                tell(batch_handled, **facts)

    def give_up_connection(self, error: Exception, what_then: str, facts: dict[str, Any] | None = None) -> None:
        shown = None if is_transient(error) else loggable(error, is_ours=True)
        logger.warning("%s: %s", what_then, error, exc_info=shown, extra=facts)
        connections[self._using].close()
