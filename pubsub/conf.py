"""The settings: one dict, ``PUBSUB``, of which every key has a default.

>>> from django.test import override_settings
>>> with override_settings(PUBSUB={"batch_size": 7}):
...     conf().batch_size
7
"""

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from django.conf import settings
from django.core.signals import setting_changed

from .errors import InvalidSetting


@dataclass(frozen=True, kw_only=True)
class Settings:
    topics: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Topics that `migrate` creates where they are missing: name → total_partitions, retention."""

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

    batch_size: int = 100
    """Events that a consumer handles in one transaction; a publisher's transaction is never split."""

    wait_period_ms: int = 1000
    """Milliseconds after which an idle consumer looks for work though nobody woke it."""

    def __post_init__(self) -> None:
        for name in ("total_partitions", "max_payload_bytes", "dedup_window_s", "partition_rows", "batch_size"):
            self._whole_number(name, at_least=1)
        self._whole_number("wait_period_ms", at_least=1)
        if self.unknown_topic not in ("refuse", "create"):
            raise InvalidSetting(f'PUBSUB["unknown_topic"] must be "refuse" or "create", not {self.unknown_topic!r}.')

    def _whole_number(self, name: str, *, at_least: int) -> None:
        value = getattr(self, name)
        if not isinstance(value, int) or isinstance(value, bool) or value < at_least:
            raise InvalidSetting(f'PUBSUB["{name}"] must be a whole number of at least {at_least}, not {value!r}.')


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
