"""Which of the listeners that are behind the next statement reads for."""

from collections.abc import Sequence

from .compose import PARAMETERS
from .listener import Listener
from .scan import Interest

COSTLY_PARAMETERS = 200
"""Of costly filters that one statement evaluates, unless one alone has more: so long the others wait for them."""

Readers = dict[Interest, list[Listener]]
"""Listeners by what they want to read."""


def choose(waiting: Sequence[Listener], turn: int, positions: int) -> tuple[int, Readers]:
    """One of them, with its position, and all that are less than so many positions ahead of it; in turns.

    It is the furthest behind, so that they meet; every second time the one that has waited longest, so that none waits
    for the whole past of another. One statement must be enough for their filters.
    """
    first = min(waiting, key=lambda one: (one.served if turn % 2 else 0, one.position))
    chosen: Readers = {}
    parameters, most = 0, COSTLY_PARAMETERS if first.interest.is_costly else PARAMETERS
    for listener in sorted(waiting, key=lambda one: (one is not first, one.served)):
        if not first.position <= listener.position < first.position + positions:
            continue
        if listener.interest not in chosen:
            if chosen and parameters + listener.interest.parameters > most:
                continue
            parameters += listener.interest.parameters
        chosen.setdefault(listener.interest, []).append(listener)
        listener.served = turn
    return first.position, chosen
