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
        ("segment_rows", True),
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


def test_a_former_name_still_works_and_is_reported_with_the_new_one() -> None:
    topics = {"orders": {"total_partitions": 4}}
    with override_settings(PUBSUB={"total_partitions": 3, "topics": topics}):
        assert (conf().partitions, conf().topics) == (3, {"orders": {"partitions": 4}})
        assert [(found.id, found.msg, found.hint) for found in check_settings()] == [
            ("pubsub.W004", f'{where} has "total_partitions", which is deprecated.', 'It is now called "partitions".')
            for where in ("PUBSUB", 'PUBSUB["topics"]["orders"]')
        ]


@pytest.mark.parametrize(
    "given",
    [
        {"partitions": 3, "total_partitions": 3},
        {"topics": {"orders": {"partitions": 3, "total_partitions": 3}}},
    ],
)
def test_a_setting_given_by_both_names_is_an_error(given: dict[str, object]) -> None:
    with override_settings(PUBSUB=given):
        assert "pubsub.E002" in [found.id for found in check_settings()]
        with pytest.raises(InvalidSetting, match='both "partitions" and "total_partitions"'):
            conf()


def test_pubsub_must_be_a_dict() -> None:
    with override_settings(PUBSUB=["batch_size"]):
        assert [found.id for found in check_settings()] == ["pubsub.E001"]


def test_the_checks_are_registered_and_find_nothing_here() -> None:
    assert not checks.run_checks(tags=["pubsub"])
