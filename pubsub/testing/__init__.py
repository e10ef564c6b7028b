"""For the tests of those who use this app: what was published, and what the handlers make of it.

It works inside a test's transaction, which never commits, as well as where tests commit. The events are those that the
database holds, so what was rolled back is not among them. With pytest, the fixture `pubsub` is an :class:`Outbox`;
elsewhere make one where a test begins:

>>> from django.db import transaction
>>> from pubsub import publish
>>> with transaction.atomic():
...     outbox = Outbox()
...     event_id = publish("default", {"id": 1, "total": 5}, type="order.created")
...     outbox.assert_published("default", type="order.created", payload={"total": 5}).id == event_id
True
"""

from .drain import Drained, Failure
from .outbox import Outbox
from .published import PublishedEvent

__all__ = ["Drained", "Failure", "Outbox", "PublishedEvent"]
