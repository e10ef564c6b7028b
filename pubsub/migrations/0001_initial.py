import datetime

import django.core.serializers.json
import django.db.models.deletion
import django.db.models.functions.datetime
from django.db import migrations, models

import pubsub.models.fields

from ._sql_files import run_sql_file


class Migration(migrations.Migration):
    initial = True

    dependencies = []

    operations = [
        run_sql_file("transaction_id_v1"),
        migrations.CreateModel(
            name="Topic",
            fields=[
                (
                    "id",
                    models.AutoField(
                        db_comment="Never reused; 1 is the default topic", primary_key=True, serialize=False
                    ),
                ),
                ("name", models.TextField(db_comment="What publishers and subscribers say", verbose_name="name")),
                (
                    "semantics",
                    models.TextField(
                        choices=[
                            ("PUB_SUB", "every group gets each message"),
                            ("QUEUE", "one group gets each message"),
                        ],
                        db_comment="PUB_SUB: every group gets each message; QUEUE: one group whose members compete",
                        db_default="PUB_SUB",
                        default="PUB_SUB",
                        verbose_name="semantics",
                    ),
                ),
                (
                    "total_partitions",
                    models.IntegerField(
                        db_comment="Order is kept within a partition; as many consumers can work on a group as there are partitions",
                        db_default=8,
                        default=8,
                        verbose_name="partitions",
                    ),
                ),
                (
                    "retention",
                    models.DurationField(
                        db_comment="How long a message stays at least, counted from its publication",
                        db_default=datetime.timedelta(days=7),
                        default=datetime.timedelta(days=7),
                        verbose_name="retention",
                    ),
                ),
                (
                    "created_at",
                    models.DateTimeField(
                        db_default=django.db.models.functions.datetime.Now(), editable=False, verbose_name="created"
                    ),
                ),
            ],
            options={
                "verbose_name": "topic",
                "verbose_name_plural": "topics",
                "db_table": "outbox_topics",
                "db_table_comment": "Topics: one gapless, ordered log each",
                "ordering": ["name"],
                "constraints": [
                    models.UniqueConstraint(fields=("name",), name="outbox_topics_name"),
                    models.CheckConstraint(
                        condition=models.Q(("name", ""), _negated=True), name="outbox_topics_name_given"
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("semantics__in", ["PUB_SUB", "QUEUE"])),
                        name="outbox_topics_semantics_known",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("total_partitions__gte", 1)), name="outbox_topics_has_partitions"
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("retention__gte", datetime.timedelta(0))),
                        name="outbox_topics_retention_not_negative",
                    ),
                ],
                "indexes": [],
            },
        ),
        migrations.CreateModel(
            name="Subscription",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "topic",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="subscriptions",
                        to="pubsub.topic",
                        verbose_name="topic",
                    ),
                ),
                (
                    "group_id",
                    models.TextField(
                        db_comment="The consumer group; groups read independently of one another", verbose_name="group"
                    ),
                ),
                (
                    "status",
                    models.TextField(
                        choices=[
                            ("ACTIVE", "active"),
                            ("PAUSED", "paused: keeps its position and what it has not read"),
                            ("CANCELLED", "cancelled: for good, holds nothing back"),
                            ("DEAD", "dead: missed its heartbeats, holds nothing back"),
                        ],
                        db_comment="ACTIVE and PAUSED hold retention back, CANCELLED and DEAD do not",
                        db_default="ACTIVE",
                        default="ACTIVE",
                        verbose_name="status",
                    ),
                ),
                (
                    "start_position",
                    models.TextField(
                        choices=[
                            ("earliest", "the oldest message that is still there"),
                            ("latest", "what is published after the subscription"),
                            ("timestamp", "the first message at or after a time"),
                            ("offset", "a given offset"),
                        ],
                        db_comment="Where the group began; where it stands now is in consumer_offsets",
                        db_default="latest",
                        default="latest",
                        verbose_name="start",
                    ),
                ),
                (
                    "start_value",
                    models.TextField(
                        blank=True,
                        db_comment="The time or offset, for those two start positions",
                        null=True,
                        verbose_name="start at",
                    ),
                ),
                (
                    "where",
                    models.JSONField(
                        blank=True,
                        db_comment="Lookups that a message must match; empty: everything",
                        db_default=models.Value({}, models.JSONField()),
                        default=dict,
                        verbose_name="filter",
                    ),
                ),
                (
                    "delivery",
                    models.TextField(
                        db_comment="transactional: effects in this database happen exactly once; at_least_once; at_most_once",
                        db_default="transactional",
                        default="transactional",
                        verbose_name="delivery",
                    ),
                ),
                (
                    "on_failure",
                    models.TextField(
                        choices=[
                            ("dead_letter", "set the failed transaction aside and go on"),
                            ("park_key", "later events of the same key wait behind the failed one"),
                            ("stop", "the partition waits until somebody acts"),
                        ],
                        db_comment="What a failing transaction does to those behind it",
                        db_default="dead_letter",
                        default="dead_letter",
                        verbose_name="on failure",
                    ),
                ),
                (
                    "retry_delays",
                    models.JSONField(
                        blank=True,
                        db_comment="Seconds before each further attempt; empty: none",
                        db_default=models.Value([], models.JSONField()),
                        default=list,
                        verbose_name="retry delays",
                    ),
                ),
                (
                    "heartbeat_interval",
                    models.DurationField(
                        db_default=datetime.timedelta(seconds=60),
                        default=datetime.timedelta(seconds=60),
                        verbose_name="heartbeat interval",
                    ),
                ),
                (
                    "heartbeat_timeout",
                    models.DurationField(
                        db_comment="A group silent for longer has missed a heartbeat",
                        db_default=datetime.timedelta(seconds=300),
                        default=datetime.timedelta(seconds=300),
                        verbose_name="heartbeat timeout",
                    ),
                ),
                ("last_heartbeat_at", models.DateTimeField(editable=False, null=True, verbose_name="last heartbeat")),
                (
                    "created_at",
                    models.DateTimeField(
                        db_default=django.db.models.functions.datetime.Now(), editable=False, verbose_name="created"
                    ),
                ),
            ],
            options={
                "verbose_name": "subscription",
                "verbose_name_plural": "subscriptions",
                "db_table": "outbox_topic_subscriptions",
                "db_table_comment": "Which consumer group reads which topic, and how",
                "ordering": ["topic", "group_id"],
                "constraints": [
                    models.UniqueConstraint(
                        fields=("topic", "group_id"), name="outbox_topic_subscriptions_topic_group"
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("group_id", ""), _negated=True),
                        name="outbox_topic_subscriptions_group_given",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("status__in", ["ACTIVE", "PAUSED", "CANCELLED", "DEAD"])),
                        name="outbox_topic_subscriptions_status_known",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("start_position__in", ["earliest", "latest", "timestamp", "offset"])),
                        name="outbox_topic_subscriptions_start_known",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("delivery__in", ["transactional", "at_least_once", "at_most_once"])),
                        name="outbox_topic_subscriptions_delivery_known",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("on_failure__in", ["dead_letter", "park_key", "stop"])),
                        name="outbox_topic_subscriptions_on_failure_known",
                    ),
                ],
                "indexes": [],
            },
        ),
        run_sql_file(
            "outbox_message_t",
            [
                migrations.CreateModel(
                    name="OutboxMessage",
                    fields=[
                        (
                            "event_id",
                            models.UUIDField(
                                db_comment="What the outside world knows the event by: the same through delay, retry, replay and archive",
                                db_default=pubsub.models.fields.RandomUUID(),
                                verbose_name="event id",
                            ),
                        ),
                        (
                            "topic",
                            models.ForeignKey(
                                db_comment="A row of outbox_topics (not enforced, so that publishers share no lock)",
                                db_constraint=False,
                                db_default=1,
                                db_index=False,
                                on_delete=django.db.models.deletion.DO_NOTHING,
                                related_name="+",
                                to="pubsub.topic",
                                verbose_name="topic",
                            ),
                        ),
                        (
                            "type",
                            models.TextField(
                                db_comment="What happened, such as order.created",
                                db_default="",
                                default="",
                                verbose_name="type",
                            ),
                        ),
                        (
                            "key",
                            models.TextField(
                                db_comment="Events of one key keep their order; host_id if absent",
                                null=True,
                                verbose_name="key",
                            ),
                        ),
                        ("host_id", models.TextField(db_comment="The tenant", null=True, verbose_name="host")),
                        (
                            "user_id",
                            models.TextField(db_comment="Who caused the event", null=True, verbose_name="user"),
                        ),
                        (
                            "to_group",
                            models.TextField(
                                db_comment="Only this group handles it; null: every group",
                                null=True,
                                verbose_name="for group",
                            ),
                        ),
                        (
                            "payload",
                            models.JSONField(
                                db_comment="The event itself",
                                encoder=django.core.serializers.json.DjangoJSONEncoder,
                                verbose_name="payload",
                            ),
                        ),
                        (
                            "metadata",
                            models.JSONField(
                                db_comment="What travels with the event: trace context, correlation, schema version",
                                db_default=models.Value({}, models.JSONField()),
                                default=dict,
                                encoder=django.core.serializers.json.DjangoJSONEncoder,
                                verbose_name="metadata",
                            ),
                        ),
                        (
                            "transaction_id",
                            models.UUIDField(
                                db_comment="One value for all events of one transaction, whichever language inserted them",
                                db_default=pubsub.models.fields.TransactionUUID(),
                                editable=False,
                                verbose_name="transaction",
                            ),
                        ),
                        (
                            "created_at",
                            models.DateTimeField(
                                db_comment="When it was published, by the database's clock",
                                db_default=pubsub.models.fields.ClockTimestamp(),
                                editable=False,
                                verbose_name="published",
                            ),
                        ),
                        (
                            "id",
                            models.BigAutoField(
                                db_comment="Insertion order, not the log's order", primary_key=True, serialize=False
                            ),
                        ),
                        (
                            "xid",
                            pubsub.models.fields.TransactionIdField(
                                db_comment="The top-level transaction that published it; filled by the database, never by hand",
                                db_default=pubsub.models.fields.CurrentTransaction(),
                                editable=False,
                            ),
                        ),
                    ],
                    options={
                        "verbose_name": "message",
                        "verbose_name_plural": "messages",
                        "db_table": "outbox_message_t",
                        "db_table_comment": "Published events; insert-only, partitioned by id, retired by whole partitions",
                        "indexes": [models.Index(fields=["xid"], name="outbox_message_t_xid")],
                        "constraints": [],
                    },
                ),
            ],
        ),
        migrations.CreateModel(
            name="DelayedMessage",
            fields=[
                (
                    "event_id",
                    models.UUIDField(
                        db_comment="What the outside world knows the event by: the same through delay, retry, replay and archive",
                        db_default=pubsub.models.fields.RandomUUID(),
                        verbose_name="event id",
                    ),
                ),
                (
                    "topic",
                    models.ForeignKey(
                        db_comment="A row of outbox_topics (not enforced, so that publishers share no lock)",
                        db_constraint=False,
                        db_default=1,
                        db_index=False,
                        on_delete=django.db.models.deletion.DO_NOTHING,
                        related_name="+",
                        to="pubsub.topic",
                        verbose_name="topic",
                    ),
                ),
                (
                    "type",
                    models.TextField(
                        db_comment="What happened, such as order.created",
                        db_default="",
                        default="",
                        verbose_name="type",
                    ),
                ),
                (
                    "key",
                    models.TextField(
                        db_comment="Events of one key keep their order; host_id if absent",
                        null=True,
                        verbose_name="key",
                    ),
                ),
                ("host_id", models.TextField(db_comment="The tenant", null=True, verbose_name="host")),
                ("user_id", models.TextField(db_comment="Who caused the event", null=True, verbose_name="user")),
                (
                    "to_group",
                    models.TextField(
                        db_comment="Only this group handles it; null: every group", null=True, verbose_name="for group"
                    ),
                ),
                (
                    "payload",
                    models.JSONField(
                        db_comment="The event itself",
                        encoder=django.core.serializers.json.DjangoJSONEncoder,
                        verbose_name="payload",
                    ),
                ),
                (
                    "metadata",
                    models.JSONField(
                        db_comment="What travels with the event: trace context, correlation, schema version",
                        db_default=models.Value({}, models.JSONField()),
                        default=dict,
                        encoder=django.core.serializers.json.DjangoJSONEncoder,
                        verbose_name="metadata",
                    ),
                ),
                (
                    "transaction_id",
                    models.UUIDField(
                        db_comment="One value for all events of one transaction, whichever language inserted them",
                        db_default=pubsub.models.fields.TransactionUUID(),
                        editable=False,
                        verbose_name="transaction",
                    ),
                ),
                (
                    "created_at",
                    models.DateTimeField(
                        db_comment="When it was published, by the database's clock",
                        db_default=pubsub.models.fields.ClockTimestamp(),
                        editable=False,
                        verbose_name="published",
                    ),
                ),
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                (
                    "deliver_at",
                    models.DateTimeField(
                        db_comment="Not numbered, and so not seen, before this time", verbose_name="deliver at"
                    ),
                ),
            ],
            options={
                "verbose_name": "delayed message",
                "verbose_name_plural": "delayed messages",
                "db_table": "outbox_delayed_message",
                "db_table_comment": "Messages that are not due yet",
                "indexes": [models.Index(fields=["deliver_at", "id"], name="outbox_delayed_message_due")],
                "constraints": [],
            },
        ),
        migrations.CreateModel(
            name="DedupKey",
            fields=[
                (
                    "pk",
                    models.CompositePrimaryKey(
                        "topic_id", "dedup_key", blank=True, editable=False, primary_key=True, serialize=False
                    ),
                ),
                (
                    "topic",
                    models.ForeignKey(
                        db_comment="The topic",
                        db_constraint=False,
                        db_index=False,
                        on_delete=django.db.models.deletion.DO_NOTHING,
                        related_name="+",
                        to="pubsub.topic",
                    ),
                ),
                ("dedup_key", models.TextField(db_comment="What the publisher calls the same message")),
                ("event_id", models.UUIDField(db_comment="The message that was first")),
                ("expires_at", models.DateTimeField(db_comment="From here on the key may be used again")),
            ],
            options={
                "db_table": "outbox_dedup_key",
                "db_table_comment": "Keys under which a message has been published and may not be again",
                "indexes": [models.Index(fields=["expires_at"], name="outbox_dedup_key_expiry")],
                "constraints": [],
            },
        ),
        run_sql_file(
            "log_entry",
            [
                migrations.CreateModel(
                    name="LogEntry",
                    fields=[
                        (
                            "pk",
                            models.CompositePrimaryKey(
                                "topic_id", "c_offset", blank=True, editable=False, primary_key=True, serialize=False
                            ),
                        ),
                        (
                            "position",
                            models.BigIntegerField(
                                db_comment="Gapless over all topics; the order of storage", verbose_name="position"
                            ),
                        ),
                        (
                            "c_offset",
                            models.BigIntegerField(db_comment="Gapless from 1 within the topic", verbose_name="offset"),
                        ),
                        (
                            "message_id",
                            models.BigIntegerField(db_comment="outbox_message_t.id", verbose_name="message"),
                        ),
                        (
                            "topic",
                            models.ForeignKey(
                                db_constraint=False,
                                db_index=False,
                                on_delete=django.db.models.deletion.DO_NOTHING,
                                related_name="+",
                                to="pubsub.topic",
                                verbose_name="topic",
                            ),
                        ),
                        (
                            "partition_id",
                            models.IntegerField(
                                db_comment="Decided when numbered, so that a later resize moves nothing",
                                verbose_name="partition",
                            ),
                        ),
                    ],
                    options={
                        "verbose_name": "log entry",
                        "verbose_name_plural": "log entries",
                        "db_table": "log_entry",
                        "db_table_comment": "The log: which message stands at which offset; insert-only, partitioned by position",
                        "indexes": [models.Index(fields=["topic", "partition_id", "position"], name="log_entry_walk")],
                        "constraints": [],
                    },
                ),
            ],
        ),
        migrations.CreateModel(
            name="LogCounter",
            fields=[
                (
                    "topic",
                    models.OneToOneField(
                        db_constraint=False,
                        on_delete=django.db.models.deletion.DO_NOTHING,
                        primary_key=True,
                        related_name="counter",
                        serialize=False,
                        to="pubsub.topic",
                    ),
                ),
                (
                    "next_offset",
                    models.BigIntegerField(db_comment="The tip of the log is one less", db_default=1, default=1),
                ),
            ],
            options={
                "db_table": "log_counter",
                "db_table_comment": "The next free offset of each topic",
                "constraints": [
                    models.CheckConstraint(condition=models.Q(("next_offset__gte", 1)), name="log_counter_from_one")
                ],
                "indexes": [],
            },
        ),
        migrations.CreateModel(
            name="LogPartitionCounter",
            fields=[
                (
                    "pk",
                    models.CompositePrimaryKey(
                        "topic_id", "partition_id", blank=True, editable=False, primary_key=True, serialize=False
                    ),
                ),
                (
                    "topic",
                    models.ForeignKey(
                        db_constraint=False,
                        db_index=False,
                        on_delete=django.db.models.deletion.DO_NOTHING,
                        related_name="+",
                        to="pubsub.topic",
                    ),
                ),
                ("partition_id", models.IntegerField()),
                (
                    "entries",
                    models.BigIntegerField(
                        db_comment="Entries ever numbered into this partition", db_default=0, default=0
                    ),
                ),
                (
                    "retired",
                    models.BigIntegerField(
                        db_comment="Those of them that retention has dropped", db_default=0, default=0
                    ),
                ),
            ],
            options={
                "db_table": "log_partition_counter",
                "db_table_comment": "Entries ever numbered, by topic and partition: what lag is worked out from",
                "indexes": [],
                "constraints": [],
            },
        ),
        migrations.CreateModel(
            name="Sequencer",
            fields=[
                ("id", models.SmallIntegerField(db_default=1, default=1, primary_key=True, serialize=False)),
                (
                    "seen",
                    pubsub.models.fields.SnapshotField(
                        db_comment="Messages of transactions that were over at this moment have been numbered",
                        db_default=models.Value("1:1:", pubsub.models.fields.SnapshotField()),
                    ),
                ),
                (
                    "next_position",
                    models.BigIntegerField(db_comment="The next free position in log_entry", db_default=1, default=1),
                ),
                (
                    "system_identifier",
                    models.BigIntegerField(
                        db_comment="The cluster that the snapshot belongs to; transaction ids mean nothing in another one",
                        null=True,
                    ),
                ),
            ],
            options={
                "db_table": "log_sequencer",
                "db_table_comment": "Up to where the outbox has been numbered (one row)",
                "constraints": [models.CheckConstraint(condition=models.Q(("id", 1)), name="log_sequencer_one_row")],
                "indexes": [],
            },
        ),
        migrations.CreateModel(
            name="ConsumerOffset",
            fields=[
                (
                    "pk",
                    models.CompositePrimaryKey(
                        "group_id",
                        "topic_id",
                        "partition_id",
                        blank=True,
                        editable=False,
                        primary_key=True,
                        serialize=False,
                    ),
                ),
                ("group_id", models.TextField(verbose_name="group")),
                (
                    "topic",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to="pubsub.topic",
                        verbose_name="topic",
                    ),
                ),
                ("partition_id", models.IntegerField(verbose_name="partition")),
                (
                    "next_offset",
                    models.BigIntegerField(
                        db_comment="The first offset this group has not passed here",
                        db_default=1,
                        default=1,
                        verbose_name="next offset",
                    ),
                ),
                (
                    "next_position",
                    models.BigIntegerField(
                        db_comment="The same place in storage order: where the next read begins",
                        db_default=1,
                        default=1,
                    ),
                ),
                (
                    "passed",
                    models.BigIntegerField(
                        db_comment="Entries of this partition before the cursor; lag = entries - passed",
                        db_default=0,
                        default=0,
                    ),
                ),
                (
                    "updated_at",
                    models.DateTimeField(db_default=pubsub.models.fields.ClockTimestamp(), verbose_name="updated"),
                ),
            ],
            options={
                "verbose_name": "consumer offset",
                "verbose_name_plural": "consumer offsets",
                "db_table": "consumer_offsets",
                "db_table_comment": "Where each group stands in each partition",
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(
                            ("next_offset__gte", 1),
                            ("next_position__gte", 1),
                            ("partition_id__gte", 0),
                            ("passed__gte", 0),
                        ),
                        name="consumer_offsets_in_range",
                    )
                ],
                "indexes": [],
            },
        ),
        migrations.CreateModel(
            name="Claim",
            fields=[
                (
                    "pk",
                    models.CompositePrimaryKey(
                        "group_id",
                        "topic_id",
                        "partition_id",
                        "first_offset",
                        blank=True,
                        editable=False,
                        primary_key=True,
                        serialize=False,
                    ),
                ),
                ("group_id", models.TextField()),
                (
                    "topic",
                    models.ForeignKey(
                        db_index=False, on_delete=django.db.models.deletion.PROTECT, related_name="+", to="pubsub.topic"
                    ),
                ),
                ("partition_id", models.IntegerField()),
                ("first_offset", models.BigIntegerField()),
                ("last_offset", models.BigIntegerField()),
                ("worker_id", models.TextField(db_comment="The process that holds the lease")),
                (
                    "epoch",
                    models.BigIntegerField(
                        db_comment="Grows with each take-over; an acknowledgement with an older one counts not",
                        db_default=1,
                        default=1,
                    ),
                ),
                ("attempts", models.IntegerField(db_comment="A crash counts as one", db_default=1, default=1)),
                ("expires_at", models.DateTimeField(db_comment="When somebody else may take the range over")),
            ],
            options={
                "db_table": "consumer_claims",
                "db_table_comment": "Ranges in flight, for delivery modes that hold no transaction open",
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(("last_offset__gte", models.F("first_offset"))),
                        name="consumer_claims_not_empty",
                    )
                ],
                "indexes": [],
            },
        ),
        migrations.CreateModel(
            name="DeadLetter",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("group_id", models.TextField(verbose_name="group")),
                (
                    "topic",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to="pubsub.topic",
                        verbose_name="topic",
                    ),
                ),
                ("partition_id", models.IntegerField(verbose_name="partition")),
                ("c_offset", models.BigIntegerField(verbose_name="offset")),
                ("event_id", models.UUIDField(verbose_name="event id")),
                (
                    "transaction_id",
                    models.UUIDField(
                        db_comment="The events of a transaction fail, and are replayed, together",
                        verbose_name="transaction",
                    ),
                ),
                ("type", models.TextField(default="", verbose_name="type")),
                ("key", models.TextField(null=True, verbose_name="key")),
                ("host_id", models.TextField(null=True, verbose_name="host")),
                ("user_id", models.TextField(null=True, verbose_name="user")),
                (
                    "payload",
                    models.JSONField(
                        db_comment="Kept beyond the log's retention",
                        encoder=django.core.serializers.json.DjangoJSONEncoder,
                        verbose_name="payload",
                    ),
                ),
                (
                    "metadata",
                    models.JSONField(encoder=django.core.serializers.json.DjangoJSONEncoder, verbose_name="metadata"),
                ),
                ("published_at", models.DateTimeField(verbose_name="published")),
                (
                    "handler",
                    models.TextField(db_comment="Dotted name of the function that failed", verbose_name="handler"),
                ),
                ("exception_class", models.TextField(default="", verbose_name="exception")),
                ("exception_message", models.TextField(default="", verbose_name="message")),
                ("traceback", models.TextField(default="", verbose_name="traceback")),
                ("attempts", models.IntegerField(default=1, verbose_name="attempts")),
                (
                    "state",
                    models.TextField(
                        choices=[
                            ("retrying", "waiting for its next attempt"),
                            ("dead", "waiting for somebody to act"),
                            ("resolved", "handled at a later attempt"),
                            ("discarded", "given up by somebody"),
                        ],
                        db_default="dead",
                        default="dead",
                        verbose_name="state",
                    ),
                ),
                (
                    "next_attempt_at",
                    models.DateTimeField(
                        db_comment="Set while the state is retrying", null=True, verbose_name="next attempt"
                    ),
                ),
                (
                    "created_at",
                    models.DateTimeField(
                        db_default=pubsub.models.fields.ClockTimestamp(), editable=False, verbose_name="failed first"
                    ),
                ),
                (
                    "updated_at",
                    models.DateTimeField(
                        db_default=pubsub.models.fields.ClockTimestamp(), editable=False, verbose_name="changed"
                    ),
                ),
            ],
            options={
                "verbose_name": "dead letter",
                "verbose_name_plural": "dead letters",
                "db_table": "dead_letter_queue",
                "db_table_comment": "Events that a group could not handle",
                "permissions": [
                    ("replay_deadletter", "Can replay dead letters"),
                    ("discard_deadletter", "Can discard dead letters"),
                ],
                "indexes": [
                    models.Index(
                        condition=models.Q(("state", "retrying")),
                        fields=["group_id", "topic", "partition_id", "next_attempt_at"],
                        name="dead_letter_queue_due",
                    ),
                    models.Index(fields=["state", "-id"], name="dead_letter_queue_by_state"),
                    models.Index(fields=["transaction_id", "group_id"], name="dead_letter_queue_transaction"),
                    models.Index(fields=["event_id"], name="dead_letter_queue_event"),
                    models.Index(
                        condition=models.Q(("key__isnull", False)), fields=["key"], name="dead_letter_queue_keyed"
                    ),
                ],
                "constraints": [
                    models.UniqueConstraint(fields=("group_id", "topic", "c_offset"), name="dead_letter_queue_once"),
                    models.CheckConstraint(
                        condition=models.Q(("attempts__gte", 1)), name="dead_letter_queue_attempted"
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("state__in", ["retrying", "dead", "resolved", "discarded"])),
                        name="dead_letter_queue_state_known",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(("next_attempt_at__isnull", False), ("state", "retrying")),
                            models.Q(models.Q(("state", "retrying"), _negated=True), ("next_attempt_at__isnull", True)),
                            _connector="OR",
                        ),
                        name="dead_letter_queue_retrying_has_time",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="LogView",
            fields=[
                (
                    "pk",
                    models.CompositePrimaryKey(
                        "topic_id", "c_offset", blank=True, editable=False, primary_key=True, serialize=False
                    ),
                ),
                ("topic_id", models.IntegerField()),
                ("topic", models.TextField(verbose_name="topic")),
                ("c_offset", models.BigIntegerField(verbose_name="offset")),
                ("partition_id", models.IntegerField(verbose_name="partition")),
                ("position", models.BigIntegerField(verbose_name="position")),
                ("message_id", models.BigIntegerField(verbose_name="message")),
                ("event_id", models.UUIDField(verbose_name="event id")),
                ("type", models.TextField(verbose_name="type")),
                ("key", models.TextField(null=True, verbose_name="key")),
                ("host_id", models.TextField(null=True, verbose_name="host")),
                ("user_id", models.TextField(null=True, verbose_name="user")),
                ("to_group", models.TextField(null=True, verbose_name="for group")),
                ("transaction_id", models.UUIDField(verbose_name="transaction")),
                ("payload", models.JSONField(verbose_name="payload")),
                ("metadata", models.JSONField(verbose_name="metadata")),
                ("created_at", models.DateTimeField(verbose_name="published")),
            ],
            options={
                "db_table": "outbox_log_v",
                "managed": False,
                "indexes": [],
                "constraints": [],
            },
        ),
        migrations.CreateModel(
            name="ConsumerLag",
            fields=[
                (
                    "pk",
                    models.CompositePrimaryKey(
                        "group_id",
                        "topic_id",
                        "partition_id",
                        blank=True,
                        editable=False,
                        primary_key=True,
                        serialize=False,
                    ),
                ),
                ("group_id", models.TextField(verbose_name="group")),
                ("topic_id", models.IntegerField()),
                ("topic", models.TextField(verbose_name="topic")),
                ("partition_id", models.IntegerField(verbose_name="partition")),
                ("status", models.TextField(null=True, verbose_name="status")),
                ("next_offset", models.BigIntegerField(verbose_name="next offset")),
                ("tip", models.BigIntegerField(verbose_name="tip")),
                ("lag", models.BigIntegerField(verbose_name="events behind")),
                ("waiting_since", models.DateTimeField(null=True, verbose_name="waiting since")),
                ("updated_at", models.DateTimeField(verbose_name="moved")),
            ],
            options={
                "db_table": "consumer_lag_v",
                "managed": False,
                "indexes": [],
                "constraints": [],
            },
        ),
        run_sql_file("hot_rows"),
        run_sql_file("partitions_v1"),
        run_sql_file("publish_v1"),
        run_sql_file("unfinished_v1"),
        run_sql_file("sequence_v1"),
        run_sql_file("reanchor_v1"),
        run_sql_file("outbox_log_v"),
        run_sql_file("consumer_lag_v"),
    ]
