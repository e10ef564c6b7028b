"""How an event reaches its handler."""

import enum


class Delivery(enum.StrEnum):
    """What is promised where a worker dies in the middle.

    >>> Delivery("at_least_once") is Delivery.AT_LEAST_ONCE
    True
    """

    TRANSACTIONAL = "transactional"
    """Handlers run in the transaction that moves the group's place: effects in this database happen exactly once."""
    AT_LEAST_ONCE = "at_least_once"
    """Handlers run outside any transaction, under a lease, and what they have handled is acknowledged afterwards."""
    AT_MOST_ONCE = "at_most_once"
    """The group's place is moved first; what a dying worker had in hand is not handled again."""
