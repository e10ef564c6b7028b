"""A handler cannot end the transaction it is called in, whichever way it tries, and is left everything else."""

from collections.abc import Callable
from typing import Any

import psycopg
import pytest
from django.db import DatabaseError, connections, transaction
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from psycopg import sql
from psycopg.pq import TransactionStatus

from pubsub.db.first_words import first_words
from pubsub.db.guard import check_left_outside, check_still_in_transaction, forget, refuse_if_it_ends, refusing_to_end
from pubsub.errors import HandlerEndedTransaction

connection = connections["default"]


def session() -> Any:
    return connection.connection


ENDINGS = [
    "COMMIT",
    "ROLLBACK",
    "END",
    "ABORT",
    "PREPARE TRANSACTION 'mine'",
    "/**/ rollback and chain",
    "SELECT 1;END",
]

WAYS: dict[str, Callable[[Any], Any]] = {
    "Django's cursor": lambda statement: connection.cursor().execute(statement),
    "psycopg's cursor": lambda statement: session().cursor().execute(statement),
    "psycopg's connection": lambda statement: session().execute(statement),
    "many at once": lambda statement: session().cursor().executemany(statement, [()]),
    "a stream": lambda statement: list(session().cursor().stream(statement)),
    "a copy": lambda statement: session().cursor().copy(statement).__enter__(),
}

FORMS: dict[str, Callable[[str], Any]] = {
    "str": str,
    "bytes": str.encode,
    "SQL": sql.SQL,
    "Composed": lambda statement: sql.SQL("{}{}").format(sql.SQL(statement), sql.SQL(" ")),
}


def tries(what: Callable[[], Any]) -> None:
    """What is refused is not sent: the transaction is the same afterwards, and not even a failed one."""
    with transaction.atomic():
        connection.cursor().execute("CREATE TEMPORARY TABLE done ON COMMIT DROP AS SELECT 1 AS n")
        with refusing_to_end("default"), pytest.raises(HandlerEndedTransaction, match=r"transaction\.atomic"):
            what()
        with connection.cursor() as cursor:
            cursor.execute("SELECT n FROM done")
            assert cursor.fetchone() == (1,)


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("ending", ENDINGS)
def test_by_a_statement(way: str, ending: str) -> None:
    tries(lambda: WAYS[way](ending))


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("way", ["Django's cursor", "psycopg's connection"])
def test_by_a_statement_in_any_form(way: str, form: str) -> None:
    tries(lambda: WAYS[way](FORMS[form]("commit")))


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    "method",
    [
        lambda: connection.commit(),
        lambda: connection.rollback(),
        lambda: transaction.commit(),
        lambda: session().commit(),
        lambda: session().rollback(),
        lambda: session().__exit__(None, None, None),
    ],
)
def test_by_a_method(method: Callable[[], Any]) -> None:
    tries(method)


@pytest.mark.django_db(transaction=True)
def test_by_a_cursor_that_was_made_before() -> None:
    with transaction.atomic(), connection.cursor() as cursor:
        with refusing_to_end("default"), pytest.raises(HandlerEndedTransaction):
            cursor.execute("COMMIT")
        cursor.execute("SELECT 1")


@pytest.mark.django_db(transaction=True)
def test_savepoints_are_free_and_so_is_everything_afterwards() -> None:
    with transaction.atomic():
        with refusing_to_end("default"):
            with pytest.raises(ZeroDivisionError), transaction.atomic():
                raise ZeroDivisionError
            with transaction.atomic(), connection.cursor() as cursor:
                for statement in ("SAVEPOINT s", "ROLLBACK TO s", "rollback work to savepoint s", "RELEASE s"):
                    cursor.execute(statement)
                cursor.execute("SELECT 'a; COMMIT', $q$; ROLLBACK$q$, 1 AS \"; END\", CASE WHEN true THEN 1 END")
            with session().transaction():
                session().execute("SELECT 1")
        transaction.set_rollback(True)
    with transaction.atomic():
        connection.cursor().execute("COMMIT")
    assert session().info.transaction_status == TransactionStatus.IDLE


@pytest.mark.django_db(transaction=True)
def test_hooks_of_handlers_are_robust_and_have_a_name(caplog: pytest.LogCaptureFixture) -> None:
    called = []

    class Hook:
        def __call__(self) -> None:
            raise ZeroDivisionError

        def __repr__(self) -> str:
            return "the hook of a handler"

    with transaction.atomic(), refusing_to_end("default"):
        transaction.on_commit(Hook())
        transaction.on_commit(lambda: called.append(1))
    assert called == [1]
    assert "the hook of a handler" in caplog.text
    with pytest.raises(ZeroDivisionError), transaction.atomic():
        transaction.on_commit(Hook())


@pytest.mark.django_db(transaction=True)
def test_an_end_that_was_not_prevented_is_noticed() -> None:
    with transaction.atomic():
        connection.cursor().execute("SELECT 1")
        check_still_in_transaction("default")
        session().pgconn.exec_(b"COMMIT")
        with pytest.raises(HandlerEndedTransaction, match="committed, rolled back or closed"):
            check_still_in_transaction("default")
        connection.cursor().execute("SELECT 1")  # a transaction has begun again: Django may commit it


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    "left", [lambda: connection.cursor().execute("BEGIN"), lambda: transaction.atomic().__enter__()]
)
def test_an_open_transaction_is_undone_and_forgotten(left: Callable[[], Any]) -> None:
    connection.ensure_connection()
    check_left_outside("default")
    left()
    with pytest.raises(HandlerEndedTransaction, match="did not end that"):
        check_left_outside("default")
    assert connection.get_autocommit()
    assert not connection.in_atomic_block
    check_left_outside("default")
    forget("default")


# The lexer

TRAPS = {
    "E'a\\'; COMMIT'": [()],
    "SELECT E'a' -- goes on\n  'b\\'; COMMIT; '": [("SELECT",)],
    "SELECT 'a\\'; COMMIT": [("SELECT",), ("COMMIT",)],
    "SELECT $q$; ROLLBACK $ $x$ $q$; END": [("SELECT",), ("END",)],
    "SELECT a$b$; COMMIT; SELECT a$b$": [("SELECT", "A$B$"), ("COMMIT",), ("SELECT", "A$B$")],
    "SELECT $1; COMMIT; SELECT $1": [("SELECT",), ("COMMIT",), ("SELECT",)],
    "/* /* ; COMMIT */ ; */ END": [("END",)],
    "-- a\rCOMMIT": [("COMMIT",)],
    'SELECT U&"a""; COMMIT; ': [("SELECT", "U")],
    "SELECT 1 -/* ; COMMIT */- 1; END": [("SELECT",), ("END",)],
    "rollback/**/work -- x\n to s": [("ROLLBACK", "WORK", "TO", "S")],
    "\u00a0COMMIT": [("\u00a0COMMIT",)],
    "CREATE RULE r AS ON INSERT TO t DO (DELETE FROM t; SELECT 1); COMMIT": [
        ("CREATE", "RULE", "R", "AS"),
        ("COMMIT",),
    ],
    "CREATE FUNCTION f() RETURNS int BEGIN ATOMIC SELECT CASE WHEN true THEN 1 END; SELECT 2; END; COMMIT": [
        ("CREATE", "FUNCTION", "F"),
        ("COMMIT",),
    ],
    "CREATE FUNCTION begin() RETURNS int LANGUAGE sql AS ''; COMMIT": [("CREATE", "FUNCTION", "BEGIN"), ("COMMIT",)],
    ";; ; -- nothing": [],
}


@pytest.mark.parametrize("text", TRAPS)
def test_first_words(text: str) -> None:
    assert [words[:4] for words in first_words(text)] == TRAPS[text]


LONG = 50_000


LONG_TEXTS = [
    *[part * LONG for part in ("/*", "/**/", "E'\\", "E''\n", "$a", "$a$b", "(", ";", " \n")],
    *["'" * (LONG + 1), '"' * (LONG + 1), "E'" + "\n--" * LONG, "".join(f"$a{n}$" for n in range(LONG))],
]


@pytest.mark.parametrize("text", LONG_TEXTS, ids=lambda text: text[:6])
@pytest.mark.timeout(10)
def test_no_text_takes_long(text: str) -> None:
    refuse_if_it_ends(f"-- \n{text}")


blank = st.sampled_from(["", " ", "\n", "/* ; COMMIT */", "/* a /* b */ ; END */", "-- ; ROLLBACK\n", "\t--'\n "])
line_breaks = st.sampled_from([" \n ", "--x\n", "\n--;\n"])
inner = st.text("ab'\\\"$;/*- \nE€", max_size=8)


@st.composite
def literals(draw: st.DrawFn) -> str:
    text = draw(inner)
    kind = draw(st.sampled_from(["plain", "escaping", "dollar", "tagged", "identifier", "continued"]))
    quoted = text.replace("'", "''")
    escaped = text.replace("\\", "\\\\").replace("'", draw(st.sampled_from(["''", "\\'"])))
    match kind:
        case "plain":
            return f"'{quoted}'"
        case "escaping":
            return f"E'{escaped}'"
        case "continued":
            return f"e'a'{draw(line_breaks)}'{escaped}'"
        case "identifier":
            return f'1 AS "x{text.replace(chr(34), chr(34) * 2)}"'
        case _:
            tag = "" if kind == "dollar" else "€t1"
            return f"${tag}${text.replace('$', '')}${tag}$"


@st.composite
def statements(draw: st.DrawFn) -> str:
    before, between, behind = draw(blank), draw(blank), draw(blank)
    return f"{before}SELECT {between}{draw(literals())}{behind}"


ends = st.sampled_from(["COMMIT", "Rollback Work", "END", "abort", "ROLLBACK AND NO CHAIN"])
others = st.sampled_from(["SAVEPOINT s", "SAVEPOINT s; ROLLBACK TO s", "SAVEPOINT s; ROLLBACK /**/TRANSACTION TO\ns"])


@pytest.mark.django_db(transaction=True)
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.one_of(statements(), ends, others, blank), min_size=1, max_size=5))
def test_postgresql_sees_the_same(texts: list[str]) -> None:
    text = ";".join(texts)
    forget("default")
    connection.ensure_connection()
    raw = session()
    raw.execute("BEGIN")
    cursor = psycopg.ClientCursor(raw)
    try:
        cursor.execute(text.encode())
    except psycopg.errors.NoActiveSqlTransaction:
        pass  # a savepoint behind an end
    else:
        assert len(list(cursor.results())) == max(1, len(list(first_words(text))))
    ended = raw.info.transaction_status != TransactionStatus.INTRANS
    try:
        refuse_if_it_ends(text)
    except HandlerEndedTransaction:
        assert ended
    else:
        assert not ended
    finally:
        forget("default")


@pytest.mark.django_db(transaction=True)
def test_a_block_left_with_the_connection_closed_is_an_error_of_djangos() -> None:
    with pytest.raises(DatabaseError), transaction.atomic(), refusing_to_end("default"):
        connection.close()
        connection.cursor()
