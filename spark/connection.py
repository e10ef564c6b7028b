"""How Spark's JDBC reader reaches the database that Django uses."""

from collections.abc import Mapping
from urllib.parse import quote, urlencode

from django.core.exceptions import ImproperlyConfigured
from django.db import DEFAULT_DB_ALIAS, connections

from pubsub.conf import conf

DRIVER = "org.postgresql.Driver"

SSL_PARAMETERS = ("sslmode", "sslrootcert", "sslcert", "sslkey")
"""Options of libpq that PostgreSQL's JDBC driver knows by the same names."""


def jdbc_options(
    using: str = DEFAULT_DB_ALIAS, *, write: bool = False, session: Mapping[str, object] | None = None
) -> dict[str, str]:
    """The options of ``spark.read.format("jdbc")`` for one of Django's databases.

    The password is an option of its own, not part of the URL, which Spark shows in its pages and logs. Sessions see
    times in UTC. They are read-only, and no statement takes longer than ``PUBSUB["spark_statement_timeout_s"]``. With
    ``write`` they may write, and text can be written to columns of any type, such as uuid and jsonb. ``session`` has
    further settings of PostgreSQL, such as ``{"jit": "off"}``.

    >>> options = jdbc_options()
    >>> options["driver"]
    'org.postgresql.Driver'

    With a session of yours, and the driver on its class path::

        spark.read.format("jdbc").options(**jdbc_options(), dbtable="outbox_log_v").load()
    """
    settings = connections[using].settings_dict
    host = settings["HOST"] or "localhost"
    if host.startswith("/"):
        raise ImproperlyConfigured(
            f'Database "{using}" is reached through the Unix socket in {host}, but JDBC needs TCP. Give it a '
            f"host name or an address in DATABASE_URL."
        )
    if ":" in host:
        host = f"[{host}]"
    parameters = {name: str(settings["OPTIONS"][name]) for name in SSL_PARAMETERS if name in settings["OPTIONS"]}
    parameters["ApplicationName"] = "pubsub-spark"
    if write:
        parameters["stringtype"] = "unspecified"
    parameters["options"] = session_options(using, write=write, session=session)
    options = {
        "url": f"jdbc:postgresql://{host}:{settings['PORT'] or 5432}/{quote(settings['NAME'], safe='')}"
        f"?{urlencode(parameters, quote_via=quote)}",
        "user": settings["USER"],
        "driver": DRIVER,
    }
    if settings["PASSWORD"]:
        # Without one, the driver looks into ~/.pgpass, as libpq does.
        options["password"] = settings["PASSWORD"]
    return options


def libpq_address(
    using: str = DEFAULT_DB_ALIAS, *, write: bool = False, session: Mapping[str, object] | None = None
) -> dict[str, object]:
    """The same for psycopg, which the streaming source uses: parameters of ``psycopg.connect()``.

    >>> libpq_address()["application_name"]
    'pubsub-spark'
    """
    # Django's own parameters, such as its classes, only mean something in Django's process.
    address: dict[str, object] = {
        name: value
        for name, value in connections[using].get_connection_params().items()
        if isinstance(value, str) or name in ("port", "connect_timeout")
    }
    address["application_name"] = "pubsub-spark"
    address["options"] = session_options(using, write=write, session=session)
    return address


def session_options(using: str, *, write: bool, session: Mapping[str, object] | None = None) -> str:
    """The settings with which Spark's sessions begin, in the form of PostgreSQL's command line."""
    given = connections[using].settings_dict["OPTIONS"].get("options", "")  # such as a search_path
    wanted: dict[str, object] = {"TimeZone": "UTC"}
    if not write:
        wanted["default_transaction_read_only"] = "on"
        wanted["statement_timeout"] = conf().spark_statement_timeout_s * 1000
    wanted |= session or {}
    return " ".join([*([given] if given else []), *(f"-c {name}={value}" for name, value in wanted.items())])
