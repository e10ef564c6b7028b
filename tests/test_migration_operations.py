"""Triggers that publish what happens to a table, installed and removed by migrations."""

from collections.abc import Iterator
from typing import Any

import pytest
from django.apps import apps
from django.db import DatabaseError, NotSupportedError, ProgrammingError, connection, connections, transaction
from django.db.migrations import Migration
from django.db.migrations.state import ProjectState
from django.db.migrations.writer import MigrationWriter

from pubsub.errors import InvalidPublication, UnknownTopic, WrongDatabase
from pubsub.migration_operations import PublishRowChanges, StopRowChanges
from pubsub.models import OutboxMessage, Topic
from pubsub.topics import registry
from tests.testapp.models import Account

pytestmark = pytest.mark.django_db

TOPIC = "accounts.events"


@pytest.fixture(autouse=True)
def topic() -> Iterator[None]:
    registry.create_topics(connection, {TOPIC: {}, "audit": {}})
    yield
    registry.forget_ids()


def migrate(*operations: PublishRowChanges, collect_sql: bool = False) -> tuple[Migration, list[str]]:
    migration = Migration("0002_test", "testapp")
    migration.operations = list(operations)
    with connection.schema_editor(collect_sql=collect_sql) as editor:
        migration.apply(ProjectState.from_apps(apps), editor, collect_sql=collect_sql)
    return migration, getattr(editor, "collected_sql", [])


def migrate_back(migration: Migration) -> None:
    with connection.schema_editor() as editor:
        migration.unapply(ProjectState.from_apps(apps), editor)


def execute(statement: str, *parameters: Any) -> None:
    with connection.cursor() as cursor:
        cursor.execute(statement, parameters or None)


def taken() -> list[tuple[str, Any]]:
    """Return type and payload of what has been published since the last look."""
    found = [(message.type, message.payload) for message in OutboxMessage.objects.order_by("id")]
    OutboxMessage.objects.all().delete()
    return found


def keys() -> list[str | None]:
    return [message.key for message in OutboxMessage.objects.order_by("id")]


def row(account: Account, **values: Any) -> dict[str, Any]:
    return {
        "id": account.pk,
        "owner name": account.owner,
        "balance": None,
        "details": {},
        "token": "\\x",
        "seen_at": None,
        **values,
    }


PUBLISH_ACCOUNTS = PublishRowChanges("testapp.Account", topic=TOPIC, exclude=["password"])


@pytest.fixture
def account() -> Account:
    """A row of a table whose changes are published."""
    account = Account.objects.create(owner="Ann")
    migrate(PUBLISH_ACCOUNTS)
    return account


def test_rows_are_published_whatever_program_writes_them(account: Account) -> None:
    Account.objects.bulk_create([Account(owner="Bob"), Account(owner="Cid")])
    bob, cid = Account.objects.filter(owner__in=["Bob", "Cid"]).order_by("id")
    Account.objects.filter(pk__in=[bob.pk, cid.pk]).update(balance=1)
    execute("DELETE FROM testapp_account WHERE id = %s", cid.pk)
    with (
        connection.cursor() as cursor,
        cursor.copy('COPY testapp_account ("owner name", password, details, token) FROM STDIN') as copy,
    ):
        copy.write_row(("Dan", "x", "{}", ""))
    dan = Account.objects.get(owner="Dan")
    changed = ["balance"]
    assert sorted(taken(), key=str) == sorted(
        [
            ("testapp_account.insert", {"new": row(bob)}),
            ("testapp_account.insert", {"new": row(cid)}),
            ("testapp_account.update", {"old": row(bob), "new": row(bob, balance=1), "changed": changed}),
            ("testapp_account.update", {"old": row(cid), "new": row(cid, balance=1), "changed": changed}),
            ("testapp_account.delete", {"old": row(cid, balance=1)}),
            ("testapp_account.insert", {"new": row(dan)}),
        ],
        key=str,
    )


def test_the_message_is_keyed_by_the_primary_key_and_in_the_writers_transaction(account: Account) -> None:
    Account.objects.update(balance=2)
    message = OutboxMessage.objects.get()
    assert (message.key, message.host_id, message.topic.name) == (str(account.pk), None, TOPIC)
    sid = transaction.savepoint()
    Account.objects.update(balance=3)
    assert OutboxMessage.objects.count() == 2
    transaction.savepoint_rollback(sid)
    assert OutboxMessage.objects.count() == 1


def test_only_rows_that_really_changed_are_published(account: Account) -> None:
    Account.objects.update(balance=None, owner="Ann")
    Account.objects.update(password="the excluded column alone")
    Account.objects.filter(pk=-1).update(balance=3)
    Account.objects.filter(pk=-1).delete()
    assert taken() == []
    Account.objects.create(owner="Bob", balance=1)
    taken()
    Account.objects.update(balance=1)
    assert [payload["old"]["balance"] for _, payload in taken()] == [None]


def test_null_and_a_value_are_distinguished_both_ways(account: Account) -> None:
    Account.objects.update(balance=0)
    Account.objects.update(balance=None)
    found = [(payload["old"]["balance"], payload["new"]["balance"], payload["changed"]) for _, payload in taken()]
    assert found == [(None, 0, ["balance"]), (0, None, ["balance"])]


def test_columns_of_every_type_look_the_same_whatever_the_session_prefers(account: Account) -> None:
    execute("SET LOCAL timezone = 'Asia/Tokyo'")
    execute("SET LOCAL bytea_output = 'escape'")
    execute(
        "UPDATE testapp_account SET token = %s, seen_at = %s, balance = %s, details = %s",
        b"\x00\xff'",
        "2026-01-02T03:04:05.678901+00:00",
        "12345678.90",
        '{"a": [1, null, "ü"]}',
    )
    [(_, payload)] = taken()
    assert payload["new"] == row(
        account,
        token="\\x00ff27",
        seen_at="2026-01-02T03:04:05.678901+00:00",
        balance=12345678.9,
        details={"a": [1, None, "ü"]},
    )
    assert payload["changed"] == ["balance", "details", "seen_at", "token"]


def test_an_excluded_column_is_in_no_event(account: Account) -> None:
    Account.objects.create(owner="Bob", password="hunter2")
    Account.objects.update(password="hunter3", balance=1)
    Account.objects.all().delete()
    found = str(taken())
    assert found.count("testapp_account.") == 5
    assert "hunter" not in found
    assert "password" not in found


def test_fields_name_the_only_published_columns() -> None:
    migrate(PublishRowChanges("testapp.Account", TOPIC, fields=["owner", "balance"]))
    account = Account.objects.create(owner="Ann")
    Account.objects.update(password="x", seen_at="2026-01-01T00:00:00Z")
    Account.objects.update(balance=1)
    account.delete()
    assert taken() == [
        ("testapp_account.insert", {"new": {"owner name": "Ann", "balance": None}}),
        (
            "testapp_account.update",
            {
                "old": {"owner name": "Ann", "balance": None},
                "new": {"owner name": "Ann", "balance": 1},
                "changed": ["balance"],
            },
        ),
        ("testapp_account.delete", {"old": {"owner name": "Ann", "balance": 1}}),
    ]


def test_another_primary_key_is_another_row(account: Account) -> None:
    execute("UPDATE testapp_account SET id = id + 1000, balance = 5")
    old, new = row(account), row(account, id=account.pk + 1000, balance=5)
    assert keys() == [str(account.pk), str(account.pk + 1000)]
    assert taken() == [("testapp_account.delete", {"old": old}), ("testapp_account.insert", {"new": new})]


def test_an_upsert_publishes_what_happened_to_each_row(account: Account) -> None:
    execute(
        'INSERT INTO testapp_account (id, "owner name", password, details, token) '
        "VALUES (%s, 'Ann B.', '', '{}', ''), (%s, 'Bob', '', '{}', '') "
        'ON CONFLICT (id) DO UPDATE SET "owner name" = excluded."owner name"',
        account.pk,
        account.pk + 1,
    )
    assert {type: payload["new"]["owner name"] for type, payload in taken()} == {
        "testapp_account.insert": "Bob",
        "testapp_account.update": "Ann B.",
    }


def test_many_rows_of_one_statement_find_their_old_ones(account: Account) -> None:
    execute("DELETE FROM testapp_account")
    execute(
        'INSERT INTO testapp_account (id, "owner name", password, details, token) '
        "SELECT n, n::text, '', '{}', '' FROM generate_series(1, 5000) AS n"
    )
    taken()
    execute("UPDATE testapp_account SET balance = id WHERE id % 2 = 0")
    found = taken()
    assert len(found) == 2500
    for _, payload in found:
        assert payload["old"]["owner name"] == payload["new"]["owner name"] == str(int(payload["new"]["balance"]))


def test_events_choose_the_statements_and_type_prefix_names_them() -> None:
    migrate(PublishRowChanges("testapp.Account", TOPIC, events=["update"], type_prefix="account"))
    account = Account.objects.create(owner="Ann")
    Account.objects.update(balance=1)
    account.delete()
    assert [type for type, _ in taken()] == ["account.update"]


def test_key_and_host_are_the_new_rows_columns_and_the_old_ones_of_a_deletion() -> None:
    migrate(PublishRowChanges("testapp.Account", TOPIC, key="owner", host_id="balance"))
    Account.objects.create(owner="Ann", balance=7)
    Account.objects.update(owner="Bob", balance=None)
    Account.objects.update(balance=8)
    Account.objects.all().delete()
    found = [(message.key, message.host_id) for message in OutboxMessage.objects.order_by("id")]
    assert found == [("Ann", "7.00"), ("Bob", None), ("Bob", "8.00"), ("Bob", "8.00")]


def test_a_condition_chooses_the_rows() -> None:
    migrate(PublishRowChanges("testapp.Account", TOPIC, condition="new.balance > 100 OR old.balance > 100"))
    account = Account.objects.create(owner="Ann", balance=1)
    Account.objects.update(balance=2)
    Account.objects.update(balance=200)
    Account.objects.update(balance=3)
    account.delete()
    assert [payload["new"]["balance"] for _, payload in taken()] == [200, 3]


def test_a_custom_payload_or_none() -> None:
    payload = (
        "CASE WHEN new.balance > 0 THEN new_row - 'details' || jsonb_build_object('by', TG_OP, 'was', old_row) END"
    )
    migrate(PublishRowChanges("testapp.Account", TOPIC, fields=["owner", "details"], payload=payload))
    Account.objects.create(owner="Ann")
    Account.objects.create(owner="Bob", balance=1)
    assert taken() == [("testapp_account.insert", {"owner name": "Bob", "by": "INSERT", "was": None})]


def test_a_missing_topic_stops_the_writer_and_says_what_to_do(account: Account) -> None:
    Topic.objects.filter(name=TOPIC).delete()
    with pytest.raises(ProgrammingError) as raised, transaction.atomic():
        Account.objects.update(balance=1)
    assert 'There is no topic "accounts.events", to which the changes of testapp_account' in str(raised.value)
    assert 'HINT:  Declare it in PUBSUB["topics"] and run migrate' in str(raised.value)
    Account.objects.filter(pk=-1).update(balance=1)


def test_a_declared_topic_is_made_for_the_data_migrations_that_follow(settings: Any) -> None:
    settings.PUBSUB = {"topics": {"accounts.declared": {"partitions": 3}}}
    migrate(PublishRowChanges("testapp.Account", "accounts.declared"))
    Account.objects.create(owner="Ann")
    assert Topic.objects.get(name="accounts.declared").total_partitions == 3
    assert len(taken()) == 1


def test_writers_need_no_rights_on_the_outbox(account: Account) -> None:
    """Nor can they lead the events astray by a table of that name, or forge any by a table of their own."""
    execute("CREATE ROLE pubsub_test_writer")
    execute("GRANT SELECT, INSERT, UPDATE ON testapp_account TO pubsub_test_writer")
    execute("GRANT USAGE ON SEQUENCE testapp_account_id_seq TO pubsub_test_writer")
    execute(
        "GRANT TEMPORARY ON DATABASE {} TO pubsub_test_writer".format(
            connection.ops.quote_name(connection.settings_dict["NAME"])
        )
    )
    execute("SET LOCAL ROLE pubsub_test_writer")
    execute("CREATE TEMPORARY TABLE outbox_message_t (topic_id int, type text, key text, host_id text, payload jsonb)")
    execute("CREATE TEMPORARY TABLE outbox_topics AS SELECT 1 AS id, 'accounts.events' AS name")
    execute("UPDATE testapp_account SET balance = 3")
    execute("CREATE TEMPORARY TABLE mine (LIKE testapp_account)")
    [function] = _installed("pg_proc", "proname")[:1]
    with pytest.raises(DatabaseError, match="permission denied for function"), transaction.atomic():
        execute(
            f"CREATE TRIGGER forge AFTER INSERT ON mine REFERENCING NEW TABLE AS new_rows "
            f"FOR EACH STATEMENT EXECUTE FUNCTION {function}()"
        )
    execute("RESET ROLE")
    with connection.cursor() as cursor:
        cursor.execute("SELECT type FROM public.outbox_message_t")
        assert cursor.fetchall() == [("testapp_account.update",)]


def _installed(catalogue: str, column: str) -> list[str]:
    with connection.cursor() as cursor:
        cursor.execute(
            f"SELECT {column} FROM {catalogue} WHERE {column} ~ '^pubsub_(insert|update|delete)_' ORDER BY 1"
        )
        return [name for (name,) in cursor.fetchall()]


def test_migrating_back_leaves_nothing() -> None:
    migration, _ = migrate(PUBLISH_ACCOUNTS)
    assert len(_installed("pg_trigger", "tgname")) == len(_installed("pg_proc", "proname")) == 3
    assert all(name.endswith("_v1") for name in _installed("pg_proc", "proname"))
    migrate_back(migration)
    assert _installed("pg_trigger", "tgname") == _installed("pg_proc", "proname") == []
    Account.objects.create(owner="Ann")
    assert taken() == []


def test_the_operation_given_again_replaces_what_it_finds(account: Account) -> None:
    migrate(PUBLISH_ACCOUNTS)
    migrate(PublishRowChanges("testapp.Account", TOPIC, fields=["balance"], events=["insert"]))
    Account.objects.update(balance=1)
    Account.objects.create(owner="Bob")
    assert taken() == [("testapp_account.insert", {"new": {"balance": None}})]


def test_stopping_and_starting_with_other_options_can_be_migrated_back(account: Account) -> None:
    stop = StopRowChanges("testapp.Account", topic=TOPIC, exclude=["password"])
    start = PublishRowChanges("testapp.Account", TOPIC, fields=["balance"])
    migration, _ = migrate(stop)
    Account.objects.update(balance=1)
    assert taken() == []
    migrate_back(migration)
    Account.objects.update(balance=2)
    assert [payload["old"]["owner name"] for _, payload in taken()] == ["Ann"]
    migration, _ = migrate(stop, start)
    Account.objects.update(balance=3)
    assert [payload["old"] for _, payload in taken()] == [{"balance": 2}]
    migrate_back(migration)
    Account.objects.update(balance=4)
    assert [payload["old"]["owner name"] for _, payload in taken()] == ["Ann"]


def test_one_table_may_publish_to_two_topics(account: Account) -> None:
    migration, _ = migrate(PublishRowChanges("testapp.Account", "audit", events=["update"]))
    Account.objects.update(balance=1)
    assert {message.topic.name for message in OutboxMessage.objects.all()} == {TOPIC, "audit"}
    migrate_back(migration)
    Account.objects.update(balance=2)
    assert OutboxMessage.objects.count() == 3


ODD = """odd "table"; DROP 'it' $$ 100%s {x}"""


def test_odd_names_are_quoted() -> None:
    table = connection.ops.quote_name("x").replace("x", ODD.replace('"', '""'))
    with connection.cursor() as cursor:
        cursor.execute(f'CREATE TABLE {table} ("the ""id""" int PRIMARY KEY, "select" text, "it\'s % hidden" text)')
    migrate(PublishRowChanges(ODD, TOPIC, key="select", exclude=["it's % hidden"]))
    with connection.cursor() as cursor:
        cursor.execute(f"INSERT INTO {table} VALUES (1, 'a', 'secret')")
        cursor.execute(f"UPDATE {table} SET \"select\" = 'b'")
    assert keys() == ["a", "b"]
    first, second = taken()
    assert first == (f"{ODD}.insert", {"new": {'the "id"': 1, "select": "a"}})
    assert second[1]["changed"] == ["select"]


@pytest.mark.parametrize(("first", "second"), [("old", "new"), ("old_row", "new_row"), ("published", "change")])
def test_columns_may_have_the_names_that_the_trigger_uses(first: str, second: str) -> None:
    execute(f"CREATE TABLE history (id int PRIMARY KEY, {first} int, {second} int)")
    migrate(PublishRowChanges("history", TOPIC, fields=["id", first, second]), PublishRowChanges("history", "audit"))
    execute("INSERT INTO history VALUES (1, 2, 3)")
    execute(f"UPDATE history SET {first} = 4")
    execute("DELETE FROM history")
    old, new = {"id": 1, first: 2, second: 3}, {"id": 1, first: 4, second: 3}
    found = taken()
    assert found[::2] == found[1::2]
    assert found[::2] == [
        ("history.insert", {"new": old}),
        ("history.update", {"old": old, "new": new, "changed": [first]}),
        ("history.delete", {"old": new}),
    ]


def test_a_column_that_the_keys_index_includes_is_not_part_of_the_key() -> None:
    execute("CREATE TABLE covered (name text, b int, a int, PRIMARY KEY (a, b) INCLUDE (name))")
    migrate(PublishRowChanges("covered", TOPIC))
    execute("INSERT INTO covered VALUES ('Ann', 2, 1)")
    execute("UPDATE covered SET name = 'Bob'")
    assert keys() == ["1:2", "1:2"]
    assert [type for type, _ in taken()] == ["covered.insert", "covered.update"]


def test_a_table_of_another_schema_partitioned_and_with_a_key_of_two_columns() -> None:
    execute("CREATE SCHEMA crm")
    execute(
        "CREATE TABLE crm.visits (day date, number int, notes json, PRIMARY KEY (number, day)) PARTITION BY RANGE (day)"
    )
    execute("CREATE TABLE crm.visits_1 PARTITION OF crm.visits FOR VALUES FROM ('2026-01-01') TO ('2026-02-01')")
    execute("CREATE TABLE crm.visits_2 PARTITION OF crm.visits FOR VALUES FROM ('2026-02-01') TO ('2026-03-01')")
    migrate(PublishRowChanges("crm.visits", TOPIC))
    execute("INSERT INTO crm.visits VALUES ('2026-01-05', 1, '{}')")
    execute("UPDATE crm.visits SET notes = '[1]'")
    execute("UPDATE crm.visits SET day = '2026-02-05'")
    assert keys() == ["1:2026-01-05", "1:2026-01-05", "1:2026-01-05", "1:2026-02-05"]
    assert [type for type, _ in taken()] == [f"crm.visits.{kind}" for kind in ("insert", "update", "delete", "insert")]


def test_a_table_without_a_primary_key_can_publish_insertions_and_deletions() -> None:
    execute("CREATE TABLE loose (n int)")
    with pytest.raises(InvalidPublication, match="loose has no primary key"):
        migrate(PublishRowChanges("loose", TOPIC))
    migrate(PublishRowChanges("loose", TOPIC, events=["insert", "delete"]))
    execute("INSERT INTO loose VALUES (1), (1)")
    execute("DELETE FROM loose")
    assert keys() == [None] * 4
    assert [type for type, _ in taken()] == ["loose.insert"] * 2 + ["loose.delete"] * 2


def test_a_column_that_is_added_later_is_published_by_the_same_session(account: Account) -> None:
    Account.objects.update(balance=1)
    taken()
    execute("ALTER TABLE testapp_account ADD COLUMN later int DEFAULT 5")
    Account.objects.update(balance=2)
    [(_, payload)] = taken()
    assert payload["new"]["later"] == 5


def test_the_statements_can_be_shown_without_the_tables_having_changed() -> None:
    _, statements = migrate(PUBLISH_ACCOUNTS, collect_sql=True)
    assert _installed("pg_trigger", "tgname") == []
    text = "\n".join(statements)
    assert 'AFTER UPDATE ON "testapp_account" REFERENCING OLD TABLE AS old_rows NEW TABLE AS new_rows' in text
    assert "-- Publish the changes of testapp.Account to accounts.events" in text


def test_a_migration_file_can_hold_it() -> None:
    migration = Migration("0002_test", "testapp")
    migration.operations = [
        PublishRowChanges("testapp.Account", TOPIC, exclude=["password"]),
        StopRowChanges("crm.visits", TOPIC, events=("insert",)),
    ]
    text = MigrationWriter(migration).as_string()
    scope: dict[str, Any] = {}
    exec(text, scope)
    first, second = scope["Migration"].operations
    for operation in (first, second, *migration.operations):
        del operation._constructor_args  # positional or by name
    assert [vars(first), vars(second)] == [vars(written) for written in migration.operations]
    assert second.migration_name_fragment == "stop_publish_crm_visits"


class _Router:
    def __init__(self, *refused: str) -> None:
        self.refused = refused

    def allow_migrate(self, db: str, app_label: str, **hints: Any) -> bool | None:
        return False if app_label in self.refused else None


def test_routers_decide(settings: Any) -> None:
    settings.DATABASE_ROUTERS = [_Router("testapp")]
    migration, _ = migrate(PUBLISH_ACCOUNTS)
    assert _installed("pg_trigger", "tgname") == []
    migrate_back(migration)
    settings.DATABASE_ROUTERS = [_Router("pubsub")]
    with pytest.raises(WrongDatabase, match='outbox\'s tables are not on database "default"'):
        migrate(PUBLISH_ACCOUNTS)


def test_another_kind_of_database_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections["default"], "vendor", "sqlite")
    with pytest.raises(NotSupportedError, match="is sqlite"):
        migrate(PUBLISH_ACCOUNTS)


@pytest.mark.parametrize(
    ("table", "options", "error"),
    [
        (
            "testapp.Account",
            {"exclude": ["pasword"]},
            'testapp_account has no column "pasword". Did you mean "password"?',
        ),
        (
            "testapp_account",
            {"exclude": ["owner"]},
            'testapp_account has no column "owner". Did you mean "owner name"?',
        ),
        ("testapp.Account", {"key": "region"}, 'testapp_account has no column "region". There are: '),
        ("testapp.Acount", {}, 'There is neither a model nor a table "testapp.Acount" in database "default".'),
        ("testapp.Account", {"exclude": "password"}, "exclude must be a list such as ['password'], not 'password'."),
        ("testapp.Account", {"events": ["insert", "truncate"]}, "events must be some of insert, update, delete"),
        ("testapp.Account", {"events": []}, "events must be some of insert, update, delete"),
        ("testapp.Account", {"fields": ["owner"], "exclude": ["id"]}, "rules out exclude"),
    ],
)
def test_options_that_cannot_work_are_refused_when_declared_or_migrated(
    table: str, options: dict[str, Any], error: str
) -> None:
    with pytest.raises(InvalidPublication) as raised, transaction.atomic():
        migrate(PublishRowChanges(table, TOPIC, **options))
    assert error in str(raised.value)
    assert _installed("pg_trigger", "tgname") == []


def test_a_topic_that_cannot_be_is_refused() -> None:
    with pytest.raises(UnknownTopic):
        PublishRowChanges("testapp.Account", "no spaces")
