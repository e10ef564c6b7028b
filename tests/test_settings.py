"""PUBSUB: defaults, checks, and what happens to a slip of the pen."""

import pytest
from django.core import checks
from django.test import override_settings

from pubsub.checks import check_settings
from pubsub.conf import conf
from pubsub.errors import InvalidSetting


def test_every_setting_has_a_default_and_follows_override_settings() -> None:
    with override_settings(PUBSUB={}):
        assert conf().batch_size == 100
    with override_settings(PUBSUB={"batch_size": 7}):
        assert conf().batch_size == 7


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("batch_size", 0),
        ("batch_size", "100"),
        ("wait_period_ms", -1),
        ("partition_rows", True),
        ("unknown_topic", "x"),
    ],
)
def test_a_bad_value_is_echoed(name: str, value: object) -> None:
    with override_settings(PUBSUB={name: value}):
        with pytest.raises(InvalidSetting, match=rf'PUBSUB\["{name}"\] must be .*, not {value!r}'):
            conf()
        assert [found.id for found in check_settings()] == ["pubsub.E002"]


def test_an_unknown_setting_is_reported_with_the_nearest_name() -> None:
    with override_settings(PUBSUB={"batchsize": 7}):
        (found,) = check_settings()
    assert (found.level, found.msg) == (checks.WARNING, 'PUBSUB has no setting "batchsize".')
    assert found.hint == 'Did you mean "batch_size"?'


def test_pubsub_must_be_a_dict() -> None:
    with override_settings(PUBSUB=["batch_size"]):
        assert [found.id for found in check_settings()] == ["pubsub.E001"]


def test_the_checks_are_registered_and_find_nothing_here() -> None:
    assert not checks.run_checks(tags=["pubsub"])
