"""PUBSUB: defaults, checks, and what happens to a slip of the pen."""

import datetime as dt
import subprocess
import sys

import pytest
from django.core import checks
from django.db import transaction
from django.test import override_settings

from pubsub import Delivery, publish
from pubsub.checks import check_settings
from pubsub.conf import WHOLE_NUMBERS, _most, conf
from pubsub.errors import InvalidSetting
from pubsub.monitoring.status import status
from pubsub.worker.cleanup import clean_up
from pubsub.worker.worker import Worker
from tests.handlers import Recorder, declare


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
        ("dedup_window_s", 10**18),
        ("dead_after_silence_s", 10**12),
        ("audit_log_retention_s", 10**12),
        ("lease_s", 10**10),
        ("wait_period_ms", 10**10),
        ("batch_size", 10**20),
        ("partitions", 5000),
    ],
)
def test_a_bad_value_is_echoed(name: str, value: object) -> None:
    with override_settings(PUBSUB={name: value}):
        with pytest.raises(InvalidSetting, match=rf'PUBSUB\["{name}"\] must be .*, not {value!r}'):
            conf()
        assert [found.id for found in check_settings()] == ["pubsub.E002"]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"batch_size": 10**5000}, "not a value of type int"),
        ({"redact": 5}, 'PUBSUB["redact"] must be a text, not 5'),
        ({"spark_conf": ["x"]}, 'PUBSUB["spark_conf"] must be a dict'),
        ({"redact_paths": iter(["customer.email"])}, 'PUBSUB["redact_paths"] must be a list of paths'),
        ({"topics": {5: {}}}, 'PUBSUB["topics"] must be a dict such as'),
        ({"topics": {"orders": {"partitions": 10**5000}}}, "not a value of type int"),
    ],
)
def test_a_value_of_any_type_is_refused_in_words(given: dict[str, object], message: str) -> None:
    with override_settings(PUBSUB=given):
        (found,) = check_settings()
        assert (found.id, message in found.msg) == ("pubsub.E002", True), found.msg


@pytest.mark.parametrize("name", ["nowhere", "no.where", ".", "../x", "os.path"])
def test_what_redacts_must_be_a_function(name: str) -> None:
    with override_settings(PUBSUB={"redact": name}):
        assert [found.id for found in check_settings()] == ["pubsub.E004"]


def test_a_name_of_any_type_is_reported() -> None:
    with override_settings(PUBSUB={10**5000: 1, 7: 2, "x": 3}):
        assert [found.id for found in check_settings()] == ["pubsub.W001"] * 3


def test_more_partitions_than_allowed_are_a_bad_value() -> None:
    for given in ({"topics": {"orders": {"partitions": 5000}}}, {"partitions": 30, "max_partitions": 20}):
        with override_settings(PUBSUB=given), pytest.raises(InvalidSetting, match="at most"):
            conf()
    with override_settings(PUBSUB={"topics": {"orders": {"partitions": 5000}}, "max_partitions": 5000}):
        assert conf().topics["orders"]["partitions"] == 5000


@pytest.mark.django_db(transaction=True)
def test_the_largest_values_work() -> None:
    """What the check lets pass fails nowhere later."""
    largest = {name: _most(name) for name in WHOLE_NUMBERS if not name.startswith(("spark", "segment_rows"))}
    with override_settings(PUBSUB=largest | {"partitions": 8}):
        with transaction.atomic():
            publish("default", 1, dedup_key="a", key="a")
        account = clean_up("default")
        assert account["failed"] == {}
        status("default")
        for delivery in Delivery:
            handler = Recorder()
            Worker(
                [declare(handler, group=delivery.value, delivery=delivery, start="earliest")],
                using="default",
                drain=True,
                listen=False,
            ).run()
            assert len(handler.payloads) == 1


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
        with pytest.raises(InvalidSetting, match="PUBSUB must be a dict, not list"):
            conf()


def test_a_pubsub_that_is_no_dict_lets_django_start_so_that_the_check_can_tell() -> None:
    code = (
        "import django; from django.conf import settings; from django.core.management import call_command\n"
        "settings.configure(INSTALLED_APPS=['pubsub'], PUBSUB=['x']); django.setup(); call_command('check')"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "(pubsub.E001) PUBSUB must be a dict, not list." in ran.stderr


def test_all_faults_are_reported() -> None:
    topics = {"no spaces please": {"partitions": 0}, "fine": {}, "orders": {"retention": "7 days"}}
    given = {"batch_size": 0, "tracing": "yes", "redact_paths": 5, "topics": {"a": {"retention": "7 days"}, **topics}}
    with override_settings(PUBSUB=given):
        told = [str(found.msg) for found in check_settings()]
        assert [found.id for found in check_settings()] == ["pubsub.E002"] * 6
        with pytest.raises(InvalidSetting) as raised:
            conf()
    assert str(raised.value).split("\n") == told
    for part in ('"batch_size"', '"tracing"', '"redact_paths"', 'topic "a"', "no spaces", 'topic "orders"'):
        assert any(part in message for message in told), part


def test_topics_take_the_texts_that_commands_take() -> None:
    given = {"retention": "30d", "max_age": "1d12h", "max_bytes": "2GB"}
    with override_settings(PUBSUB={"topics": {"orders": given}}):
        assert conf().topics["orders"] == {
            "retention": dt.timedelta(days=30),
            "max_age": dt.timedelta(days=1, hours=12),
            "max_bytes": 2 * 10**9,
        }
        assert check_settings() == []


def test_the_checks_are_registered_and_find_nothing_here() -> None:
    assert not checks.run_checks(tags=["pubsub"])
