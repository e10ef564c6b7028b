"""What people do with events that a group could not handle: find them, replay them, repair them, or give them up.

The unit is the publisher's transaction, as far as it went to one partition: its events failed together and are tried
together. Whatever is chosen, the rest of its transaction comes along. Each verb is one statement that locks the rows
and asks for their state under the lock, so two people who press at once do it once; who did it and why is written down
in `operator_events`, in the same transaction.
"""

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from django.db import OperationalError, connections, transaction
from django.utils.translation import gettext as _

from pubsub.consuming.failures import is_transient
from pubsub.errors import LettersInUse
from pubsub.models import DeadLetter, OperatorEvent, Topic
from pubsub.sql import load

from .choosing import Matching
from .releasing import release_followers

State = DeadLetter.State

BATCH_SIZE = 2000
"""Dead letters that are chosen at once, where there are many; the rest of their transactions comes along."""

COUNTING_MEMORY = "128MB"
"""With PostgreSQL's default a million letters are counted on disk, which takes twice as long."""

LOCK_TIMEOUT_S = 5
"""How long somebody waits for a worker that is trying the same events at this moment."""

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
    """How much a verb would change in one group's subscription to one topic."""

    group: str
    topic_id: int
    events: int
    transactions: int
    chosen: int
    """In all groups and topics."""
    last_id: int | None
    """Of the chosen ones, likewise."""


@dataclass(frozen=True, kw_only=True)
class Verb:
    """Something that can be done with dead letters."""

    name: str
    states: tuple[str, ...]
    """What it applies to; letters in any other state stay as they are."""
    becomes: str


REPLAY = Verb(name="replay", states=(State.DEAD,), becomes=State.RETRYING)
DISCARD = Verb(name="discard", states=(State.DEAD, State.RETRYING, State.PARKED), becomes=State.DISCARDED)
VERBS = {verb.name: verb for verb in (REPLAY, DISCARD)}


def replay(ids: Iterable[int], using: str, *, actor: str = "", reason: str = "", dry_run: bool = False) -> list[Letter]:
    """Gives dead letters another attempt, now, with the rest of their transactions. Returns what changed.

    >>> replay([4711], "default", reason="the mail server is up again")
    []
    """
    return act(REPLAY, Matching(ids=tuple(ids)), using, actor=actor, reason=reason, dry_run=dry_run)


def discard(
    ids: Iterable[int], using: str, *, actor: str = "", reason: str = "", dry_run: bool = False
) -> list[Letter]:
    """Gives dead letters up, with the rest of their transactions; what was parked behind them goes on."""
    return act(DISCARD, Matching(ids=tuple(ids)), using, actor=actor, reason=reason, dry_run=dry_run)


def act(
    verb: Verb,
    matching: Matching,
    using: str,
    *,
    actor: str = "",
    reason: str = "",
    limit: int | None = None,
    after: int | None = None,
    dry_run: bool = False,
    log: Callable[[list[Letter]], None] = lambda changed: None,
) -> list[Letter]:
    """Does it with all that match, in one transaction; `limit` chooses no more than so many, and from `after` on.

    `log` is called in that transaction, with what changed.
    """
    parameters = {**_parameters(verb, matching, using), "limit": limit, "after": after, "shown": None}
    if dry_run:
        return _ask("preview_letters", parameters, using)
    for remaining in range(TRIES - 1, -1, -1):
        try:
            return _act(verb, matching, parameters, using, actor, reason, log)
        except OperationalError as error:
            if not is_transient(error) or connections[using].in_atomic_block:
                raise
            state = getattr(error.__cause__, "sqlstate", None)
            if state == "55P03":
                raise LettersInUse(
                    _("Nothing was changed: a worker is trying some of these events at this moment. Try again shortly.")
                ) from error
            if state not in ("40001", "40P01") or not remaining:
                raise
    raise AssertionError("unreachable")


def act_in_batches(
    verb: Verb,
    matching: Matching,
    using: str,
    *,
    actor: str = "",
    reason: str = "",
    after: int = 0,
    batch_size: int | None = None,
    log: Callable[[list[Letter]], None] = lambda changed: None,
) -> Iterator[list[Letter]]:
    """Does it with all that match, however many they are, a batch in a transaction each, the oldest first.

    It may be stopped and begun again: what is done is done, and is not found again.
    """
    nothing_found = 0
    while nothing_found < 2:  # somebody else may have been faster with a whole batch
        changed = act(
            verb, matching, using, actor=actor, reason=reason, limit=batch_size or BATCH_SIZE, after=after, log=log
        )
        nothing_found = 0 if changed else nothing_found + 1
        after = max((letter.id for letter in changed if letter.is_chosen), default=after)
        if changed:
            yield changed


def count(verb: Verb, matching: Matching, using: str) -> list[Count]:
    """What the verb would change, exactly. Reads all that match."""
    parameters = {**_parameters(verb, matching, using), "limit": None, "after": None}
    with transaction.atomic(using=using), connections[using].cursor() as cursor:
        cursor.execute("SELECT set_config('work_mem', %s, true)", [COUNTING_MEMORY])
        cursor.execute(load("chosen_letters") + load("count_letters"), parameters)
        return [Count(*row) for row in cursor.fetchall()]


def preview(verb: Verb, matching: Matching, using: str, *, shown: int | None = None) -> list[Letter]:
    """The letters that the verb would change, the first ones of them."""
    parameters = {**_parameters(verb, matching, using), "limit": shown, "after": None, "shown": shown}
    return _ask("preview_letters", parameters, using)


def _parameters(verb: Verb, matching: Matching, using: str) -> dict[str, Any]:
    states = [state for state in verb.states if matching.state in (None, state)]
    return {**matching.parameters(using), "states": list(verb.states), "chosen_states": states}


def _ask(statement: str, parameters: dict[str, Any], using: str) -> list[Letter]:
    with connections[using].cursor() as cursor:
        cursor.execute(load("chosen_letters") + load(statement), parameters)
        return [Letter(*row) for row in cursor.fetchall()]


def _act(
    verb: Verb,
    matching: Matching,
    parameters: dict[str, Any],
    using: str,
    actor: str,
    reason: str,
    log: Callable[[list[Letter]], None],
) -> list[Letter]:
    is_outermost = not connections[using].in_atomic_block
    with transaction.atomic(using=using), connections[using].cursor() as cursor:
        if is_outermost:
            cursor.execute("SELECT set_config('lock_timeout', %s, true)", [f"{int(LOCK_TIMEOUT_S * 1000)}ms"])
        changed = sorted(_ask(verb.name, parameters, using))
        if verb is DISCARD:
            _release_followers(cursor, changed)
        _write_down(verb, matching, changed, using, actor, reason)
        log(changed)
    return changed


def _release_followers(cursor: Any, discarded: Sequence[Letter]) -> None:
    """What was parked behind events that are given up goes on, in its order."""
    keys: dict[tuple[str, int], set[str]] = {}
    for letter in discarded:
        if letter.ordering_key is not None:
            keys.setdefault((letter.group, letter.topic_id), set()).add(letter.ordering_key)
    for (group, topic_id), blocked in sorted(keys.items()):
        release_followers(cursor, group, topic_id, sorted(blocked))


def _write_down(verb: Verb, matching: Matching, changed: Sequence[Letter], using: str, actor: str, reason: str) -> None:
    by_place = sorted(changed, key=lambda letter: (letter.topic_id, letter.group))
    names = topic_names({letter.topic_id for letter in changed}, using)
    OperatorEvent.objects.using(using).bulk_create(
        OperatorEvent(
            actor=actor,
            action=f"{verb.name}-dead-letters",
            topic=names[topic_id],
            group_id=group,
            reason=reason,
            before={"states": sorted({letter.state for letter in letters})},
            after={
                "state": verb.becomes,
                "events": len(letters),
                "transactions": len({letter.transaction_id for letter in letters}),
                "chosen": matching.described,
                "ids": [letter.id for letter in letters],
            },
        )
        for (topic_id, group), letters in (
            (place, list(letters))
            for place, letters in itertools.groupby(by_place, key=lambda letter: (letter.topic_id, letter.group))
        )
    )


def topic_names(ids: Iterable[int], using: str) -> dict[int, str]:
    """Names of topics by their ids."""
    return dict(Topic.objects.using(using).filter(pk__in=set(ids)).values_list("pk", "name"))
