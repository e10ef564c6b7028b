"""Every list stays fast, however long it grows."""

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from tests.factories import (
    ConsumerOffsetFactory,
    DeadLetterFactory,
    FindingFactory,
    LogCounterFactory,
    LogPartitionCounterFactory,
    OperatorEventFactory,
    SubscriptionFactory,
    TopicFactory,
)

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize("model", ["deadletter", "subscription", "topic", "finding", "operatorevent"])
def test_a_list_takes_the_same_few_queries_however_long_it_is(admin_client, model):
    address = reverse(f"admin:pubsub_{model}_changelist")

    def queries():
        for _ in range(2):  # the first time also fills the caches of content types and so on
            with CaptureQueriesContext(
                connection,
            ) as captured:
                assert admin_client.get(address).status_code == 200
        return captured.captured_queries

    def add(count):
        for _ in range(count):
            topic = TopicFactory()
            LogCounterFactory(topic=topic)
            LogPartitionCounterFactory(topic=topic)
            group = SubscriptionFactory(topic=topic).group_id
            ConsumerOffsetFactory(topic=topic, group_id=group)
            DeadLetterFactory(topic=topic, group_id=group)
            FindingFactory(job=f"job-{topic.pk}")
            OperatorEventFactory(topic=topic.name, group_id=group)

    add(2)
    few = queries()
    add(20)
    many = queries()
    assert len(many) == len(few) <= 8
    for query in many:
        sql = query["sql"]
        if any(table in sql for table in ("dead_letter_queue", "spark_findings", "operator_events")):
            assert "COUNT(" not in sql
            assert "DISTINCT" not in sql


def test_findings_are_found_by_an_index_however_many_runs_there_were(admin_client):
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO spark_findings (run_id, job, made_at, row_number, data) SELECT md5(n::text)::uuid, "
            "'job-' || n % 3, now() + n * interval '1 s', 0, to_jsonb(n) FROM generate_series(1, 20000) AS n"
        )
        cursor.execute("ANALYZE spark_findings")
        with CaptureQueriesContext(connection) as captured:
            page = admin_client.get(reverse("admin:pubsub_finding_changelist"))
        assert [run.rows for run in page.context["runs"]] == [[["19,998"]], [["19,999"]], [["20,000"]]]
        (asked,) = (it["sql"] for it in captured if "spark_findings" in it["sql"])
        cursor.execute("EXPLAIN " + asked)
        assert "Seq Scan on spark_findings" not in "\n".join(line for (line,) in cursor.fetchall())


def test_the_audit_log_is_read_from_its_end(admin_client):
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO operator_events (actor, action, topic, group_id, reason) "
            "SELECT 'olga', 'pause', 'orders', 'mail', '' FROM generate_series(1, 20000)"
        )
        cursor.execute("ANALYZE operator_events")
        with CaptureQueriesContext(connection) as captured:
            assert admin_client.get(reverse("admin:pubsub_operatorevent_changelist")).status_code == 200
        (asked,) = (it["sql"] for it in captured if "operator_events" in it["sql"])
        cursor.execute("EXPLAIN " + asked)
        plan = "\n".join(line for (line,) in cursor.fetchall())
    assert "Index Scan Backward" in plan
    assert "Limit" in plan


@pytest.mark.parametrize(
    ("query", "index"),
    [
        ("", "pkey"),
        ("?group=rare", "by_group"),
        ("?type=rare", "by_type"),
        ("?exception=errors.Rare", "by_exception"),
        ("?host=rare", "by_host"),
        ("?key=rare", "keyed"),
        ("?q=rare", "keyed"),
        ("?q=00000000-0000-0000-0000-000000000000", "event"),
        ("?state=parked", "by_state"),
    ],
)
def test_dead_letters_are_found_by_an_index_whatever_is_asked(admin_client, query, index):
    topic = TopicFactory()
    with connection.cursor() as cursor:
        cursor.execute(
            """
            INSERT INTO dead_letter_queue (group_id, topic_id, partition_id, c_offset, event_id, transaction_id, type,
                key, host_id, payload, metadata, published_at, handler, exception_class, exception_message, traceback,
                attempts, state)
            SELECT 'group-' || n % 3, %s, 0, n, gen_random_uuid(), gen_random_uuid(), 'type-' || n % 4, 'key-' || n,
                'host-' || n % 500, '{}', '{}', now(), 'f', 'errors.E' || n % 5, '', '', 1,
                CASE n % 2 WHEN 0 THEN 'resolved' ELSE 'dead' END
            FROM generate_series(1, 20000) AS n
            """.replace("n % ", "n %% "),
            [topic.pk],
        )
        cursor.execute("ANALYZE dead_letter_queue")
        with CaptureQueriesContext(connection) as captured:
            assert admin_client.get(reverse("admin:pubsub_deadletter_changelist") + query).status_code == 200
        plans = []
        for asked in captured.captured_queries:
            if "dead_letter_queue" in asked["sql"]:
                cursor.execute("EXPLAIN " + asked["sql"].replace("%", "%%"))
                plans.append("\n".join(line for (line,) in cursor.fetchall()))
    assert len(captured) <= 8
    assert len(plans) == 2  # what there is to choose from, and the page
    for plan in plans:
        assert "Seq Scan on dead_letter_queue" not in plan
    assert f"dead_letter_queue_{index}" in plans[-1]
