"""The address that Spark is given is the one that Django uses."""

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.db import connections

from pubsub.spark.connection import jdbc_options


@pytest.fixture
def database(monkeypatch: pytest.MonkeyPatch) -> dict[str, object]:
    settings = {
        "HOST": "db.example",
        "PORT": 6543,
        "NAME": "shop & co",
        "USER": "me",
        "PASSWORD": "p&ss",
        "OPTIONS": {},
    }
    default = connections["default"]
    monkeypatch.setattr(default, "settings_dict", {**default.settings_dict, **settings})
    return default.settings_dict


def test_the_password_is_not_part_of_the_url(database: dict[str, object]) -> None:
    options = jdbc_options()
    assert options["url"].startswith("jdbc:postgresql://db.example:6543/shop%20%26%20co?")
    assert "p&ss" not in options["url"]
    assert "p%26ss" not in options["url"]
    assert (options["user"], options["password"]) == ("me", "p&ss")
    assert "default_transaction_read_only%3Don" in options["url"]


def test_tls_options_are_passed_on(database: dict[str, object]) -> None:
    database["OPTIONS"] = {"sslmode": "verify-full", "sslrootcert": "/etc/ca.pem", "pool": True}
    assert "sslmode=verify-full&sslrootcert=%2Fetc%2Fca.pem&" in jdbc_options()["url"]
    assert "pool" not in jdbc_options()["url"]


def test_ipv6_and_defaults(database: dict[str, object]) -> None:
    database |= {"HOST": "::1", "PORT": ""}
    assert jdbc_options()["url"].startswith("jdbc:postgresql://[::1]:5432/")


def test_a_unix_socket_is_refused_with_a_remedy(database: dict[str, object]) -> None:
    database["HOST"] = "/var/run/postgresql"
    with pytest.raises(ImproperlyConfigured, match="JDBC needs TCP"):
        jdbc_options()


def test_django_s_search_path_is_passed_on(database: dict[str, object]) -> None:
    database["OPTIONS"] = {"options": "-c search_path=elsewhere"}
    assert "options=-c%20search_path%3Delsewhere%20-c%20TimeZone%3DUTC%20-c%20default_" in jdbc_options()["url"]


def test_a_writing_session_has_no_limits(database: dict[str, object]) -> None:
    url = jdbc_options(write=True)["url"]
    assert "read_only" not in url
    assert "statement_timeout" not in url
    assert "stringtype=unspecified" in url


def test_without_a_password_the_driver_looks_for_one_itself(database: dict[str, object]) -> None:
    database["PASSWORD"] = ""
    assert "password" not in jdbc_options()
