"""What people do with events that a group could not handle: find them, replay them, repair them, or give them up.

The unit is the publisher's transaction, as far as it went to one partition: its events failed together and are tried
together. Whatever is chosen, the rest of its transaction comes along. Each action is one statement that locks the rows
and asks for their state under the lock, so two people who act at once do it once; who did it and why is written to the
audit log in the same transaction.
"""

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from django.db import OperationalError, connections, transaction
from django.db.models import QuerySet
from django.utils.translation import gettext as _

from pubsub.db.errors import is_lock_not_available, is_transient, sqlstate
from pubsub.db.sql import load
from pubsub.db.transactions import in_atomic_block
from pubsub.errors import LettersInUse
from pubsub.models import DeadLetter, OperatorEvent, Topic

from .filter import LetterFilter, condition_of
from .parking import unpark

State = DeadLetter.State

BATCH_SIZE = 2000
"""Dead letters that are chosen at once, where there are many; the rest of their transactions comes along."""

COUNTING_MEMORY = "128MB"
"""With PostgreSQL's default a million letters are counted on disk, which takes twice as long."""

LOCK_TIMEOUT_S = 5
"""How long an operator waits for a worker that is trying the same events at this moment."""

TRIES = 10
"""Of a transaction that PostgreSQL has chosen to fail so that another one can go on."""


class Letter(NamedTuple):
    """A dead letter that was changed, or would be."""

    id: int
    group: str
    topic_id: int
    partition: int
    offset: int
    transaction_id: Any
    ordering_key: str | None
    state: str
    """The one before."""
    is_chosen: bool
    """It was chosen itself, and is not only of the same transaction as one that was."""


class Count(NamedTuple):
    """How much an action would change in one group's subscription to one topic."""

    group: str
    topic_id: int
    events: int
    transactions: int
    chosen: int
    """In all groups and topics."""
    last_id: int | None
    """Of the chosen ones, likewise."""


@dataclass(frozen=True, kw_only=True)
class Action:
    """Something that can be done with dead letters."""

    name: str
    states: tuple[str, ...]
    """What it applies to; letters in any other state stay as they are."""
    becomes: str


REPLAY = Action(name="replay", states=(State.DEAD, State.RETRYING), becomes=State.RETRYING)
DISCARD = Action(name="discard", states=(State.DEAD, State.RETRYING, State.PARKED), becomes=State.DISCARDED)
ACTIONS = {action.name: action for action in (REPLAY, DISCARD)}


def replay(ids: Iterable[int], *, using: str, actor: str = "", reason: str = "", dry_run: bool = False) -> list[Letter]:
    """Gives dead letters another attempt, now, with the rest of their transactions: also those that wait for their next
    one. Returns what changed.

    >>> replay([4711], using="default", reason="the mail server is up again")
    []
    """
    return apply(REPLAY, LetterFilter(ids=tuple(ids)), using=using, actor=actor, reason=reason, dry_run=dry_run)


def discard(
    ids: Iterable[int], *, using: str, actor: str = "", reason: str = "", dry_run: bool = False
) -> list[Letter]:
    """Gives dead letters up, with the rest of their transactions; what was parked behind them goes on."""
    return apply(DISCARD, LetterFilter(ids=tuple(ids)), using=using, actor=actor, reason=reason, dry_run=dry_run)


def apply(
    action: Action,
    letter_filter: LetterFilter,
    *,
    using: str,
    actor: str = "",
    reason: str = "",
    limit: int | None = None,
    after: int | None = None,
    dry_run: bool = False,
    visible: QuerySet[DeadLetter] | None = None,
    log: Callable[[list[Letter]], None] = lambda changed: None,
) -> list[Letter]:
    """Does it with all that match, in one transaction; `limit` chooses no more than so many, and from `after` on.

    `visible` are the letters from which the operator may choose, if not from all. `log` is called in that transaction,
    with what changed.
    """
    condition, values = condition_of(visible, using)
    given = {**_parameters(action, letter_filter, using), "limit": limit, "after": after, "shown": None, **values}
    if dry_run:
        return _ask("preview_letters", condition, given, using)
    for remaining in range(TRIES - 1, -1, -1):
        try:
            return _apply_once(action, letter_filter, condition, given, using, actor, reason, log)
        except OperationalError as error:
            if not is_transient(error) or in_atomic_block(connections[using]):
                raise
            if is_lock_not_available(error):
                raise LettersInUse(
                    _("Nothing was changed: a worker is trying some of these events at this moment. Try again shortly.")
                ) from error
            if sqlstate(error) not in ("40001", "40P01") or not remaining:
                raise
    raise AssertionError("unreachable")


def apply_in_batches(
    action: Action,
    letter_filter: LetterFilter,
    *,
    using: str,
    actor: str = "",
    reason: str = "",
    after: int = 0,
    batch_size: int | None = None,
    visible: QuerySet[DeadLetter] | None = None,
    log: Callable[[list[Letter]], None] = lambda changed: None,
) -> Iterator[list[Letter]]:
    """Does it with all that match, however many they are, a batch in a transaction each, the oldest first.

    It may be stopped and begun again: what is done is done, and is not found again.
    """
    nothing_found = 0
    while nothing_found < 2:  # a whole batch may have been handled by someone else
        changed = apply(
            action,
            letter_filter,
            using=using,
            actor=actor,
            reason=reason,
            limit=batch_size or BATCH_SIZE,
            after=after,
            visible=visible,
            log=log,
        )
        nothing_found = 0 if changed else nothing_found + 1
        after = max((letter.id for letter in changed if letter.is_chosen), default=after)
        if changed:
            yield changed


def count(
    action: Action, letter_filter: LetterFilter, *, using: str, visible: QuerySet[DeadLetter] | None = None
) -> list[Count]:
    """What the action would change, exactly. Reads all that match."""
    condition, values = condition_of(visible, using)
    given = {**_parameters(action, letter_filter, using), "limit": None, "after": None, **values}
    with transaction.atomic(using=using), connections[using].cursor() as cursor:
        cursor.execute("SELECT set_config('work_mem', %s, true)", [COUNTING_MEMORY])
        chosen = load("dead_letters/chosen_letters", visible=condition)
        cursor.execute(chosen + load("dead_letters/count_letters"), given)
        return [Count(*row) for row in cursor.fetchall()]


def preview(action: Action, letter_filter: LetterFilter, *, using: str, shown: int | None = None) -> list[Letter]:
    """The letters that the action would change, the first ones of them."""
    parameters = {**_parameters(action, letter_filter, using), "limit": shown, "after": None, "shown": shown}
    return _ask("preview_letters", "true", parameters, using)


def _parameters(action: Action, letter_filter: LetterFilter, using: str) -> dict[str, Any]:
    states = [state for state in action.states if letter_filter.state in (None, state)]
    return {
        **letter_filter.parameters(using),
        "states": list(action.states),
        "chosen_states": states,
        "becomes": action.becomes,
    }


def _ask(statement: str, visible: str, parameters: dict[str, Any], using: str) -> list[Letter]:
    with connections[using].cursor() as cursor:
        chosen = load("dead_letters/chosen_letters", visible=visible)
        cursor.execute(chosen + load(f"dead_letters/{statement}"), parameters)
        return [Letter(*row) for row in cursor.fetchall()]


def _apply_once(
    action: Action,
    letter_filter: LetterFilter,
    visible: str,
    parameters: dict[str, Any],
    using: str,
    actor: str,
    reason: str,
    log: Callable[[list[Letter]], None],
) -> list[Letter]:
    is_outermost = not in_atomic_block(connections[using])
    with transaction.atomic(using=using), connections[using].cursor() as cursor:
        if is_outermost:
            cursor.execute("SELECT set_config('lock_timeout', %s, true)", [f"{int(LOCK_TIMEOUT_S * 1000)}ms"])
        changed = sorted(_ask("change_state", visible, parameters, using))
        if action is DISCARD:
            _unpark(cursor, changed)
        _write_down(action, letter_filter, changed, using, actor, reason)
        log(changed)
    return changed


def _unpark(cursor: Any, discarded: Sequence[Letter]) -> None:
    """What was parked behind events that are given up goes on, in its order."""
    keys: dict[tuple[str, int], set[str]] = {}
    for letter in discarded:
        if letter.ordering_key is not None:
            keys.setdefault((letter.group, letter.topic_id), set()).add(letter.ordering_key)
    for (group, topic_id), blocked in sorted(keys.items()):
        unpark(cursor, group, topic_id, sorted(blocked))


def _write_down(
    action: Action, letter_filter: LetterFilter, changed: Sequence[Letter], using: str, actor: str, reason: str
) -> None:
    by_place = sorted(changed, key=lambda letter: (letter.topic_id, letter.group))
    names = topic_names({letter.topic_id for letter in changed}, using=using)
    OperatorEvent.objects.using(using).bulk_create(
        OperatorEvent(
            actor=actor,
            action=f"{action.name}-dead-letters",
            topic=names[topic_id],
            group_id=group,
            reason=reason,
            before={"states": sorted({letter.state for letter in letters})},
            after={
                "state": action.becomes,
                "events": len(letters),
                "transactions": len({letter.transaction_id for letter in letters}),
                "chosen": letter_filter.described,
                "ids": [letter.id for letter in letters],
            },
        )
        for (topic_id, group), letters in (
            (place, list(letters))
            for place, letters in itertools.groupby(by_place, key=lambda letter: (letter.topic_id, letter.group))
        )
    )


def topic_names(ids: Iterable[int], *, using: str) -> dict[int, str]:
    """Names of topics by their ids."""
    return dict(Topic.objects.using(using).filter(pk__in=set(ids)).values_list("pk", "name"))
