import datetime as dt
from typing import Any

from django.core.serializers.json import DjangoJSONEncoder
from django.db import migrations, models
from django.db.models import F, Q
from django.db.models.functions import Coalesce, Greatest, Now
from django.db.models.lookups import LessThanOrEqual

from pubsub.models.fields import (
    ClockTimestamp,
    CurrentTransaction,
    Octets,
    RandomUUID,
    SnapshotField,
    TransactionIdField,
    TransactionUUID,
)

from ._sql_files import OnPostgreSQL, run_sql_file


def message_content() -> "list[tuple[str, models.Field[Any, Any]]]":
    """What a publisher says: the same columns wait in outbox_delayed_message and stand in outbox_message_t."""
    return [
        (
            "event_id",
            models.UUIDField(
                "event id",
                db_default=RandomUUID(),
                db_comment="What the outside world knows the event by: the same through delay, retry, replay and archive",
            ),
        ),
        (
            "topic",
            models.ForeignKey(
                "pubsub.topic",
                models.DO_NOTHING,
                related_name="+",
                db_constraint=False,
                db_index=False,
                db_default=1,
                verbose_name="topic",
                db_comment="A row of outbox_topics (not enforced, so that publishers share no lock)",
            ),
        ),
        (
            "type",
            models.TextField("type", default="", db_default="", db_comment="What happened, such as order.created"),
        ),
        ("key", models.TextField("key", null=True, db_comment="Events of one key keep their order; host_id if absent")),
        ("host_id", models.TextField("host", null=True, db_comment="The tenant")),
        ("user_id", models.TextField("user", null=True, db_comment="Who caused the event")),
        (
            "to_group",
            models.TextField("for group", null=True, db_comment="Only this group handles it; null: every group"),
        ),
        ("payload", models.JSONField("payload", encoder=DjangoJSONEncoder, db_comment="The event itself")),
        (
            "metadata",
            models.JSONField(
                "metadata",
                default=dict,
                db_default=models.Value({}, models.JSONField()),
                encoder=DjangoJSONEncoder,
                db_comment="What travels with the event: trace context, correlation, schema version",
            ),
        ),
        (
            "transaction_id",
            models.UUIDField(
                "transaction",
                db_default=TransactionUUID(),
                editable=False,
                db_comment="One value for all events of one transaction, whichever language inserted them",
            ),
        ),
        (
            "created_at",
            models.DateTimeField(
                "published",
                db_default=ClockTimestamp(),
                editable=False,
                db_comment="When it was published, by the database's clock",
            ),
        ),
    ]


def texts_fit(name: str) -> models.CheckConstraint:
    texts = Greatest(*map(Octets, ("type", "key", "host_id", "user_id", "to_group")))
    return models.CheckConstraint(condition=LessThanOrEqual(texts, 2000), name=name)


def times_fit(name: str, *columns: str) -> models.CheckConstraint:
    first, behind_last = dt.datetime(1, 1, 2, tzinfo=dt.UTC), dt.datetime(9999, 12, 31, tzinfo=dt.UTC)
    bounds = {f"{column}__gte": first for column in columns} | {f"{column}__lt": behind_last for column in columns}
    return models.CheckConstraint(condition=Q(**bounds), name=name)


class Migration(OnPostgreSQL):
    initial = True

    dependencies = []

    operations = [
        # What is published to, and who reads it.
        migrations.CreateModel(
            name="Topic",
            fields=[
                (
                    "id",
                    models.AutoField(
                        primary_key=True, serialize=False, db_comment="Never reused; 1 is the default topic"
                    ),
                ),
                ("name", models.TextField("name", db_comment="What publishers and subscribers call it")),
                (
                    "semantics",
                    models.TextField(
                        "semantics",
                        choices=[("PUB_SUB", "every group gets each event"), ("QUEUE", "one group gets each event")],
                        default="PUB_SUB",
                        db_default="PUB_SUB",
                        db_comment="PUB_SUB: every group gets each event; QUEUE: one group whose members compete",
                    ),
                ),
                (
                    "total_partitions",
                    models.IntegerField(
                        "partitions",
                        default=8,
                        db_default=8,
                        db_comment="Order is kept within a partition; at most this many workers are busy for a group at once",
                    ),
                ),
                (
                    "retention",
                    models.DurationField(
                        "retention",
                        default=dt.timedelta(days=7),
                        db_default=dt.timedelta(days=7),
                        db_comment="How long an event is kept at least, counted from its publication",
                    ),
                ),
                ("created_at", models.DateTimeField("created", db_default=Now(), editable=False)),
                (
                    "max_age",
                    models.DurationField(
                        "oldest backlog kept for a group",
                        null=True,
                        blank=True,
                        db_comment="A group further behind than this is moved on, and what it missed is recorded; null: never",
                    ),
                ),
                (
                    "max_bytes",
                    models.BigIntegerField(
                        "largest backlog kept for a group, in bytes",
                        null=True,
                        blank=True,
                        db_comment="A group that holds back more than this is moved on, and what it missed is recorded; null: never",
                    ),
                ),
                (
                    "zero_subscribers",
                    models.TextField(
                        "without subscriptions",
                        choices=[
                            ("keep", "keep events until retention drops them"),
                            ("refuse", "refuse to publish"),
                        ],
                        default="keep",
                        db_default="keep",
                        db_comment="What publishing does while no group holds retention back: keep events all the same, or refuse them",
                    ),
                ),
            ],
            options={
                "db_table": "outbox_topics",
                "db_table_comment": "Topics: one gapless, ordered log each",
                "verbose_name": "topic",
                "verbose_name_plural": "topics",
                "ordering": ["name"],
                "constraints": [
                    models.UniqueConstraint(fields=["name"], name="outbox_topics_name"),
                    models.CheckConstraint(condition=~Q(name=""), name="outbox_topics_name_given"),
                    models.CheckConstraint(
                        condition=Q(semantics__in=["PUB_SUB", "QUEUE"]), name="outbox_topics_semantics_known"
                    ),
                    models.CheckConstraint(condition=Q(total_partitions__gte=1), name="outbox_topics_has_partitions"),
                    models.CheckConstraint(
                        condition=Q(retention__gte=dt.timedelta(0)), name="outbox_topics_retention_not_negative"
                    ),
                    models.CheckConstraint(
                        condition=Q(zero_subscribers__in=["keep", "refuse"]),
                        name="outbox_topics_zero_subscribers_known",
                    ),
                    models.CheckConstraint(
                        condition=Q(max_age__isnull=True) | Q(max_age__gt=dt.timedelta(0)),
                        name="outbox_topics_max_age_positive",
                    ),
                    models.CheckConstraint(
                        condition=Q(max_bytes__isnull=True) | Q(max_bytes__gt=0),
                        name="outbox_topics_max_bytes_positive",
                    ),
                ],
            },
        ),
        # Number 1 is the default topic's, whichever is created first; TRUNCATE … RESTART IDENTITY keeps to it as well.
        migrations.RunSQL("ALTER TABLE outbox_topics ALTER COLUMN id SET START WITH 2 RESTART", migrations.RunSQL.noop),
        migrations.CreateModel(
            name="Resize",
            fields=[
                ("pk", models.CompositePrimaryKey("topic_id", "position", serialize=False)),
                ("topic", models.ForeignKey("pubsub.topic", models.CASCADE, related_name="resizes", db_index=False)),
                (
                    "position",
                    models.BigIntegerField(db_comment="The first position that is partitioned by the new number"),
                ),
                ("c_offset", models.BigIntegerField(db_comment="The topic's offset there")),
                ("partitions_before", models.IntegerField()),
                ("partitions_after", models.IntegerField()),
                ("resized_at", models.DateTimeField(db_default=ClockTimestamp(), editable=False)),
            ],
            options={
                "default_permissions": (),
                "db_table": "outbox_topic_resizes",
                "db_table_comment": "From which position on a topic has how many partitions; keeps the order of keys over a resize",
            },
        ),
        migrations.CreateModel(
            name="Subscription",
            fields=[
                ("id", models.BigAutoField("ID", auto_created=True, primary_key=True, serialize=False)),
                (
                    "topic",
                    models.ForeignKey(
                        "pubsub.topic",
                        models.PROTECT,
                        related_name="subscriptions",
                        db_index=False,
                        verbose_name="topic",
                    ),
                ),
                (
                    "group_id",
                    models.TextField(
                        "group", db_comment="The consumer group; groups read independently of one another"
                    ),
                ),
                (
                    "status",
                    models.TextField(
                        "status",
                        choices=[
                            ("ACTIVE", "active"),
                            ("PAUSED", "paused: keeps its cursors and what it has not read"),
                            ("CANCELLED", "cancelled: for good, holds nothing back"),
                            ("DEAD", "dead: missed its heartbeats, holds nothing back"),
                        ],
                        default="ACTIVE",
                        db_default="ACTIVE",
                        db_comment="ACTIVE and PAUSED hold retention back, CANCELLED and DEAD do not",
                    ),
                ),
                (
                    "start_position",
                    models.TextField(
                        "start",
                        choices=[
                            ("earliest", "the oldest event that is still there"),
                            ("latest", "what is published after the subscription"),
                            ("timestamp", "the first event at or after a time"),
                            ("offset", "a given offset"),
                        ],
                        default="latest",
                        db_default="latest",
                        db_comment="Where the group began; its cursors are in consumer_offsets",
                    ),
                ),
                (
                    "start_value",
                    models.TextField(
                        "start at",
                        null=True,
                        blank=True,
                        db_comment="The time or offset, for those two start positions",
                    ),
                ),
                (
                    "where",
                    models.JSONField(
                        "filter",
                        blank=True,
                        default=dict,
                        db_default=models.Value({}, models.JSONField()),
                        db_comment="Lookups that an event must match; empty: every event",
                    ),
                ),
                (
                    "delivery",
                    models.TextField(
                        "delivery",
                        choices=[
                            ("transactional", "transactional"),
                            ("at_least_once", "at least once"),
                            ("at_most_once", "at most once"),
                        ],
                        default="transactional",
                        db_default="transactional",
                        db_comment="transactional: effects in this database happen exactly once; at_least_once; at_most_once",
                    ),
                ),
                (
                    "on_failure",
                    models.TextField(
                        "on failure",
                        choices=[
                            ("dead_letter", "set the failed transaction aside and go on"),
                            ("park_key", "later events of the same key wait behind the failed one"),
                            ("stop", "the partition waits for an operator"),
                        ],
                        default="dead_letter",
                        db_default="dead_letter",
                        db_comment="What a failing transaction does to those behind it",
                    ),
                ),
                (
                    "retry_delays",
                    models.JSONField(
                        "retry delays",
                        blank=True,
                        default=list,
                        db_default=models.Value([], models.JSONField()),
                        db_comment="Seconds before each further attempt, or how they grow; empty: none",
                    ),
                ),
                (
                    "heartbeat_interval",
                    models.DurationField(
                        "heartbeat interval", default=dt.timedelta(seconds=60), db_default=dt.timedelta(seconds=60)
                    ),
                ),
                (
                    "heartbeat_timeout",
                    models.DurationField(
                        "heartbeat timeout",
                        default=dt.timedelta(seconds=300),
                        db_default=dt.timedelta(seconds=300),
                        db_comment="A group silent for longer has missed a heartbeat",
                    ),
                ),
                ("last_heartbeat_at", models.DateTimeField("last heartbeat", null=True, editable=False)),
                ("created_at", models.DateTimeField("created", db_default=Now(), editable=False)),
                (
                    "expires_after",
                    models.DurationField(
                        "expires after",
                        null=True,
                        blank=True,
                        db_comment="A temporary subscription is removed when it was not used for so long; null: it stays",
                    ),
                ),
                (
                    "last_miss_at",
                    models.DateTimeField(
                        null=True,
                        editable=False,
                        db_comment="When the last of them was counted; the next one counts a timeout later",
                    ),
                ),
                (
                    "timeout",
                    models.DurationField(
                        "timeout",
                        null=True,
                        blank=True,
                        db_comment="How long one call of its handler may take; null: no limit",
                    ),
                ),
                (
                    "missed",
                    models.JSONField(
                        "missed offsets",
                        null=True,
                        blank=True,
                        editable=False,
                        db_comment="What was dropped unread, by partition: [first, last] offset; null: nothing",
                    ),
                ),
                (
                    "misses",
                    models.IntegerField(
                        "missed heartbeats",
                        default=0,
                        db_default=0,
                        editable=False,
                        db_comment="In a row, by all members",
                    ),
                ),
                (
                    "resizes_passed",
                    models.BigIntegerField(
                        default=0,
                        db_default=0,
                        editable=False,
                        db_comment="Resizes up to this position are behind the group",
                    ),
                ),
                ("status_changed_at", models.DateTimeField("since", db_default=Now(), editable=False)),
                (
                    "status_reason",
                    models.TextField(
                        "reason", blank=True, default="", db_default="", db_comment="Why it has this status"
                    ),
                ),
            ],
            options={
                "default_permissions": ("view", "delete"),
                "db_table": "outbox_topic_subscriptions",
                "db_table_comment": "Which consumer group reads which topic, and how",
                "verbose_name": "subscription",
                "verbose_name_plural": "subscriptions",
                "ordering": ["topic", "group_id"],
                "permissions": [
                    ("pause_subscription", "Can pause and resume subscriptions"),
                    ("seek_subscription", "Can move the cursors of subscriptions"),
                    ("stop_worker_subscription", "Can stop the workers of subscriptions"),
                ],
                "constraints": [
                    models.UniqueConstraint(
                        fields=["topic", "group_id"], name="outbox_topic_subscriptions_topic_group"
                    ),
                    models.CheckConstraint(condition=~Q(group_id=""), name="outbox_topic_subscriptions_group_given"),
                    models.CheckConstraint(
                        condition=Q(status__in=["ACTIVE", "PAUSED", "CANCELLED", "DEAD"]),
                        name="outbox_topic_subscriptions_status_known",
                    ),
                    models.CheckConstraint(
                        condition=Q(start_position__in=["earliest", "latest", "timestamp", "offset"]),
                        name="outbox_topic_subscriptions_start_known",
                    ),
                    models.CheckConstraint(
                        condition=Q(delivery__in=["transactional", "at_least_once", "at_most_once"]),
                        name="outbox_topic_subscriptions_delivery_known",
                    ),
                    models.CheckConstraint(
                        condition=Q(on_failure__in=["dead_letter", "park_key", "stop"]),
                        name="outbox_topic_subscriptions_on_failure_known",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="Overview",
            fields=[],
            options={
                "proxy": True,
                "verbose_name": "overview",
                "verbose_name_plural": "overview",
                "default_permissions": (),
            },
            bases=("pubsub.subscription",),
        ),
        migrations.CreateModel(
            name="Member",
            fields=[
                ("pk", models.CompositePrimaryKey("topic_id", "group_id", "worker_id", serialize=False)),
                (
                    "topic",
                    models.ForeignKey(
                        "pubsub.topic", models.CASCADE, related_name="+", db_index=False, verbose_name="topic"
                    ),
                ),
                ("group_id", models.TextField("group")),
                (
                    "worker_id",
                    models.TextField("worker", db_comment="Unique among all processes; --worker-id chooses it"),
                ),
                ("host", models.TextField("machine", default="", db_default="")),
                ("pid", models.IntegerField("process", null=True)),
                ("joined_at", models.DateTimeField("joined", db_default=ClockTimestamp(), editable=False)),
                (
                    "last_heartbeat_at",
                    models.DateTimeField("last heartbeat", db_default=ClockTimestamp(), editable=False),
                ),
            ],
            options={
                "default_permissions": (),
                "db_table": "outbox_members",
                "db_table_comment": "Members: the processes that work for a group, with their last heartbeats",
                "verbose_name": "member",
                "verbose_name_plural": "members",
            },
        ),
        migrations.CreateModel(
            name="WorkerProcess",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("worker_id", models.TextField("worker")),
                ("host", models.TextField("machine")),
                ("pid", models.IntegerField("process")),
                (
                    "threads",
                    models.IntegerField("threads", db_comment="How many partitions it handles at the same time"),
                ),
                (
                    "lock_key",
                    models.IntegerField(
                        null=True,
                        db_comment="The advisory lock that it holds for as long as it is connected; null: none",
                    ),
                ),
                (
                    "in_hand",
                    models.JSONField(
                        "in hand",
                        default=list,
                        db_default=models.Value([], models.JSONField()),
                        db_comment="The calls of handlers that have taken longer than a second, and since when",
                    ),
                ),
                (
                    "stop_requested_at",
                    models.DateTimeField(
                        "stop requested",
                        null=True,
                        db_comment="When an operator has asked it to stop; null: no operator has",
                    ),
                ),
                ("started_at", models.DateTimeField("started", db_default=ClockTimestamp(), editable=False)),
            ],
            options={
                "default_permissions": (),
                "db_table": "outbox_workers",
                "db_table_comment": "Workers: the processes that call handlers, and what they have had in hand for long",
                "verbose_name": "worker",
                "verbose_name_plural": "workers",
                "constraints": [models.UniqueConstraint(fields=["worker_id"], name="outbox_workers_worker_id")],
            },
        ),
        # What publishers write.
        run_sql_file("transaction_id_v1"),
        run_sql_file("refuse_xid_v1"),
        run_sql_file("refuse_id_v1"),
        run_sql_file(
            "outbox_message_t",
            migrations.CreateModel(
                name="OutboxMessage",
                fields=[
                    (
                        "id",
                        models.BigAutoField(
                            primary_key=True, serialize=False, db_comment="Insertion order, not the log's order"
                        ),
                    ),
                    (
                        "xid",
                        TransactionIdField(
                            db_default=CurrentTransaction(),
                            editable=False,
                            db_comment="The top-level transaction that published it; filled by the database, never by hand",
                        ),
                    ),
                    *message_content(),
                ],
                options={
                    "default_permissions": ("view",),
                    "db_table": "outbox_message_t",
                    "db_table_comment": "Published events; insert-only, partitioned by id, retired by whole partitions",
                    "verbose_name": "event",
                    "verbose_name_plural": "events",
                    "permissions": [
                        ("publish_outboxmessage", "Can publish events by hand"),
                        ("view_payload_outboxmessage", "Can see the payload of events"),
                    ],
                    "constraints": [
                        texts_fit("outbox_message_t_texts_fit"),
                        times_fit("outbox_message_t_times_fit", "created_at"),
                    ],
                    "indexes": [models.Index(fields=["xid"], name="outbox_message_t_xid")],
                },
            ),
        ),
        migrations.CreateModel(
            name="DelayedMessage",
            fields=[
                *message_content(),
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                (
                    "deliver_at",
                    models.DateTimeField("deliver at", db_comment="Not numbered, and so not seen, before this time"),
                ),
            ],
            options={
                "default_permissions": (),
                "db_table": "outbox_delayed_message",
                "db_table_comment": "Events that are not due yet",
                "verbose_name": "delayed event",
                "verbose_name_plural": "delayed events",
                "constraints": [
                    texts_fit("outbox_delayed_message_texts_fit"),
                    times_fit("outbox_delayed_message_times_fit", "created_at", "deliver_at"),
                ],
                "indexes": [models.Index(fields=["deliver_at", "id"], name="outbox_delayed_message_due")],
            },
        ),
        migrations.CreateModel(
            name="DedupKey",
            fields=[
                ("pk", models.CompositePrimaryKey("topic_id", "dedup_key", serialize=False)),
                (
                    "topic",
                    models.ForeignKey(
                        "pubsub.topic",
                        models.DO_NOTHING,
                        related_name="+",
                        db_constraint=False,
                        db_index=False,
                        db_comment="The topic",
                    ),
                ),
                ("dedup_key", models.TextField(db_comment="What the publisher calls the same event")),
                ("event_id", models.UUIDField(db_comment="The event that was published first")),
                ("expires_at", models.DateTimeField(db_comment="From then on the key may be used again")),
            ],
            options={
                "default_permissions": (),
                "db_table": "outbox_dedup_key",
                "db_table_comment": "Keys under which an event has been published, so that no second one is",
                "indexes": [models.Index(fields=["expires_at"], name="outbox_dedup_key_expiry")],
            },
        ),
        # What the sequencer writes.
        run_sql_file(
            "log_entry",
            migrations.CreateModel(
                name="LogEntry",
                fields=[
                    ("pk", models.CompositePrimaryKey("topic_id", "c_offset", serialize=False)),
                    (
                        "position",
                        models.BigIntegerField("position", db_comment="Gapless over all topics; the order of storage"),
                    ),
                    ("c_offset", models.BigIntegerField("offset", db_comment="Gapless from 1 within the topic")),
                    ("message_id", models.BigIntegerField("message", db_comment="outbox_message_t.id")),
                    (
                        "topic",
                        models.ForeignKey(
                            "pubsub.topic",
                            models.DO_NOTHING,
                            related_name="+",
                            db_constraint=False,
                            db_index=False,
                            verbose_name="topic",
                        ),
                    ),
                    (
                        "partition_id",
                        models.IntegerField(
                            "partition", db_comment="Decided when numbered, so that a later resize moves nothing"
                        ),
                    ),
                ],
                options={
                    "default_permissions": (),
                    "db_table": "log_entry",
                    "db_table_comment": "The log: which event stands at which offset; insert-only, partitioned by position",
                    "verbose_name": "log entry",
                    "verbose_name_plural": "log entries",
                    "indexes": [models.Index(fields=["topic", "partition_id", "position"], name="log_entry_walk")],
                },
            ),
        ),
        migrations.CreateModel(
            name="LogCounter",
            fields=[
                (
                    "topic",
                    models.OneToOneField(
                        "pubsub.topic",
                        models.DO_NOTHING,
                        primary_key=True,
                        serialize=False,
                        related_name="counter",
                        db_constraint=False,
                    ),
                ),
                (
                    "next_offset",
                    models.BigIntegerField(default=1, db_default=1, db_comment="The tip of the log is one less"),
                ),
            ],
            options={
                "default_permissions": (),
                "db_table": "log_counter",
                "db_table_comment": "The next free offset of each topic",
                "constraints": [models.CheckConstraint(condition=Q(next_offset__gte=1), name="log_counter_from_one")],
            },
        ),
        migrations.CreateModel(
            name="LogPartitionCounter",
            fields=[
                ("pk", models.CompositePrimaryKey("topic_id", "partition_id", serialize=False)),
                (
                    "topic",
                    models.ForeignKey(
                        "pubsub.topic", models.DO_NOTHING, related_name="+", db_constraint=False, db_index=False
                    ),
                ),
                ("partition_id", models.IntegerField()),
                (
                    "entries",
                    models.BigIntegerField(
                        default=0, db_default=0, db_comment="Entries ever numbered into this partition"
                    ),
                ),
                (
                    "retired",
                    models.BigIntegerField(
                        default=0, db_default=0, db_comment="Those of them that retention has dropped"
                    ),
                ),
            ],
            options={
                "default_permissions": (),
                "db_table": "log_partition_counter",
                "db_table_comment": "Entries ever numbered, by topic and partition: what lag is worked out from",
            },
        ),
        migrations.CreateModel(
            name="Sequencer",
            fields=[
                ("id", models.SmallIntegerField(primary_key=True, serialize=False, default=1, db_default=1)),
                (
                    "seen",
                    SnapshotField(
                        db_default=models.Value("1:1:", SnapshotField()),
                        db_comment="Events of transactions that were over at this moment have been numbered",
                    ),
                ),
                (
                    "backlog",
                    SnapshotField(
                        null=True,
                        db_comment="While a backlog is numbered in pieces: the moment by which its transactions were over",
                    ),
                ),
                (
                    "reached_id",
                    models.BigIntegerField(
                        default=0,
                        db_default=0,
                        db_comment="The last id given out before the last pass; in a backlog, how far its pieces have come",
                    ),
                ),
                (
                    "next_position",
                    models.BigIntegerField(default=1, db_default=1, db_comment="The next free position in log_entry"),
                ),
                (
                    "system_identifier",
                    models.BigIntegerField(
                        null=True,
                        db_comment="The cluster that the snapshot belongs to; transaction ids mean nothing in another one",
                    ),
                ),
                (
                    "settled_id",
                    models.BigIntegerField(
                        default=1,
                        db_default=1,
                        db_comment="All events with a smaller id have been numbered, also those whose entries are gone",
                    ),
                ),
            ],
            options={
                "default_permissions": (),
                "db_table": "log_sequencer",
                "db_table_comment": "Up to where the outbox has been numbered (one row)",
                "constraints": [models.CheckConstraint(condition=Q(id=1), name="log_sequencer_one_row")],
            },
        ),
        migrations.CreateModel(
            name="SegmentContents",
            fields=[
                ("pk", models.CompositePrimaryKey("lower", "topic_id", "partition_id", serialize=False)),
                ("lower", models.BigIntegerField(db_comment="The first position of the segment log_entry_<lower>")),
                ("upper", models.BigIntegerField(db_comment="The first position behind it")),
                (
                    "topic",
                    models.ForeignKey(
                        "pubsub.topic", models.DO_NOTHING, related_name="+", db_constraint=False, db_index=False
                    ),
                ),
                ("partition_id", models.IntegerField()),
                ("entries", models.BigIntegerField()),
                ("first_offset", models.BigIntegerField()),
                ("last_offset", models.BigIntegerField()),
                (
                    "first_message_id",
                    models.BigIntegerField(db_comment="The smallest id of an event; ids are not in the log's order"),
                ),
                ("last_message_id", models.BigIntegerField(db_comment="The greatest id of an event")),
                (
                    "filled_at",
                    models.DateTimeField(db_comment="When it was found to be full: nothing in it was numbered later"),
                ),
            ],
            options={
                "default_permissions": (),
                "db_table": "log_segments",
                "db_table_comment": "What full segments of the log hold, so that retention need not read them to decide",
            },
        ),
        # How far each group is.
        migrations.CreateModel(
            name="ConsumerOffset",
            fields=[
                ("pk", models.CompositePrimaryKey("group_id", "topic_id", "partition_id", serialize=False)),
                ("group_id", models.TextField("group")),
                (
                    "topic",
                    models.ForeignKey(
                        "pubsub.topic", models.PROTECT, related_name="+", db_index=False, verbose_name="topic"
                    ),
                ),
                ("partition_id", models.IntegerField("partition")),
                (
                    "next_offset",
                    models.BigIntegerField(
                        "next offset",
                        default=1,
                        db_default=1,
                        db_comment="The first offset this group has not passed here",
                    ),
                ),
                (
                    "next_position",
                    models.BigIntegerField(
                        default=1,
                        db_default=1,
                        db_comment="The same in the order of storage: where the next read begins",
                    ),
                ),
                (
                    "passed",
                    models.BigIntegerField(
                        default=0,
                        db_default=0,
                        db_comment="Entries of this partition before the cursor; lag = entries - passed",
                    ),
                ),
                ("updated_at", models.DateTimeField("updated", db_default=ClockTimestamp())),
                (
                    "epoch",
                    models.BigIntegerField(
                        default=0,
                        db_default=0,
                        db_comment="Grows with each lease; an acknowledgement under an older one is rejected",
                    ),
                ),
                (
                    "failing_offset",
                    models.BigIntegerField(
                        null=True,
                        db_comment="Where the publisher's transaction begins at which the database has failed last",
                    ),
                ),
                (
                    "failures",
                    models.IntegerField(default=0, db_default=0, db_comment="How often in a row it has failed there"),
                ),
                (
                    "failing_s",
                    models.FloatField(default=0, db_default=0, db_comment="How many seconds those attempts have taken"),
                ),
                (
                    "rests_until",
                    models.DateTimeField(
                        null=True, db_comment="Until when workers leave the partition alone after that"
                    ),
                ),
                (
                    "alone_to",
                    models.BigIntegerField(
                        null=True,
                        db_comment="Failed events up to this offset are tried one transaction at a time: a worker has died "
                        "that had them in hand",
                    ),
                ),
            ],
            options={
                "default_permissions": (),
                "db_table": "consumer_offsets",
                "db_table_comment": "Cursors: how far each group has come in each partition",
                "verbose_name": "cursor",
                "verbose_name_plural": "cursors",
                "constraints": [
                    models.CheckConstraint(
                        condition=Q(next_offset__gte=1, next_position__gte=1, partition_id__gte=0, passed__gte=0),
                        name="consumer_offsets_in_range",
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="Lease",
            fields=[
                ("pk", models.CompositePrimaryKey("group_id", "topic_id", "partition_id", serialize=False)),
                ("group_id", models.TextField("group")),
                (
                    "topic",
                    models.ForeignKey(
                        "pubsub.topic", models.PROTECT, related_name="+", db_index=False, verbose_name="topic"
                    ),
                ),
                ("partition_id", models.IntegerField("partition")),
                ("first_offset", models.BigIntegerField("first offset")),
                (
                    "last_offset",
                    models.BigIntegerField(
                        "last offset",
                        db_comment="As far as was read when it was taken; a long transaction may go on behind it",
                    ),
                ),
                ("worker_id", models.TextField("worker", db_comment="The process that holds the lease")),
                (
                    "epoch",
                    models.BigIntegerField(
                        db_comment="The cursor's epoch when it was taken; an acknowledgement under an older one is rejected"
                    ),
                ),
                (
                    "attempts",
                    models.IntegerField("attempts", default=1, db_default=1, db_comment="A crash counts as one"),
                ),
                (
                    "lock_key",
                    models.IntegerField(
                        null=True,
                        db_comment="The advisory lock that the worker holds for as long as it is connected; null: none",
                    ),
                ),
                ("taken_at", models.DateTimeField("taken", db_default=ClockTimestamp())),
                (
                    "expires_at",
                    models.DateTimeField("lease ends", db_comment="When another worker may take the range over"),
                ),
            ],
            options={
                "default_permissions": (),
                "db_table": "consumer_claims",
                "db_table_comment": "Leases: ranges in flight, for delivery modes that hold no transaction open",
                "verbose_name": "lease",
                "verbose_name_plural": "leases",
                "constraints": [
                    models.CheckConstraint(
                        condition=Q(last_offset__gte=F("first_offset")), name="consumer_claims_not_empty"
                    )
                ],
            },
        ),
        # What failed.
        migrations.CreateModel(
            name="DeadLetter",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("group_id", models.TextField("group")),
                (
                    "topic",
                    models.ForeignKey(
                        "pubsub.topic", models.PROTECT, related_name="+", db_index=False, verbose_name="topic"
                    ),
                ),
                ("partition_id", models.IntegerField("partition")),
                ("c_offset", models.BigIntegerField("offset")),
                ("event_id", models.UUIDField("event id")),
                (
                    "transaction_id",
                    models.UUIDField(
                        "transaction", db_comment="The events of a transaction fail, and are replayed, together"
                    ),
                ),
                ("type", models.TextField("type", default="")),
                ("key", models.TextField("key", null=True)),
                ("host_id", models.TextField("host", null=True)),
                ("user_id", models.TextField("user", null=True)),
                (
                    "payload",
                    models.JSONField(
                        "payload", encoder=DjangoJSONEncoder, db_comment="Kept beyond the log's retention"
                    ),
                ),
                ("metadata", models.JSONField("metadata", encoder=DjangoJSONEncoder)),
                ("published_at", models.DateTimeField("published")),
                ("handler", models.TextField("handler", db_comment="Dotted name of the function that failed")),
                ("exception_class", models.TextField("exception", default="")),
                ("exception_message", models.TextField("message", default="")),
                ("traceback", models.TextField("traceback", default="")),
                ("attempts", models.IntegerField("attempts", default=1, db_comment="0: parked, and not tried yet")),
                (
                    "state",
                    models.TextField(
                        "state",
                        choices=[
                            ("retrying", "waiting for its next attempt"),
                            ("dead", "waiting for an operator"),
                            ("resolved", "handled at a later attempt"),
                            ("discarded", "given up by an operator"),
                            ("parked", "waiting behind a failed event of the same key"),
                        ],
                        default="dead",
                        db_default="dead",
                    ),
                ),
                (
                    "next_attempt_at",
                    models.DateTimeField("next attempt", null=True, db_comment="Set while the state is retrying"),
                ),
                ("created_at", models.DateTimeField("failed first", db_default=ClockTimestamp(), editable=False)),
                ("updated_at", models.DateTimeField("changed", db_default=ClockTimestamp(), editable=False)),
                (
                    "original_payload",
                    models.JSONField(
                        "original payload",
                        null=True,
                        blank=True,
                        encoder=DjangoJSONEncoder,
                        db_comment="What was published, if an operator has changed the payload since; null: it is as published",
                    ),
                ),
            ],
            options={
                "default_permissions": ("view",),
                "db_table": "dead_letter_queue",
                "db_table_comment": "Dead letters: events that a group could not handle",
                "verbose_name": "dead letter",
                "verbose_name_plural": "dead letters",
                "permissions": [
                    ("replay_deadletter", "Can replay dead letters"),
                    ("discard_deadletter", "Can discard dead letters"),
                    ("edit_payload_deadletter", "Can change the payload of dead letters"),
                    ("view_payload_deadletter", "Can see the payload of dead letters"),
                ],
                "constraints": [
                    models.UniqueConstraint(fields=["group_id", "topic", "c_offset"], name="dead_letter_queue_once"),
                    models.CheckConstraint(condition=Q(attempts__gte=0), name="dead_letter_queue_attempted"),
                    models.CheckConstraint(
                        condition=Q(state__in=["retrying", "dead", "resolved", "discarded", "parked"]),
                        name="dead_letter_queue_state_known",
                    ),
                    models.CheckConstraint(
                        condition=Q(next_attempt_at__isnull=False, state="retrying")
                        | (~Q(state="retrying") & Q(next_attempt_at__isnull=True)),
                        name="dead_letter_queue_retrying_has_time",
                    ),
                ],
                "indexes": [
                    models.Index(
                        fields=["group_id", "topic", "partition_id", "next_attempt_at"],
                        condition=Q(state="retrying"),
                        name="dead_letter_queue_due",
                    ),
                    models.Index(
                        Coalesce("key", "host_id"),
                        F("group_id"),
                        F("topic"),
                        F("c_offset"),
                        condition=Q(state__in=["retrying", "dead", "parked"]),
                        name="dead_letter_queue_blocking",
                    ),
                    models.Index(
                        fields=["group_id", "topic", "partition_id", "c_offset"],
                        condition=Q(state__in=["retrying", "dead", "parked"]),
                        name="dead_letter_queue_open",
                    ),
                    models.Index(
                        fields=["updated_at"],
                        condition=Q(state__in=["resolved", "discarded"]),
                        name="dead_letter_queue_finished",
                    ),
                    models.Index(fields=["state", "-id"], name="dead_letter_queue_by_state"),
                    models.Index(fields=["transaction_id", "group_id"], name="dead_letter_queue_transaction"),
                    models.Index(fields=["group_id", "-id"], name="dead_letter_queue_by_group"),
                    models.Index(fields=["topic", "-id"], name="dead_letter_queue_by_topic"),
                    models.Index(fields=["type", "-id"], name="dead_letter_queue_by_type"),
                    models.Index(fields=["exception_class", "-id"], name="dead_letter_queue_by_exception"),
                    models.Index(
                        fields=["host_id", "-id"], condition=Q(host_id__isnull=False), name="dead_letter_queue_by_host"
                    ),
                    models.Index(fields=["created_at"], name="dead_letter_queue_by_time"),
                    models.Index(fields=["event_id"], name="dead_letter_queue_event"),
                    models.Index(fields=["key"], condition=Q(key__isnull=False), name="dead_letter_queue_keyed"),
                ],
            },
        ),
        migrations.CreateModel(
            name="Attempt",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                (
                    "letter",
                    models.ForeignKey(
                        "pubsub.deadletter",
                        models.CASCADE,
                        related_name="history",
                        db_index=False,
                        verbose_name="dead letter",
                    ),
                ),
                ("attempt", models.IntegerField("attempt")),
                ("failed_at", models.DateTimeField("failed", db_default=ClockTimestamp(), editable=False)),
                ("handler", models.TextField("handler")),
                ("exception_class", models.TextField("exception")),
                ("exception_message", models.TextField("message")),
                ("traceback", models.TextField("traceback")),
            ],
            options={
                "default_permissions": (),
                "db_table": "dead_letter_attempts",
                "db_table_comment": "Every failed attempt at a dead letter",
                "verbose_name": "attempt",
                "verbose_name_plural": "attempts",
                "ordering": ["id"],
                "indexes": [models.Index(fields=["letter", "id"], name="dead_letter_attempts_in_order")],
            },
        ),
        # What was done, and how it went on.
        migrations.CreateModel(
            name="OperatorEvent",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("happened_at", models.DateTimeField("when", db_default=ClockTimestamp(), editable=False)),
                ("actor", models.TextField("who", db_comment="A user's name, or the part of the system that decided")),
                ("action", models.TextField("what", db_comment="Such as pause, seek, resize, dead, partition-dropped")),
                ("topic", models.TextField("topic", default="", db_default="")),
                ("group_id", models.TextField("group", default="", db_default="")),
                ("reason", models.TextField("why", default="", db_default="")),
                ("before", models.JSONField("before", null=True, encoder=DjangoJSONEncoder)),
                ("after", models.JSONField("after", null=True, encoder=DjangoJSONEncoder)),
            ],
            options={
                "default_permissions": ("view",),
                "db_table": "operator_events",
                "db_table_comment": "The audit log: what operators did and what was decided automatically",
                "verbose_name": "audit log row",
                "verbose_name_plural": "audit log rows",
                "ordering": ["-id"],
                "indexes": [models.Index(fields=["topic", "group_id", "-id"], name="operator_events_of_group")],
            },
        ),
        migrations.CreateModel(
            name="Sample",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("taken_at", models.DateTimeField("when", db_default=ClockTimestamp(), editable=False)),
                (
                    "topic",
                    models.ForeignKey(
                        "pubsub.topic", models.CASCADE, related_name="+", db_index=False, verbose_name="topic"
                    ),
                ),
                (
                    "group_id",
                    models.TextField("group", default="", db_default="", db_comment="Empty: the topic itself"),
                ),
                ("tip", models.BigIntegerField("tip", db_comment="The topic's last offset")),
                ("lag", models.BigIntegerField("events behind", default=0, db_default=0)),
                (
                    "behind_s",
                    models.FloatField(
                        "seconds behind", default=0, db_default=0.0, db_comment="The age of the first event not passed"
                    ),
                ),
                (
                    "after_gap",
                    models.BooleanField(
                        "after a gap",
                        default=False,
                        db_default=False,
                        db_comment="No worker was there before it to take one",
                    ),
                ),
            ],
            options={
                "default_permissions": (),
                "db_table": "outbox_samples",
                "db_table_comment": "How far topics and groups had come at some moments, for charts; written only on change",
                "verbose_name": "sample",
                "verbose_name_plural": "samples",
                "indexes": [models.Index(fields=["topic", "group_id", "taken_at"], name="outbox_samples_course")],
            },
        ),
        # What Spark writes.
        migrations.CreateModel(
            name="Finding",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("run_id", models.UUIDField("run")),
                ("job", models.TextField("job", db_comment="Such as throughput, latency, skew")),
                ("made_at", models.DateTimeField("made", db_default=ClockTimestamp(), editable=False)),
                (
                    "parameters",
                    models.JSONField(
                        "parameters", db_default=models.Value({}, models.JSONField()), encoder=DjangoJSONEncoder
                    ),
                ),
                ("row_number", models.IntegerField("row")),
                ("data", models.JSONField("data", encoder=DjangoJSONEncoder)),
            ],
            options={
                "default_permissions": ("view",),
                "db_table": "spark_findings",
                "db_table_comment": "What Spark jobs found in the log, a row each",
                "verbose_name": "finding",
                "verbose_name_plural": "findings",
                "constraints": [models.UniqueConstraint(fields=["run_id", "row_number"], name="spark_findings_once")],
                "indexes": [models.Index(fields=["job", "-made_at"], name="spark_findings_latest")],
            },
        ),
        migrations.CreateModel(
            name="SinkBatch",
            fields=[
                ("pk", models.CompositePrimaryKey("sink", "batch_id", serialize=False)),
                ("sink", models.TextField(db_comment="The stream, as its checkpoint knows it")),
                ("batch_id", models.BigIntegerField()),
                ("events", models.BigIntegerField()),
                ("published_at", models.DateTimeField(db_default=ClockTimestamp(), editable=False)),
            ],
            options={
                "default_permissions": (),
                "db_table": "spark_sink_batches",
                "db_table_comment": "Batches that streams have published, each exactly once",
            },
        ),
        migrations.CreateModel(
            name="StagedEvent",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                (
                    "task_id",
                    models.UUIDField(db_comment="One attempt of one task; only those that the driver names count"),
                ),
                ("staged_at", models.DateTimeField(db_default=ClockTimestamp(), editable=False)),
                ("topic", models.TextField()),
                ("type", models.TextField()),
                ("key", models.TextField(null=True)),
                ("host_id", models.TextField(null=True)),
                ("user_id", models.TextField(null=True)),
                ("to_group", models.TextField(null=True)),
                ("payload", models.JSONField()),
                ("metadata", models.JSONField()),
            ],
            options={
                "default_permissions": (),
                "db_table": "spark_staged_events",
                "db_table_comment": "Events that Spark tasks want to publish; empty but for batches in the making",
                "indexes": [
                    models.Index(fields=["task_id", "id"], name="spark_staged_events_task"),
                    models.Index(fields=["staged_at"], name="spark_staged_events_age"),
                ],
            },
        ),
        # What people read.
        run_sql_file(
            "outbox_log_v",
            migrations.CreateModel(
                name="LogView",
                fields=[
                    ("pk", models.CompositePrimaryKey("topic_id", "c_offset", serialize=False)),
                    ("topic_id", models.IntegerField()),
                    ("topic", models.TextField("topic")),
                    ("c_offset", models.BigIntegerField("offset")),
                    ("partition_id", models.IntegerField("partition")),
                    ("position", models.BigIntegerField("position")),
                    ("message_id", models.BigIntegerField("message")),
                    ("event_id", models.UUIDField("event id")),
                    ("type", models.TextField("type")),
                    ("key", models.TextField("key", null=True)),
                    ("host_id", models.TextField("host", null=True)),
                    ("user_id", models.TextField("user", null=True)),
                    ("to_group", models.TextField("for group", null=True)),
                    ("transaction_id", models.UUIDField("transaction")),
                    ("payload", models.JSONField("payload")),
                    ("metadata", models.JSONField("metadata")),
                    ("created_at", models.DateTimeField("published")),
                ],
                options={
                    "default_permissions": (),
                    "db_table": "outbox_log_v",
                    "managed": False,
                },
            ),
        ),
        run_sql_file(
            "consumer_lag_v",
            migrations.CreateModel(
                name="ConsumerLag",
                fields=[
                    ("pk", models.CompositePrimaryKey("group_id", "topic_id", "partition_id", serialize=False)),
                    ("group_id", models.TextField("group")),
                    ("topic_id", models.IntegerField()),
                    ("topic", models.TextField("topic")),
                    ("partition_id", models.IntegerField("partition")),
                    ("status", models.TextField("status", null=True)),
                    ("next_offset", models.BigIntegerField("next offset")),
                    ("tip", models.BigIntegerField("tip")),
                    ("lag", models.BigIntegerField("events behind")),
                    ("waiting_since", models.DateTimeField("waiting since", null=True)),
                    ("updated_at", models.DateTimeField("moved")),
                ],
                options={
                    "default_permissions": (),
                    "db_table": "consumer_lag_v",
                    "managed": False,
                },
            ),
        ),
        run_sql_file("hot_rows"),
        # Functions, each after those it calls.
        run_sql_file("complete_segment_v1"),
        run_sql_file("add_segment_v1"),
        run_sql_file("add_default_segment_v1"),
        migrations.RunSQL(
            "SELECT pubsub_add_default_segment_v1('outbox_message_t'), pubsub_add_default_segment_v1('log_entry')",
            migrations.RunSQL.noop,
        ),
        run_sql_file("publish_v1"),
        run_sql_file("unfinished_v1"),
        run_sql_file("sequence_v1"),
        run_sql_file("reanchor_v1"),
        run_sql_file("cursor_at_v1"),
        run_sql_file("offset_at_v1"),
        run_sql_file("lock_cursors_v1"),
        run_sql_file("move_cursors_v1"),
        run_sql_file("read_v1"),
        run_sql_file("was_aborted_v1"),
        run_sql_file("pass_resizes_v1"),
        run_sql_file("find_work_v1"),
    ]
