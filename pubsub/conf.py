"""The settings: one dict, ``PUBSUB``, of which every key has a default.

>>> from django.test import override_settings
>>> with override_settings(PUBSUB={"batch_size": 7}):
...     conf().batch_size
7
"""

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from django.conf import settings
from django.core.signals import setting_changed

from .errors import InvalidSetting, InvalidTopic
from .topics.options import checked


@dataclass(frozen=True, kw_only=True)
class Settings:
    topics: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Topics that `migrate` makes, or brings in line: name → total_partitions, retention, semantics, zero_subscribers,
    max_age, max_bytes; what is not given is left to operators."""

    total_partitions: int = 8
    """Partitions of a topic that does not say."""

    unknown_topic: str = "refuse"
    """What publishing to a topic that does not exist does: "refuse" or "create"."""

    max_payload_bytes: int = 1024 * 1024
    """The largest payload, and the largest metadata, that may be published; as JSON, in bytes."""

    dedup_window_s: int = 7 * 24 * 3600
    """Seconds for which a dedup_key is remembered."""

    partition_rows: int = 1_000_000
    """Rows of a storage partition: what retention drops at once. Takes effect with the next partition made."""

    dead_after_misses: int = 3
    """Heartbeats that all members of a group must miss in a row until it is DEAD and holds nothing back."""

    dead_after_silence_s: int | None = 30 * 24 * 3600
    """Seconds after which a group without members is DEAD if something waits for it all that time; None: never."""

    member_retention_s: int = 24 * 3600
    """Seconds for which a crashed member is still shown."""

    dead_letter_retention_s: int = 30 * 24 * 3600
    """Seconds for which a dead letter is kept that was resolved or discarded; any other stays."""

    journal_retention_s: int = 365 * 24 * 3600
    """Seconds for which it is known who did what."""

    batch_size: int = 100
    """Events that a consumer handles in one transaction; a publisher's transaction is never split."""

    wait_period_ms: int = 1000
    """Milliseconds after which an idle consumer looks for work though nobody woke it."""

    longest_pause_ms: int = 100
    """Milliseconds between two passes of numbering at most, which only some 5,000 events a second bring about: the
    longer, the larger are batches and the more is done; the shorter, the sooner handlers are called under such load."""

    lease_s: int = 30
    """Seconds after which what a silent worker has in hand is taken over, where handlers run outside transactions."""

    max_streams: int = 500
    """Streams of server-sent events that one process serves at a time; more are refused."""

    tracing: bool = False
    """Whether publishing and handling are spans of OpenTelemetry's."""

    sequencer_stuck_s: int = 60
    """Seconds after which committed events that nobody has numbered make this site not ready."""

    redact_paths: Sequence[str] = ()
    """Paths in payloads and metadata whose values nobody is shown, such as "customer.email" or "**.password"."""

    redact: str = ""
    """Dotted name of a function that takes out what paths cannot say; see `pubsub.redaction`."""

    spark_master: str = ""
    """Where Spark runs: local[*], spark://…, yarn, k8s://…; empty: as Spark itself is configured, else local[*]."""

    spark_memory: str = "1g"
    """Memory of the process that drives Spark, which is also the one that works where the master is local."""

    spark_statement_timeout_s: int = 600
    """Seconds that a statement of Spark's readers may take; 0: any time."""

    spark_conf: Mapping[str, str] = field(default_factory=dict)
    """Further configuration of Spark, such as {"spark.executor.memory": "4g"}; comes before what we would choose."""

    def __post_init__(self) -> None:
        for name in WHOLE_NUMBERS:
            value, least = getattr(self, name), 0 if name in MAY_BE_ZERO else 1
            if name == "dead_after_silence_s" and value is None:
                continue
            if not isinstance(value, int) or isinstance(value, bool) or value < least:
                raise InvalidSetting(f'PUBSUB["{name}"] must be a whole number of at least {least}, not {value!r}.')
        if not isinstance(self.tracing, bool):
            raise InvalidSetting(f'PUBSUB["tracing"] must be True or False, not {self.tracing!r}.')
        self._check_topics()
        if self.unknown_topic not in ("refuse", "create"):
            raise InvalidSetting(f'PUBSUB["unknown_topic"] must be "refuse" or "create", not {self.unknown_topic!r}.')
        if isinstance(self.redact_paths, str) or not all(
            isinstance(path, str) and all(path.split(".")) for path in self.redact_paths
        ):
            raise InvalidSetting(
                f'PUBSUB["redact_paths"] must be a list of paths such as "customer.email", not {self.redact_paths!r}.'
            )

    def _check_topics(self) -> None:
        if not isinstance(self.topics, Mapping) or not all(
            isinstance(given, Mapping) for given in self.topics.values()
        ):
            raise InvalidSetting(
                f'PUBSUB["topics"] must be a dict such as {{"orders.events": {{"total_partitions": 8}}}}, not '
                f"{self.topics!r}."
            )
        for name, options in self.topics.items():
            try:
                checked(name, options)
            except InvalidTopic as error:
                raise InvalidSetting(f'PUBSUB["topics"]: {error}') from error


WHOLE_NUMBERS = [option.name for option in fields(Settings) if option.type in (int, int | None)]
MAY_BE_ZERO = ("member_retention_s", "dead_letter_retention_s", "journal_retention_s", "spark_statement_timeout_s")
KNOWN = frozenset(option.name for option in fields(Settings))


@functools.cache
def conf() -> Settings:
    """The settings in force. Unknown keys are left to the system check, which names the nearest known one."""
    given = getattr(settings, "PUBSUB", {})
    return Settings(**{name: value for name, value in given.items() if name in KNOWN})


def _forget(*, setting: str, **kwargs: Any) -> None:
    if setting == "PUBSUB":
        conf.cache_clear()


setting_changed.connect(_forget)
