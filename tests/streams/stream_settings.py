"""The tests' settings with streams of several kinds at addresses of their own."""

from tests.settings import *  # noqa: F403
from tests.settings import PUBSUB

ROOT_URLCONF = "tests.streams.stream_urls"
PUBSUB = {**PUBSUB, "wait_period_ms": 50, "max_streams": 20, "max_streams_per_user": 5, "redact_paths": ["card"]}
