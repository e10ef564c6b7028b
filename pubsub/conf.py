"""The settings: one dict, ``PUBSUB``, of which every key has a default.

>>> from django.test import override_settings
>>> with override_settings(PUBSUB={"batch_size": 7}):
...     conf().batch_size
7
"""

import functools
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from django.conf import settings
from django.core.signals import setting_changed

from .errors import InvalidSetting, InvalidTopic
from .suggest import shown
from .topic_options import RENAMED, check_partitions, checked, with_new_names


@dataclass(frozen=True, kw_only=True)
class Settings:
    topics: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Topics that `migrate` creates, or brings in line: name → partitions, retention, semantics, zero_subscribers,
    max_age, max_bytes; what is not given is left to operators."""

    partitions: int = 8
    """Partitions of a topic for which no number is given."""

    max_partitions: int = 4096
    """The most partitions that a topic can be given. Each costs every group a cursor."""

    unknown_topic: str = "refuse"
    """What publishing to a topic that does not exist does: "refuse" or "create"."""

    max_payload_bytes: int = 1024 * 1024
    """The largest payload, and the largest metadata, that can be published; as JSON, in bytes."""

    dedup_window_s: int = 7 * 24 * 3600
    """Seconds for which a dedup_key is remembered."""

    segment_rows: int = 1_000_000
    """Rows of a segment, the unit in which retention drops events. Takes effect with the next segment."""

    dead_after_misses: int = 3
    """Heartbeats in a row that all members of a group must miss before it is DEAD and holds nothing back."""

    dead_after_silence_s: int | None = 30 * 24 * 3600
    """Seconds after which a group without members is DEAD if events have waited for it all that time; None: never."""

    member_retention_s: int = 24 * 3600
    """Seconds for which a crashed member is still shown."""

    dead_letter_retention_s: int = 30 * 24 * 3600
    """Seconds for which a resolved or discarded dead letter is kept; any other stays."""

    audit_log_retention_s: int = 365 * 24 * 3600
    """Seconds for which the audit log is kept."""

    batch_size: int = 100
    """Events that a consumer handles in one transaction; a publisher's transaction is never split."""

    wait_period_ms: int = 1000
    """Milliseconds after which an idle consumer looks for work even if nothing has woken it."""

    longest_pause_ms: int = 100
    """Milliseconds that the sequencer pauses between two passes at most, which takes some 5,000 events a second. A
    longer pause makes larger batches and more throughput; a shorter one calls handlers sooner under such load."""

    lease_s: int = 30
    """Seconds of silence after which a worker's lease is taken over, where handlers run outside transactions."""

    transient_attempts: int = 5
    """Attempts at a publisher's transaction that may fail in a row by the worker's own database, such as by a deadlock
    or a lost connection; the last of them is the handler's failure. They are some 15 seconds apart, all in all."""

    transient_s: int = 300
    """Seconds that those attempts may take altogether, from the second one on."""

    logged_failures_per_minute: int = 10
    """Failures of one kind (group, handler, exception class, retried or not) that a process logs with their
    tracebacks within a minute; the others are counted, and their number is logged."""

    max_streams: int = 500
    """Streams of server-sent events that one process serves at a time; more are refused."""

    max_streams_per_user: int = 20
    """Those of one user who has signed in."""

    tracing: bool = False
    """Whether publishing and handling are OpenTelemetry spans."""

    sequencer_stuck_s: int = 60
    """Seconds after which committed events without an offset make the readiness view answer 503."""

    short_way: bool = True
    """Whether statements go past psycopg's cursors, and share a message with BEGIN, on `pubsub.db.backend`. False: by
    public interfaces alone, with one round trip more here and there. See docs/backend.md."""

    redact_paths: Sequence[str] = ()
    """Paths in payloads and metadata whose values are never shown, such as "customer.email" or "**.password"."""

    redact: str = ""
    """Dotted name of a function that hides what paths cannot describe; see `pubsub.payloads.redact`."""

    spark_master: str = ""
    """Where Spark runs: local[*], spark://…, yarn, k8s://…; empty: as Spark itself is configured, else local[*]."""

    spark_memory: str = "1g"
    """Memory of the driver, which also does the work where the master is local."""

    spark_statement_timeout_s: int = 600
    """Seconds that a statement of Spark's readers may take; 0: no limit."""

    spark_conf: Mapping[str, str] = field(default_factory=dict)
    """Further configuration of Spark, such as {"spark.executor.memory": "4g"}; overrides our own choices."""

    def __post_init__(self) -> None:
        faults = [*self._faults()]
        if not faults and self.partitions > self.max_partitions:
            faults.append(
                f'PUBSUB["partitions"] must be at most PUBSUB["max_partitions"], which is {self.max_partitions}, not '
                f"{self.partitions!r}."
            )
        topics = {}
        for name, options in self.topics.items() if _declares_topics(self.topics) else ():
            try:
                topics[name] = checked(name, with_new_names(name, options))
                if not faults:
                    check_partitions(name, topics[name].get("partitions", self.partitions), self.max_partitions)
            except InvalidTopic as error:
                faults.append(f'PUBSUB["topics"]: {error}')
        if faults:
            raise InvalidSetting(*faults)
        object.__setattr__(self, "topics", topics)

    def _faults(self) -> Iterator[str]:
        for name in WHOLE_NUMBERS:
            value, least, most = getattr(self, name), 0 if name in MAY_BE_ZERO else 1, _most(name)
            if name == "dead_after_silence_s" and value is None:
                continue
            if not isinstance(value, int) or isinstance(value, bool) or value < least:
                yield f'PUBSUB["{name}"] must be a whole number of at least {least}, not {shown(value)}.'
            elif value > most:
                yield f'PUBSUB["{name}"] must be a whole number of at most {most}, not {shown(value)}.'
        for name in ("tracing", "short_way"):
            if not isinstance(getattr(self, name), bool):
                yield f'PUBSUB["{name}"] must be True or False, not {shown(getattr(self, name))}.'
        for name in ("redact", "spark_master", "spark_memory"):
            if not isinstance(getattr(self, name), str):
                yield f'PUBSUB["{name}"] must be a text, not {shown(getattr(self, name))}.'
        if not isinstance(self.spark_conf, Mapping):
            yield (
                'PUBSUB["spark_conf"] must be a dict such as {"spark.executor.memory": "4g"}, not '
                f"{shown(self.spark_conf)}."
            )
        if not _declares_topics(self.topics):
            yield (
                f'PUBSUB["topics"] must be a dict such as {{"orders.events": {{"partitions": 8}}}}, not '
                f"{shown(self.topics)}."
            )
        if self.unknown_topic not in ("refuse", "create"):
            yield f'PUBSUB["unknown_topic"] must be "refuse" or "create", not {shown(self.unknown_topic)}.'
        paths = self.redact_paths
        if (
            isinstance(paths, str)
            or not isinstance(paths, Collection)  # what can be gone through once would hide nothing the second time
            or not all(isinstance(path, str) and all(path.split(".")) for path in paths)
        ):
            yield f'PUBSUB["redact_paths"] must be a list of paths such as "customer.email", not {shown(paths)}.'


def _declares_topics(given: Any) -> bool:
    """Names, and the options of each."""
    return isinstance(given, Mapping) and all(
        isinstance(name, str) and isinstance(options, Mapping) for name, options in given.items()
    )


WHOLE_NUMBERS = [option.name for option in fields(Settings) if option.type in (int, int | None)]
MAY_BE_ZERO = ("member_retention_s", "dead_letter_retention_s", "audit_log_retention_s", "spark_statement_timeout_s")
MOST = {
    "batch_size": 1_000_000,
    "dead_after_misses": 10_000,
    "max_partitions": 1_000_000,
    "max_payload_bytes": 2**28,  # PostgreSQL's jsonb takes no more
    "spark_statement_timeout_s": 2**31 // 1000,  # in milliseconds, it is an integer of PostgreSQL's
}
LONGEST_S = 50 * 365 * 24 * 3600
"""Of any other time in seconds: an integer of PostgreSQL's, and no end of a calendar is near."""
LONGEST_MS = 24 * 3600 * 1000
"""Of any time in milliseconds: selectors count them in 31 bits."""


def _most(name: str) -> int:
    if name in MOST:
        return MOST[name]
    return LONGEST_MS if name.endswith("_ms") else LONGEST_S if name.endswith("_s") else 2**31 - 1


KNOWN = frozenset(option.name for option in fields(Settings))


@functools.cache
def conf() -> Settings:
    """The settings in force. Unknown keys, and former names, are left to the system check."""
    given = getattr(settings, "PUBSUB", {})
    if not isinstance(given, Mapping):
        raise InvalidSetting(f"PUBSUB must be a dict, not {type(given).__name__}.")
    for old, new in RENAMED.items():
        if old in given and new in given:
            raise InvalidSetting(
                f'PUBSUB has both "{new}" and "{old}", the former name of the same setting; remove "{old}".'
            )
    renamed = {RENAMED.get(name, name): value for name, value in given.items()}
    return Settings(**{name: value for name, value in renamed.items() if name in KNOWN})


def _forget(*, setting: str, **kwargs: Any) -> None:
    if setting == "PUBSUB":
        conf.cache_clear()


setting_changed.connect(_forget)
