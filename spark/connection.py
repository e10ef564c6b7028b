"""How Spark's JDBC reader reaches the database that Django uses."""

from urllib.parse import quote, urlencode

from django.core.exceptions import ImproperlyConfigured
from django.db import DEFAULT_DB_ALIAS, connections

DRIVER = "org.postgresql.Driver"

SSL_PARAMETERS = ("sslmode", "sslrootcert", "sslcert", "sslkey")
"""Options of libpq that PostgreSQL's JDBC driver knows by the same names."""


def jdbc_options(using: str = DEFAULT_DB_ALIAS) -> dict[str, str]:
    """The options of ``spark.read.format("jdbc")`` for one of Django's databases.

    The password is an option of its own and no part of the URL, which Spark shows in its pages and logs. Sessions read
    only, and see times in UTC.

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
            f'Database "{using}" is reached through the Unix socket in {host}; JDBC needs TCP. Give it a '
            f"host name or an address in DATABASE_URL."
        )
    if ":" in host:
        host = f"[{host}]"
    parameters = {name: str(settings["OPTIONS"][name]) for name in SSL_PARAMETERS if name in settings["OPTIONS"]}
    parameters |= {
        "ApplicationName": "pubsub-spark",
        "options": "-c TimeZone=UTC -c default_transaction_read_only=on",
    }
    return {
        "url": f"jdbc:postgresql://{host}:{settings['PORT'] or 5432}/{quote(settings['NAME'], safe='')}"
        f"?{urlencode(parameters, quote_via=quote)}",
        "user": settings["USER"],
        "password": settings["PASSWORD"],
        "driver": DRIVER,
    }
