"""No listener of a test lives on in the next one."""

from collections.abc import Iterator

import pytest

from pubsub.reach import listening

from ..sequencing.helpers import wait_until


@pytest.fixture(autouse=True)
def no_followers() -> Iterator[None]:
    yield
    threads = list(listening._followers.values())
    for follower in threads:
        for listener in list(follower._listeners):
            listener.close()
    for thread in threads:
        thread.join(15)
        assert not thread.is_alive()
    wait_until(lambda: not listening._followers, "no follower is left")
