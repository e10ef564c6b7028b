"""What `manage.py check` says about this app."""

import importlib.metadata
import importlib.util
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from django.apps import apps
from django.conf import settings
from django.core.checks import CheckMessage, Error, Info, Warning
from django.db import DEFAULT_DB_ALIAS, connections, router
from django.urls import URLPattern, URLResolver, get_resolver
from django.utils.module_loading import import_string

from pubsub.db.backend.base import DatabaseWrapper
from pubsub.db.connections import can_listen, dedicated_connection
from pubsub.db.sql import load
from pubsub.topics.names import is_pattern

from . import suggest
from .conf import KNOWN, conf
from .errors import InvalidSetting, MissingExtra
from .subscriptions import declare
from .topic_options import RENAMED

OLDEST_POSTGRESQL = 150000
ENGINE = "pubsub.db.backend"

_POOLER_HINT = (
    'Everything works, but LISTEN does not: consumers poll, so that events wait for PUBSUB["wait_period_ms"] at most. '
    "Where that is too long, let consumers connect to the server itself, as a database alias of their own."
)


def check_settings(**kwargs: Any) -> list[CheckMessage]:
    given = getattr(settings, "PUBSUB", {})
    if not isinstance(given, Mapping):
        return [Error(f"PUBSUB must be a dict, not {type(given).__name__}.", id="pubsub.E001")]
    found: list[CheckMessage] = []
    found += _former_names("PUBSUB", given)
    unknown = set(given) - KNOWN - RENAMED.keys()
    for name in sorted(name if isinstance(name, str) else suggest.shown(name) for name in unknown):
        found.append(
            Warning(f'PUBSUB has no setting "{name}".', hint=suggest.hint(name, sorted(KNOWN)), id="pubsub.W001")
        )
    try:
        if conf().redact and not callable(import_string(conf().redact)):
            raise ImportError(f"{conf().redact} is something else")
    except InvalidSetting as error:
        found += [Error(fault, id="pubsub.E002") for fault in error.args]
    except (ImportError, TypeError, ValueError) as error:  # the last two, where it is no dotted name at all
        found.append(Error(f'PUBSUB["redact"] must name a function: {error}.', id="pubsub.E004"))
    if given.get("tracing") is True:
        try:
            importlib.import_module("pubsub.monitoring.tracing")
        except MissingExtra as error:
            found.append(
                Error('PUBSUB["tracing"] is on, and what it needs is missing.', hint=str(error), id="pubsub.E005")
            )
    return found


def _former_names(where: str, given: Mapping[str, Any]) -> list[CheckMessage]:
    """Names that still work: of settings, and of the options of topics in them."""
    found: list[CheckMessage] = [
        Warning(f'{where} has "{old}", which is deprecated.', hint=f'It is now called "{new}".', id="pubsub.W004")
        for old, new in RENAMED.items()
        if old in given
    ]
    topics = given.get("topics")
    for name, options in topics.items() if isinstance(topics, Mapping) else ():
        if isinstance(name, str) and isinstance(options, Mapping):
            found += _former_names(f'PUBSUB["topics"]["{name}"]', options)
    return found


def check_poolers(**kwargs: Any) -> list[CheckMessage]:
    """What looks like a transaction pooler, from the settings alone. `check --database ALIAS` asks."""
    return [
        Info(
            f'Database "{alias}" looks like a transaction pooler ({sign}).',
            hint=_POOLER_HINT,
            id="pubsub.I001",
        )
        for alias, config in connections.settings.items()
        if _is_postgresql(config) and (sign := _sign_of_pooler(config))
    ]


def _is_postgresql(config: Mapping[str, Any]) -> bool:
    engine = config.get("ENGINE", "")
    return engine == ENGINE or "postgresql" in engine


def _sign_of_pooler(config: Mapping[str, Any]) -> str:
    host = str(config.get("HOST") or "")
    if str(config.get("PORT") or "") == "6432":
        return "port 6432 is PgBouncer's"
    if re.search(r"pgbouncer|pooler|pgcat|odyssey", host):
        return f"its host is {host}"
    if config.get("DISABLE_SERVER_SIDE_CURSORS"):
        return "DISABLE_SERVER_SIDE_CURSORS is set"
    return ""


def check_import_name(**kwargs: Any) -> list[CheckMessage]:
    """Both packages have files in a folder of the same name, of which the one installed last has overwritten some."""
    try:
        importlib.metadata.distribution("PyPubSub")
    except importlib.metadata.PackageNotFoundError:
        return []
    return [
        Error(
            "PyPubSub is installed beside django-outbox-pubsub, and the import name of both is pubsub.",
            hint="One has overwritten files of the other. Uninstall both, then install django-outbox-pubsub alone.",
            id="pubsub.E011",
        )
    ]


def check_vendors(**kwargs: Any) -> list[CheckMessage]:
    """Databases that are to have the tables, and cannot. Where events are published to, that is an error."""
    home = router.db_for_write(apps.get_model("pubsub", "OutboxMessage"))
    return [
        (Error if alias == home else Warning)(
            f'pubsub needs PostgreSQL, and database "{alias}" is {connections[alias].vendor}.',
            hint=f'Keep the app out of "{alias}" by a database router whose allow_migrate() returns False for the app '
            f'label "pubsub" there. Its migrations make nothing in that database.',
            id="pubsub.E012" if alias == home else "pubsub.W012",
        )
        for alias in connections
        if connections[alias].vendor not in ("postgresql", "unknown")
        and router.allow_migrate(alias, "pubsub", model_name="outboxmessage")
    ]


def check_tenants(**kwargs: Any) -> list[CheckMessage]:
    """django-tenants changes the search path of a connection; a process remembers topics by database, not by schema."""
    if "pubsub" not in getattr(settings, "TENANT_APPS", ()):
        return []
    return [
        Error(
            "pubsub is in TENANT_APPS, and a database alias has one set of its tables.",
            hint="Move it to SHARED_APPS, and publish with host_id=connection.schema_name; see docs/publishing.md.",
            id="pubsub.E013",
        )
    ]


def check_engines(**kwargs: Any) -> list[CheckMessage]:
    """What `check --deploy` says of an engine that costs round trips, and leaves less to refuse what handlers do."""
    return [
        Info(
            f'Database "{alias}" is on the engine {connections.settings[alias]["ENGINE"]}.',
            hint=f'Everything works. With "ENGINE": "{ENGINE}", which is Django\'s own and a little more, transactions '
            "take a round trip less, and a handler's COMMIT is refused on every path. See docs/backend.md.",
            id="pubsub.I002",
        )
        for alias in connections
        if connections[alias].vendor == "postgresql"
        and not isinstance(connections[alias], DatabaseWrapper)
        and router.allow_migrate(alias, "pubsub", model_name="outboxmessage")
    ]


def check_database(*, databases: Sequence[str] | None = None, **kwargs: Any) -> list[CheckMessage]:
    """Run by `migrate` and by `check --database ALIAS`."""
    found: list[CheckMessage] = []
    for alias in databases or []:
        connection = connections[alias]
        if connection.vendor != "postgresql":
            continue
        connection.ensure_connection()
        version = connection.connection.info.server_version
        if version < OLDEST_POSTGRESQL:
            found.append(
                Error(
                    f'PostgreSQL 15 or newer is needed; database "{alias}" runs version {version // 10000}.',
                    id="pubsub.E003",
                )
            )
        if router.allow_migrate(alias, "pubsub", model_name="outboxmessage"):
            found += _check_encoding(alias)
            found += _check_listening(alias)
            found += _check_schemas(alias)
            found += _check_handlers(alias)
            found += _check_cursors(alias)
    return found


def _check_encoding(alias: str) -> list[CheckMessage]:
    encoding = connections[alias].connection.info.parameter_status("server_encoding")
    if encoding == "UTF8":
        return []
    return [
        Error(
            f'Database "{alias}" must be encoded in UTF8, not in {encoding}: JSON and texts have characters that it '
            "cannot store.",
            hint="Make a new database: CREATE DATABASE … ENCODING 'UTF8' TEMPLATE template0.",
            id="pubsub.E006",
        )
    ]


def _check_listening(alias: str) -> list[CheckMessage]:
    with dedicated_connection(alias) as connection:
        if can_listen(connection):
            return []
    return [Warning(f'Database "{alias}" is behind a transaction pooler.', hint=_POOLER_HINT, id="pubsub.W002")]


def _check_schemas(alias: str) -> list[CheckMessage]:
    """Consumers elect their leader by a lock of the database, and it numbers what is in its own schema."""
    with connections[alias].cursor() as cursor:
        cursor.execute(
            "SELECT nspname FROM pg_class JOIN pg_namespace AS schema ON schema.oid = relnamespace "
            "WHERE relname = 'log_sequencer' AND relkind = 'r' AND nspname <> current_schema() ORDER BY 1"
        )
        schemas = [schema for (schema,) in cursor.fetchall()]
    if not schemas:
        return []
    return [
        Warning(
            f'Database "{alias}" has another set of pubsub\'s tables, in the schema {", ".join(schemas)}.',
            hint="While the consumers of one are busy, events of the other wait. Keep one set for all, and tell "
            "tenants apart by host_id; or give each set a database of its own.",
            id="pubsub.W013",
        )
    ]


def _may_read(cursor: Any, *tables: str) -> bool:
    """Whether the tables are there yet, and the role may read them: one that only publishes may not."""
    cursor.execute(
        "SELECT bool_and(coalesce(has_table_privilege(to_regclass(name), 'SELECT'), false)) "
        "FROM unnest(%s::text[]) AS name",
        [list(tables)],
    )
    return bool(cursor.fetchone() == (True,))


def _check_handlers(alias: str) -> list[CheckMessage]:
    """Handlers that would never be called, as nothing can be published to their topic."""
    with connections[alias].cursor() as cursor:
        if not _may_read(cursor, "outbox_topics"):
            return []
        cursor.execute("SELECT name FROM outbox_topics")
        known = {name for (name,) in cursor.fetchall()}
    try:
        known |= set(conf().topics)  # the next `migrate` makes them
        may_come = conf().unknown_topic == "create"
    except InvalidSetting:
        return []  # another check tells
    found: list[CheckMessage] = []
    for declared in declare.registry.select():
        if may_come or is_pattern(declared.topic) or declared.topic in known:
            continue
        name = suggest.nearest(declared.topic, known)
        hint = f'Did you mean "{name}"? ' if name else ""
        found.append(
            Warning(
                f'{declared.handler_name} handles topic "{declared.topic}", which does not exist on "{alias}".',
                hint=f'{hint}Topics are made by `migrate` from PUBSUB["topics"], by `pubsub_topic`, or in the admin.',
                id="pubsub.W003",
            )
        )
    return found


def _check_cursors(alias: str) -> list[CheckMessage]:
    """Groups that the code no longer knows, and handlers that are new on the same topics: perhaps the same, renamed."""
    declarations = [declared for declared in declare.registry.select() if not is_pattern(declared.topic)]
    tables = ("outbox_topics", "outbox_topic_subscriptions", "outbox_members", "consumer_offsets")
    with connections[alias].cursor() as cursor:
        if not declare.registry.select() or not _may_read(cursor, *tables):
            return []
        cursor.execute(load("subscriptions/groups_with_cursors"))
        present = {(topic, group): is_alive for topic, group, is_alive in cursor.fetchall()}
    new = [declared for declared in declarations if declared.key not in present]
    found: list[CheckMessage] = []
    for (topic, group), is_alive in present.items():
        successors = [declared for declared in new if declared.topic == topic]
        if declare.registry.has(topic, group) or (is_alive and not successors):
            continue  # another program handles it
        option = "" if alias == DEFAULT_DB_ALIAS else f" --database={alias}"
        hint = "".join(
            f'If it is now called "{declared.group}": `pubsub_group rename {group} {declared.group} '
            f"--topic={topic}{option}` before a worker starts. "
            for declared in successors
        )
        found.append(
            Warning(
                f'Group "{group}" has cursors on topic "{topic}" of "{alias}", and no handler.',
                hint=f"{hint}If it is not needed: `pubsub_group cancel {group} --topic={topic}{option}`.",
                id="pubsub.W005",
            )
        )
        found += [
            Warning(
                f'{declared.handler_name} has no cursors on topic "{topic}" of "{alias}": as group '
                f'"{declared.group}" it begins at {str(declared.start)!r}.',
                hint=f'Was it group "{group}" before? Then rename that, or events are handled twice, or never.',
                id="pubsub.W006",
            )
            for declared in successors
        ]
    return found


def check_event_streams(**kwargs: Any) -> list[CheckMessage]:
    """A stream of events would occupy a thread of a WSGI server; it refuses to, so nothing would come of it."""
    if not getattr(settings, "ROOT_URLCONF", None) or _has_asgi() or not _has_event_stream(get_resolver().url_patterns):
        return []
    return [
        Warning(
            "The URLs lead to an EventStream, and this project has no asgi.py.",
            hint="Streams of events need an ASGI server, such as uvicorn. If there is one, set ASGI_APPLICATION.",
            id="pubsub.W011",
        )
    ]


def _has_asgi() -> bool:
    if getattr(settings, "ASGI_APPLICATION", None):
        return True
    # `startproject` puts it beside the URLs.
    package, _, _ = str(settings.ROOT_URLCONF).rpartition(".")
    try:
        return bool(package) and importlib.util.find_spec(f"{package}.asgi") is not None
    except ModuleNotFoundError:
        return False


def _has_event_stream(patterns: Iterable[URLPattern | URLResolver]) -> bool:
    from pubsub.streams.sse import EventStream

    for pattern in patterns:
        if isinstance(pattern, URLResolver):
            if _has_event_stream(pattern.url_patterns):
                return True
        else:
            view = getattr(pattern.callback, "view_class", None)
            if isinstance(view, type) and issubclass(view, EventStream):
                return True
    return False
