"""Consuming with a lease: handlers run outside any transaction, for as long as they like.

A worker claims the next events of a partition (a row in `consumer_claims`), handles them, and acknowledges: the claim
goes and the cursor moves, in one statement. While it works, its claims are renewed. One that falls silent, or whose
connection drops, is taken over by another worker, one publisher's transaction at a time, each attempt counted. Claims
have the cursor's epoch: an acknowledgement that comes too late finds another one, and changes nothing.
"""

import itertools
import logging
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from django.db import Error, connections, transaction

from pubsub.conf import conf
from pubsub.delivery import Delivery
from pubsub.errors import LeaseLost, WorkerDied
from pubsub.sql import load

from . import setting_aside
from .claims import FoundClaim, find_claim, forget_claim
from .failures import is_the_handlers
from .guarding import died, most_attempts, settle, settle_what_is_left
from .handling import check_left_outside, connect_anew, handle, was_closed
from .holding import lock_cursor
from .leases import Lease, LeaseKeeper
from .reading import BatchOfEntries, Entry, Place, PublishedTogether, Reader, by_transaction
from .transactional import Batch

logger = logging.getLogger("pubsub.leasing")


@dataclass(kw_only=True)
class Leaseholder:
    """Takes, renews and gives back the leases of one process. Start it to have them renewed."""

    using: str
    worker_id: str
    lease_s: float = field(default_factory=lambda: conf().lease_s)
    _keeper: LeaseKeeper = field(init=False)

    def __post_init__(self) -> None:
        self._keeper = LeaseKeeper(using=self.using, lease_s=self.lease_s)

    def start(self) -> None:
        self._keeper.start()

    def stop(self) -> None:
        self._keeper.stop()

    def consume(self, place: Place, batch_size: int) -> Batch:
        """Handles the next batch of a partition; nothing where another worker has it."""
        self._prepare(place)
        lease = self._take(place, batch_size)
        if lease is None:
            return Batch()
        try:
            done = self._handle(lease, batch_size)
        except LeaseLost as error:
            logger.warning("%s", error, extra=place.facts)
            self._settle_attempt(lease)
            return Batch()
        finally:
            self._keeper.held.pop(place.key, None)
        return done

    def _prepare(self, place: Place) -> None:
        settle_what_is_left(place)
        self._keeper.wait_until_seen()

    def _take(self, place: Place, batch_size: int) -> Lease | None:
        lease = None
        try:
            with transaction.atomic(using=place.using), connections[place.using].cursor() as cursor:
                lease = self._claim_next(cursor, place, batch_size)
        except Error:
            if lease and place.declared.delivery is not Delivery.AT_MOST_ONCE:
                # It may have been taken: the answer to the COMMIT is what got lost.
                self._settle_attempt(lease)
            raise
        if lease:
            self._keeper.held[place.key] = lease
        return lease

    def _claim_next(self, cursor: Any, place: Place, batch_size: int) -> Lease | None:
        at_most_once = place.declared.delivery is Delivery.AT_MOST_ONCE
        held = lock_cursor(cursor, place)
        claim = find_claim(cursor, place, self.worker_id) if held else None
        if held is None or (claim and claim.is_alive):
            return None
        if claim and at_most_once:
            self._give_up(cursor, place, claim)
            claim = None
        if place.declared.on_failure == "stop" and setting_aside.has_open(place):
            return None
        # What a worker died of is found by going on one publisher's transaction at a time.
        attempt = claim.attempts + 1 if claim and claim.first_offset >= held.next_offset else 1
        most = place.chunk(batch_size) - at_most_once
        reader = Reader(place, held.next_position, most)
        entries = list(itertools.islice(BatchOfEntries(reader, 1 if claim else batch_size), most))
        if not entries:
            forget_claim(cursor, place)
            return None
        lease = Lease(
            place=place,
            epoch=held.epoch + 1,
            worker_id=self.worker_id,
            next_offset=held.next_offset,
            attempt=attempt,
            entries=entries,
            is_whole=at_most_once or len(entries) < most,
            runs_out_at=time.monotonic() + self.lease_s,
            renew=self._keeper.renew,
            taken_over=claim is not None,
        )
        last = max(entries[-1].offset, claim.last_offset if claim else 0)
        self._claim(cursor, lease, first=entries[0].offset, last=last)
        if at_most_once:
            self._move(cursor, lease, entries[-1], len(entries), keep=True, keep_range=True)
        return lease

    def _handle(self, lease: Lease, batch_size: int) -> Batch:
        place = lease.place
        entries = lease.all_entries()
        if lease.attempt > most_attempts(place):
            return self._bury_what_kills(lease, entries)
        if place.declared.batch and not lease.taken_over:
            batch = BatchOfEntries(entries, batch_size)
            try:
                handle(place, batch, at_once=batch_size, attempt=lease.attempt)
                check_left_outside(place.using)
            except LeaseLost:
                raise
            except BaseException as error:
                at_most_once = place.declared.delivery is Delivery.AT_MOST_ONCE
                if not (_is_the_handlers(error, place) or (at_most_once and isinstance(error, Exception))):
                    self._break_off(lease, None, 0)
                    raise
                if at_most_once:
                    return self._bury_all(lease, error)
                connect_anew(place.using)
                logger.debug("a batch of %s failed; trying its transactions one by one", place, exc_info=True)
                entries = lease.all_entries()
            else:
                self._conclude(lease, batch.last, batch.passed)
                return Batch(passed=batch.passed, last=batch.last)
        return self._handle_one_by_one(lease, entries, batch_size)

    def _handle_one_by_one(self, lease: Lease, entries: Iterator[Entry], at_once: int) -> Batch:
        place = lease.place
        blocked: set[str] = set()
        passed = unacknowledged = failed = 0
        last: Entry | None = None
        at_most_once = place.declared.delivery is Delivery.AT_MOST_ONCE
        for together in by_transaction(entries):
            try:
                self._park_before_it_begins(lease, together, blocked)
                handle(
                    place,
                    setting_aside.unblocked(place, together, blocked),
                    at_once=at_once,
                    attempt=lease.attempt if last is None else 1,
                )
                check_left_outside(place.using)
            except LeaseLost:
                raise
            except BaseException as error:
                # There is no second time, whatever the reason.
                if not (_is_the_handlers(error, place) or (at_most_once and isinstance(error, Exception))):
                    self._break_off(lease, last, unacknowledged)
                    raise
                connect_anew(place.using)
                failed += self._bury(lease, together, error, blocked, unacknowledged)
                unacknowledged = 0
            else:
                unacknowledged += together.count
            passed += together.count
            last = together.last
            if failed and place.declared.on_failure == "stop":
                break
        self._conclude(lease, last, unacknowledged)
        return Batch(passed=passed, failed=failed, last=last)

    def _park_before_it_begins(self, lease: Lease, together: PublishedTogether, blocked: set[str]) -> None:
        """What a handler does outside a transaction cannot be undone when a later event turns out to have to wait."""
        if lease.place.declared.on_failure == "park_key":
            of_it = (entry for entry in lease.entries if entry.transaction_id == together.transaction_id)
            for _ in setting_aside.unblocked(lease.place, of_it, blocked):
                continue

    def _bury_all(self, lease: Lease, error: BaseException) -> Batch:
        """Sets aside all that was in hand, after one call with all of it."""
        place, first, last = lease.place, lease.entries[0], lease.entries[-1]
        connect_anew(place.using)
        with transaction.atomic(using=place.using):
            failed, *_ = setting_aside.bury_range(place, first.position, last.position, error, attempts=lease.attempt)
        logger.error(
            "%s: %s failed from offset %d to %d (%s); they are moved to the dead letters",
            place,
            place.declared.handler_name,
            first.offset,
            last.offset,
            type(error).__name__,
            extra={**place.facts, "offset": first.offset, "exception_class": type(error).__qualname__},
        )
        self._conclude(lease, last, 0)
        return Batch(passed=len(lease.entries), failed=failed, last=last)

    def _bury(
        self, lease: Lease, together: PublishedTogether, error: BaseException, blocked: set[str], before: int
    ) -> int:
        """Sets a failed transaction aside and passes it, with what was handled before it, if the lease still holds."""
        place = lease.place
        with transaction.atomic(using=place.using), connections[place.using].cursor() as cursor:
            buried = setting_aside.bury(place, together, error, attempts=lease.attempt, blocked=blocked)
            last = together.ends[1]
            if place.declared.delivery is not Delivery.AT_MOST_ONCE:
                self._move(cursor, lease, last, before + together.count, keep=True)
            elif place.declared.on_failure == "stop":
                # The place has moved already: it goes back to what nobody has begun with.
                behind = sum(entry.position > last.position for entry in lease.entries)
                self._move(cursor, lease, last, -behind, keep=False)
        return buried

    def _bury_what_kills(self, lease: Lease, entries: Iterator[Entry]) -> Batch:
        """The first transaction with something for the group; those before it are passed."""
        passed = unacknowledged = failed = 0
        last: Entry | None = None
        for together in by_transaction(entries):
            if any(entry.is_mine for entry in together):
                failed += self._bury(lease, together, died(lease.attempt - 1), set(), unacknowledged)
                unacknowledged = 0
            else:
                unacknowledged += together.count
            passed += together.count
            last = together.last
        self._conclude(lease, last, unacknowledged)
        return Batch(passed=passed, failed=failed, last=last)

    def _conclude(self, lease: Lease, last: Entry | None, count: int) -> None:
        """Acknowledges what was handled, in whatever state the handlers have left the connection."""
        try:
            self._acknowledge(lease, last, count)
        except LeaseLost:
            raise
        except Exception:
            logger.debug("%s: acknowledging on another connection", lease.place, exc_info=True)
            settle(lease.place, lambda: self._acknowledge_late(lease, last, count))

    def _break_off(self, lease: Lease, last: Entry | None, count: int) -> None:
        """Something has failed that is no event's fault, or the process ends: the rest is for whoever comes next."""
        if lease.place.declared.delivery is Delivery.AT_MOST_ONCE:
            return  # what was in hand becomes dead letters
        settle(lease.place, lambda: self._acknowledge_late(lease, last, count))

    def _acknowledge_late(self, lease: Lease, last: Entry | None, count: int) -> None:
        try:
            self._acknowledge(lease, last, count)
        except LeaseLost as error:
            logger.warning("%s", error, extra=lease.place.facts)
            self._take_attempt_back(lease)

    def _acknowledge(self, lease: Lease, last: Entry | None, count: int) -> None:
        """Gives the lease back, with what was handled."""
        if last is None:
            self._take_attempt_back(lease)
            return
        with connections[lease.place.using].cursor() as cursor:
            if lease.place.declared.delivery is Delivery.AT_MOST_ONCE:
                cursor.execute(load("drop_claim"), lease.parameters)
            else:
                self._move(cursor, lease, last, count, keep=False)

    def _take_attempt_back(self, lease: Lease) -> None:
        """Nobody has died: whoever holds the lease now, this attempt at what comes next does not count. Not before the
        handler has come to its end: until then it may still be what this worker dies of."""
        with connections[lease.place.using].cursor() as cursor:
            cursor.execute(load("give_claim_back"), lease.parameters)

    def _settle_attempt(self, lease: Lease) -> None:
        settle(lease.place, lambda: self._take_attempt_back(lease))

    def _move(
        self, cursor: Any, lease: Lease, last: Entry, count: int, *, keep: bool, keep_range: bool = False
    ) -> None:
        cursor.execute(
            load("acknowledge"),
            {
                **lease.parameters,
                "next_offset": last.offset + 1,
                "next_position": last.position + 1,
                "count": count,
                "keep": keep,
                "keep_range": keep_range,
            },
        )
        if cursor.fetchone() != (1,):
            raise LeaseLost(
                f"{lease.place}: the lease ran out and another worker has taken over; what was handled up to offset "
                f"{last.offset} is not acknowledged."
            )
        lease.next_offset = last.offset + 1

    def _claim(self, cursor: Any, lease: Lease, *, first: int, last: int) -> None:
        cursor.execute(
            load("take_claim"),
            {
                **lease.parameters,
                "first_offset": first,
                "last_offset": last,
                "lock_key": self._keeper.lock_key,
                "attempts": lease.attempt,
                "lease_s": self.lease_s,
            },
        )

    def _give_up(self, cursor: Any, place: Place, claim: FoundClaim) -> None:
        """What a dead worker had in hand may have been handled. It is not handled again; people may look at it."""
        cursor.execute(load("positions_of_offsets"), {**place.parameters, **claim._asdict()})
        first, last = cursor.fetchone()
        if first is not None:
            setting_aside.bury_range(
                place,
                first,
                last,
                WorkerDied(
                    "The worker died, or was killed, while it had this event in hand. It may have been handled."
                ),
                attempts=1,
            )
        forget_claim(cursor, place)

    def retry_due(self, place: Place, *, at_once: int) -> int:
        """Tries the transaction again that has waited longest for it. Returns how many events were tried."""
        self._prepare(place)
        due = None
        try:
            with transaction.atomic(using=place.using), connections[place.using].cursor() as cursor:
                due = self._claim_due(cursor, place)
        except Error:
            if due:
                # It may have been taken: the answer to the COMMIT is what got lost.
                settle(place, partial(self._end_retry, *due, counts=False))
            raise
        if due is None:
            return 0
        lease, letters = due
        self._keeper.held[place.key] = lease
        error: BaseException | None = None
        try:
            handle(place, lease.all_entries(), at_once=at_once, attempt=lease.attempt)
            check_left_outside(place.using)
        except LeaseLost as lost:
            logger.warning("%s", lost, extra=place.facts)
            settle(place, partial(self._end_retry, *due, counts=False))
            return 0
        except BaseException as raised:
            if not _is_the_handlers(raised, place):
                settle(place, partial(self._end_retry, *due, counts=False))
                raise
            error = raised
            connect_anew(place.using)
        finally:
            self._keeper.held.pop(place.key, None)
        try:
            self._end_retry(*due, error)
        except Exception:
            logger.debug("%s: noting what became of a retry on another connection", place, exc_info=True)
            settle(place, partial(self._end_retry, *due, error))
        return len(letters)

    def _claim_due(self, cursor: Any, place: Place) -> tuple[Lease, setting_aside.Letters] | None:
        held = lock_cursor(cursor, place)
        claim = find_claim(cursor, place, self.worker_id) if held else None
        if held is None or (claim and claim.is_alive):
            return None
        if claim and place.declared.delivery is Delivery.AT_MOST_ONCE:
            self._give_up(cursor, place, claim)
        elif claim and claim.first_offset >= held.next_offset and place.declared.on_failure != "stop":
            return None  # somebody has died here: that comes first
        letters = setting_aside.expect_the_worst(cursor, place)
        if not letters:
            return None
        first, last = letters.ends
        lease = Lease(
            place=place,
            epoch=held.epoch + 1,
            worker_id=self.worker_id,
            next_offset=held.next_offset,
            attempt=letters.attempts + 1,
            entries=[],
            letters=letters,
            is_whole=True,
            runs_out_at=time.monotonic() + self.lease_s,
            renew=self._keeper.renew,
        )
        self._claim(cursor, lease, first=first.offset, last=last.offset)
        return lease, letters

    def _end_retry(
        self, lease: Lease, letters: setting_aside.Letters, error: BaseException | None = None, *, counts: bool = True
    ) -> None:
        place = lease.place
        ids = letters.ids
        with transaction.atomic(using=place.using), connections[place.using].cursor() as cursor:
            cursor.execute(load("drop_claim"), lease.parameters)
            if counts and not cursor.rowcount:
                logger.warning(
                    "%s: another worker has taken over; this attempt does not count", place, extra=place.facts
                )
                counts = False
            if not counts:
                setting_aside.take_worst_back(place, ids, lease.attempt)
            elif still_there := setting_aside.lock_due(cursor, place, ids):
                if error:
                    setting_aside.bury_again(cursor, place, still_there, error, lease.attempt)
                else:
                    setting_aside.resolve(cursor, place, still_there, lease.attempt)


def _is_the_handlers(error: BaseException, place: Place) -> bool:
    return is_the_handlers(error) or (isinstance(error, Exception) and was_closed(place.using))
