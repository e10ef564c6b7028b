import datetime

import django.core.serializers.json
import django.db.models.deletion
import django.db.models.functions.comparison
import django.db.models.functions.datetime
import django.db.models.lookups
from django.db import migrations, models

import pubsub.models.fields

from ._sql_files import run_sql_file


class Migration(migrations.Migration):
    dependencies = [
        ("pubsub", "0001_initial"),
    ]

    operations = [
        # Nothing has ever been in it, and its primary key changes.
        migrations.DeleteModel(name="Claim"),
        migrations.CreateModel(
            name="Claim",
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
                ("first_offset", models.BigIntegerField(verbose_name="first offset")),
                (
                    "last_offset",
                    models.BigIntegerField(
                        db_comment="As far as it was read when it was taken; a long transaction may go on behind it",
                        verbose_name="last offset",
                    ),
                ),
                ("worker_id", models.TextField(db_comment="The process that holds the lease", verbose_name="worker")),
                (
                    "epoch",
                    models.BigIntegerField(
                        db_comment="The cursor's epoch when it was taken; an acknowledgement with an older one counts not"
                    ),
                ),
                (
                    "attempts",
                    models.IntegerField(
                        db_comment="A crash counts as one", db_default=1, default=1, verbose_name="attempts"
                    ),
                ),
                (
                    "lock_key",
                    models.IntegerField(
                        db_comment="The advisory lock that the worker holds for as long as it is connected; null: none",
                        null=True,
                    ),
                ),
                (
                    "taken_at",
                    models.DateTimeField(db_default=pubsub.models.fields.ClockTimestamp(), verbose_name="taken"),
                ),
                (
                    "expires_at",
                    models.DateTimeField(
                        db_comment="When somebody else may take the range over", verbose_name="lease ends"
                    ),
                ),
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
            name="Resize",
            fields=[
                (
                    "pk",
                    models.CompositePrimaryKey(
                        "topic_id", "position", blank=True, editable=False, primary_key=True, serialize=False
                    ),
                ),
                (
                    "topic",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="resizes",
                        to="pubsub.topic",
                    ),
                ),
                (
                    "position",
                    models.BigIntegerField(db_comment="The first place in the log that follows the new number"),
                ),
                ("c_offset", models.BigIntegerField(db_comment="The same, as people know it")),
                ("partitions_before", models.IntegerField()),
                ("partitions_after", models.IntegerField()),
                ("resized_at", models.DateTimeField(db_default=pubsub.models.fields.ClockTimestamp(), editable=False)),
            ],
            options={
                "db_table": "outbox_topic_resizes",
                "db_table_comment": "From where on a topic has how many partitions; keeps the order of keys over a resize",
                "indexes": [],
                "constraints": [],
            },
        ),
        migrations.CreateModel(
            name="Member",
            fields=[
                (
                    "pk",
                    models.CompositePrimaryKey(
                        "topic_id",
                        "group_id",
                        "worker_id",
                        blank=True,
                        editable=False,
                        primary_key=True,
                        serialize=False,
                    ),
                ),
                (
                    "topic",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="+",
                        to="pubsub.topic",
                        verbose_name="topic",
                    ),
                ),
                ("group_id", models.TextField(verbose_name="group")),
                (
                    "worker_id",
                    models.TextField(
                        db_comment="Unique among all processes; --worker-id chooses it", verbose_name="worker"
                    ),
                ),
                ("host", models.TextField(db_default="", default="", verbose_name="machine")),
                ("pid", models.IntegerField(null=True, verbose_name="process")),
                (
                    "joined_at",
                    models.DateTimeField(
                        db_default=pubsub.models.fields.ClockTimestamp(), editable=False, verbose_name="joined"
                    ),
                ),
                (
                    "last_heartbeat_at",
                    models.DateTimeField(
                        db_default=pubsub.models.fields.ClockTimestamp(), editable=False, verbose_name="last heartbeat"
                    ),
                ),
            ],
            options={
                "verbose_name": "member",
                "verbose_name_plural": "members",
                "db_table": "outbox_members",
                "db_table_comment": "The processes that work for a group, and when each was last heard of",
                "indexes": [],
                "constraints": [],
            },
        ),
        migrations.CreateModel(
            name="Attempt",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                (
                    "letter",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="history",
                        to="pubsub.deadletter",
                        verbose_name="dead letter",
                    ),
                ),
                ("attempt", models.IntegerField(verbose_name="attempt")),
                (
                    "failed_at",
                    models.DateTimeField(
                        db_default=pubsub.models.fields.ClockTimestamp(), editable=False, verbose_name="failed"
                    ),
                ),
                ("handler", models.TextField(verbose_name="handler")),
                ("exception_class", models.TextField(verbose_name="exception")),
                ("exception_message", models.TextField(verbose_name="message")),
                ("traceback", models.TextField(verbose_name="traceback")),
            ],
            options={
                "verbose_name": "attempt",
                "verbose_name_plural": "attempts",
                "db_table": "dead_letter_attempts",
                "db_table_comment": "Every failed attempt at a dead letter",
                "ordering": ["id"],
                "indexes": [models.Index(fields=["letter", "id"], name="dead_letter_attempts_in_order")],
                "constraints": [],
            },
        ),
        migrations.CreateModel(
            name="OperatorEvent",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                (
                    "happened_at",
                    models.DateTimeField(
                        db_default=pubsub.models.fields.ClockTimestamp(), editable=False, verbose_name="when"
                    ),
                ),
                (
                    "actor",
                    models.TextField(
                        db_comment="A user's name, or the part of the system that decided", verbose_name="who"
                    ),
                ),
                (
                    "action",
                    models.TextField(
                        db_comment="Such as pause, seek, resize, dead, partition-dropped", verbose_name="what"
                    ),
                ),
                ("topic", models.TextField(db_default="", default="", verbose_name="topic")),
                ("group_id", models.TextField(db_default="", default="", verbose_name="group")),
                ("reason", models.TextField(db_default="", default="", verbose_name="why")),
                (
                    "before",
                    models.JSONField(
                        encoder=django.core.serializers.json.DjangoJSONEncoder, null=True, verbose_name="before"
                    ),
                ),
                (
                    "after",
                    models.JSONField(
                        encoder=django.core.serializers.json.DjangoJSONEncoder, null=True, verbose_name="after"
                    ),
                ),
            ],
            options={
                "verbose_name": "operator event",
                "verbose_name_plural": "operator events",
                "db_table": "operator_events",
                "db_table_comment": "What operators did and what was decided automatically",
                "ordering": ["-id"],
                "indexes": [models.Index(fields=["topic", "group_id", "-id"], name="operator_events_of_group")],
                "constraints": [],
            },
        ),
        migrations.CreateModel(
            name="Sample",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                (
                    "taken_at",
                    models.DateTimeField(
                        db_default=pubsub.models.fields.ClockTimestamp(), editable=False, verbose_name="when"
                    ),
                ),
                (
                    "topic",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="+",
                        to="pubsub.topic",
                        verbose_name="topic",
                    ),
                ),
                (
                    "group_id",
                    models.TextField(
                        db_comment="Empty: the topic itself", db_default="", default="", verbose_name="group"
                    ),
                ),
                ("tip", models.BigIntegerField(db_comment="The topic's last offset", verbose_name="tip")),
                ("lag", models.BigIntegerField(db_default=0, default=0, verbose_name="events behind")),
                (
                    "behind_s",
                    models.FloatField(
                        db_comment="The age of the first event not passed",
                        db_default=0.0,
                        default=0,
                        verbose_name="seconds behind",
                    ),
                ),
            ],
            options={
                "verbose_name": "sample",
                "verbose_name_plural": "samples",
                "db_table": "outbox_samples",
                "db_table_comment": "How far topics and groups had come at some moments, for charts; written only on change",
                "indexes": [models.Index(fields=["topic", "group_id", "taken_at"], name="outbox_samples_course")],
                "constraints": [],
            },
        ),
        migrations.CreateModel(
            name="Finding",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("run_id", models.UUIDField(verbose_name="run")),
                ("job", models.TextField(db_comment="Such as throughput, latency, skew", verbose_name="job")),
                (
                    "made_at",
                    models.DateTimeField(
                        db_default=pubsub.models.fields.ClockTimestamp(), editable=False, verbose_name="made"
                    ),
                ),
                (
                    "parameters",
                    models.JSONField(
                        db_default=models.Value({}, models.JSONField()),
                        encoder=django.core.serializers.json.DjangoJSONEncoder,
                        verbose_name="parameters",
                    ),
                ),
                ("row_number", models.IntegerField(verbose_name="row")),
                ("data", models.JSONField(encoder=django.core.serializers.json.DjangoJSONEncoder, verbose_name="data")),
            ],
            options={
                "verbose_name": "finding",
                "verbose_name_plural": "findings",
                "db_table": "spark_findings",
                "db_table_comment": "What analyses of the log found, a row each",
                "indexes": [models.Index(fields=["job", "-made_at"], name="spark_findings_latest")],
                "constraints": [models.UniqueConstraint(fields=("run_id", "row_number"), name="spark_findings_once")],
            },
        ),
        migrations.CreateModel(
            name="SinkBatch",
            fields=[
                (
                    "pk",
                    models.CompositePrimaryKey(
                        "sink", "batch_id", blank=True, editable=False, primary_key=True, serialize=False
                    ),
                ),
                ("sink", models.TextField(db_comment="The stream, as its checkpoint knows it")),
                ("batch_id", models.BigIntegerField()),
                ("events", models.BigIntegerField()),
                (
                    "published_at",
                    models.DateTimeField(db_default=pubsub.models.fields.ClockTimestamp(), editable=False),
                ),
            ],
            options={
                "db_table": "spark_sink_batches",
                "db_table_comment": "Batches that streams have published, each exactly once",
                "indexes": [],
                "constraints": [],
            },
        ),
        migrations.CreateModel(
            name="Segment",
            fields=[
                (
                    "pk",
                    models.CompositePrimaryKey(
                        "lower",
                        "topic_id",
                        "partition_id",
                        blank=True,
                        editable=False,
                        primary_key=True,
                        serialize=False,
                    ),
                ),
                (
                    "lower",
                    models.BigIntegerField(db_comment="The first position of the storage partition log_entry_<lower>"),
                ),
                ("upper", models.BigIntegerField(db_comment="The first position behind it")),
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
                ("entries", models.BigIntegerField()),
                ("first_offset", models.BigIntegerField()),
                ("last_offset", models.BigIntegerField()),
                (
                    "first_message_id",
                    models.BigIntegerField(db_comment="The smallest id of a message; ids are not in the log's order"),
                ),
                ("last_message_id", models.BigIntegerField(db_comment="The greatest one")),
                (
                    "filled_at",
                    models.DateTimeField(db_comment="When it was seen to be full: nothing in it was numbered later"),
                ),
            ],
            options={
                "db_table": "log_segments",
                "db_table_comment": "What full storage partitions of the log hold: what retention decides by, reading no log",
                "indexes": [],
                "constraints": [],
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
                ("staged_at", models.DateTimeField(db_default=pubsub.models.fields.ClockTimestamp(), editable=False)),
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
                "db_table": "spark_staged_events",
                "db_table_comment": "What tasks of Spark want to be published; empty but for batches in the making",
            },
        ),
        migrations.CreateModel(
            name="Overview",
            fields=[],
            options={
                "verbose_name": "overview",
                "verbose_name_plural": "overview",
                "proxy": True,
                "default_permissions": (),
                "indexes": [],
                "constraints": [],
            },
            bases=("pubsub.subscription",),
        ),
        migrations.AlterModelOptions(
            name="deadletter",
            options={
                "permissions": [
                    ("replay_deadletter", "Can replay dead letters"),
                    ("discard_deadletter", "Can discard dead letters"),
                    ("edit_payload_deadletter", "Can change the payload of dead letters"),
                    ("view_payload_deadletter", "Can see the payload of dead letters"),
                ],
                "verbose_name": "dead letter",
                "verbose_name_plural": "dead letters",
            },
        ),
        migrations.AlterModelOptions(
            name="outboxmessage",
            options={
                "permissions": [
                    ("publish_outboxmessage", "Can publish messages by hand"),
                    ("view_payload_outboxmessage", "Can see the payload of messages"),
                ],
                "verbose_name": "message",
                "verbose_name_plural": "messages",
            },
        ),
        migrations.AlterModelOptions(
            name="subscription",
            options={
                "ordering": ["topic", "group_id"],
                "permissions": [
                    ("pause_subscription", "Can pause and resume subscriptions"),
                    ("seek_subscription", "Can move subscriptions in the log"),
                ],
                "verbose_name": "subscription",
                "verbose_name_plural": "subscriptions",
            },
        ),
        migrations.RemoveConstraint(
            model_name="deadletter",
            name="dead_letter_queue_attempted",
        ),
        migrations.RemoveConstraint(
            model_name="deadletter",
            name="dead_letter_queue_state_known",
        ),
        migrations.AddField(
            model_name="consumeroffset",
            name="epoch",
            field=models.BigIntegerField(
                db_comment="Grows with each lease, so that an old one can be told from a new one",
                db_default=0,
                default=0,
            ),
        ),
        migrations.AddField(
            model_name="deadletter",
            name="original_payload",
            field=models.JSONField(
                blank=True,
                db_comment="What was published, where somebody has changed the payload since; null: it is as published",
                encoder=django.core.serializers.json.DjangoJSONEncoder,
                null=True,
                verbose_name="original payload",
            ),
        ),
        migrations.AddField(
            model_name="sequencer",
            name="settled_id",
            field=models.BigIntegerField(
                db_comment="All messages with a smaller id have been numbered, also those whose entries are gone",
                db_default=1,
                default=1,
            ),
        ),
        migrations.AddField(
            model_name="subscription",
            name="expires_after",
            field=models.DurationField(
                blank=True,
                db_comment="A temporary subscription goes when nobody has used it for so long; null: it stays",
                null=True,
                verbose_name="expires after",
            ),
        ),
        migrations.AddField(
            model_name="subscription",
            name="last_miss_at",
            field=models.DateTimeField(
                db_comment="When the last of them was counted; the next one counts a timeout later",
                editable=False,
                null=True,
            ),
        ),
        migrations.AddField(
            model_name="subscription",
            name="missed",
            field=models.JSONField(
                blank=True,
                db_comment="What was dropped unread, by partition: [first, last] offset; null: nothing",
                editable=False,
                null=True,
                verbose_name="missed offsets",
            ),
        ),
        migrations.AddField(
            model_name="subscription",
            name="misses",
            field=models.IntegerField(
                db_comment="In a row, by all members",
                db_default=0,
                default=0,
                editable=False,
                verbose_name="missed heartbeats",
            ),
        ),
        migrations.AddField(
            model_name="subscription",
            name="resizes_passed",
            field=models.BigIntegerField(
                db_comment="Resizes up to this position are behind the group", db_default=0, default=0, editable=False
            ),
        ),
        migrations.AddField(
            model_name="subscription",
            name="status_changed_at",
            field=models.DateTimeField(
                db_default=django.db.models.functions.datetime.Now(), editable=False, verbose_name="since"
            ),
        ),
        migrations.AddField(
            model_name="subscription",
            name="status_reason",
            field=models.TextField(
                blank=True,
                db_comment="Why it has this status, for people",
                db_default="",
                default="",
                verbose_name="because",
            ),
        ),
        migrations.AddField(
            model_name="topic",
            name="max_age",
            field=models.DurationField(
                blank=True,
                db_comment="A group that is further behind loses its place, visibly; null: never",
                null=True,
                verbose_name="longest wait for a group",
            ),
        ),
        migrations.AddField(
            model_name="topic",
            name="max_bytes",
            field=models.BigIntegerField(
                blank=True,
                db_comment="A group that holds back more loses its place, visibly; null: never",
                null=True,
                verbose_name="most bytes kept for a group",
            ),
        ),
        migrations.AddField(
            model_name="topic",
            name="zero_subscribers",
            field=models.TextField(
                choices=[
                    ("keep", "keep messages for the retention, for a group that may come"),
                    ("refuse", "refuse to publish"),
                ],
                db_comment="What publishing does while no group counts: keep for the retention, or refuse",
                db_default="keep",
                default="keep",
                verbose_name="without subscriptions",
            ),
        ),
        migrations.AlterField(
            model_name="deadletter",
            name="attempts",
            field=models.IntegerField(db_comment="0: parked, and not tried yet", default=1, verbose_name="attempts"),
        ),
        migrations.AlterField(
            model_name="deadletter",
            name="state",
            field=models.TextField(
                choices=[
                    ("retrying", "waiting for its next attempt"),
                    ("dead", "waiting for somebody to act"),
                    ("resolved", "handled at a later attempt"),
                    ("discarded", "given up by somebody"),
                    ("parked", "waiting behind a failed event of the same key"),
                ],
                db_default="dead",
                default="dead",
                verbose_name="state",
            ),
        ),
        migrations.AlterField(
            model_name="subscription",
            name="delivery",
            field=models.TextField(
                choices=[
                    ("transactional", "transactional"),
                    ("at_least_once", "at least once"),
                    ("at_most_once", "at most once"),
                ],
                db_comment="transactional: effects in this database happen exactly once; at_least_once; at_most_once",
                db_default="transactional",
                default="transactional",
                verbose_name="delivery",
            ),
        ),
        migrations.AlterField(
            model_name="subscription",
            name="retry_delays",
            field=models.JSONField(
                blank=True,
                db_comment="Seconds before each further attempt, or how they grow; empty: none",
                db_default=models.Value([], models.JSONField()),
                default=list,
                verbose_name="retry delays",
            ),
        ),
        migrations.AddIndex(
            model_name="deadletter",
            index=models.Index(
                django.db.models.functions.comparison.Coalesce("key", "host_id"),
                models.F("group_id"),
                models.F("topic"),
                models.F("c_offset"),
                condition=models.Q(("state__in", ["retrying", "dead", "parked"])),
                name="dead_letter_queue_blocking",
            ),
        ),
        migrations.AddIndex(
            model_name="deadletter",
            index=models.Index(
                condition=models.Q(("state__in", ["retrying", "dead", "parked"])),
                fields=["group_id", "topic", "partition_id", "c_offset"],
                name="dead_letter_queue_open",
            ),
        ),
        migrations.AddIndex(
            model_name="deadletter",
            index=models.Index(
                condition=models.Q(("state__in", ["resolved", "discarded"])),
                fields=["updated_at"],
                name="dead_letter_queue_finished",
            ),
        ),
        migrations.AddIndex(
            model_name="deadletter",
            index=models.Index(fields=["group_id", "-id"], name="dead_letter_queue_by_group"),
        ),
        migrations.AddIndex(
            model_name="deadletter",
            index=models.Index(fields=["topic", "-id"], name="dead_letter_queue_by_topic"),
        ),
        migrations.AddIndex(
            model_name="deadletter",
            index=models.Index(fields=["type", "-id"], name="dead_letter_queue_by_type"),
        ),
        migrations.AddIndex(
            model_name="deadletter",
            index=models.Index(fields=["exception_class", "-id"], name="dead_letter_queue_by_exception"),
        ),
        migrations.AddIndex(
            model_name="deadletter",
            index=models.Index(
                condition=models.Q(("host_id__isnull", False)),
                fields=["host_id", "-id"],
                name="dead_letter_queue_by_host",
            ),
        ),
        migrations.AddIndex(
            model_name="deadletter",
            index=models.Index(fields=["created_at"], name="dead_letter_queue_by_time"),
        ),
        migrations.AddConstraint(
            model_name="deadletter",
            constraint=models.CheckConstraint(
                condition=models.Q(("attempts__gte", 0)), name="dead_letter_queue_attempted"
            ),
        ),
        migrations.AddConstraint(
            model_name="deadletter",
            constraint=models.CheckConstraint(
                condition=models.Q(("state__in", ["retrying", "dead", "resolved", "discarded", "parked"])),
                name="dead_letter_queue_state_known",
            ),
        ),
        migrations.AddConstraint(
            model_name="topic",
            constraint=models.CheckConstraint(
                condition=models.Q(("zero_subscribers__in", ["keep", "refuse"])),
                name="outbox_topics_zero_subscribers_known",
            ),
        ),
        migrations.AddConstraint(
            model_name="topic",
            constraint=models.CheckConstraint(
                condition=models.Q(("max_age__isnull", True), ("max_age__gt", datetime.timedelta(0)), _connector="OR"),
                name="outbox_topics_max_age_positive",
            ),
        ),
        migrations.AddConstraint(
            model_name="topic",
            constraint=models.CheckConstraint(
                condition=models.Q(("max_bytes__isnull", True), ("max_bytes__gt", 0), _connector="OR"),
                name="outbox_topics_max_bytes_positive",
            ),
        ),
        migrations.AddIndex(
            model_name="stagedevent",
            index=models.Index(fields=["task_id", "id"], name="spark_staged_events_task"),
        ),
        migrations.AddIndex(
            model_name="stagedevent",
            index=models.Index(fields=["staged_at"], name="spark_staged_events_age"),
        ),
        migrations.AddConstraint(
            model_name="delayedmessage",
            constraint=models.CheckConstraint(
                condition=django.db.models.lookups.LessThanOrEqual(
                    django.db.models.functions.comparison.Greatest(
                        pubsub.models.fields.Octets("type"),
                        pubsub.models.fields.Octets("key"),
                        pubsub.models.fields.Octets("host_id"),
                        pubsub.models.fields.Octets("user_id"),
                        pubsub.models.fields.Octets("to_group"),
                    ),
                    2000,
                ),
                name="outbox_delayed_message_texts_fit",
            ),
        ),
        migrations.AddConstraint(
            model_name="outboxmessage",
            constraint=models.CheckConstraint(
                condition=django.db.models.lookups.LessThanOrEqual(
                    django.db.models.functions.comparison.Greatest(
                        pubsub.models.fields.Octets("type"),
                        pubsub.models.fields.Octets("key"),
                        pubsub.models.fields.Octets("host_id"),
                        pubsub.models.fields.Octets("user_id"),
                        pubsub.models.fields.Octets("to_group"),
                    ),
                    2000,
                ),
                name="outbox_message_t_texts_fit",
            ),
        ),
        run_sql_file("place_at_v1"),
        run_sql_file("offset_at_v1"),
        run_sql_file("lock_place_v1"),
        run_sql_file("move_place_v1"),
        run_sql_file("read_v1"),
        run_sql_file("was_aborted_v1"),
        run_sql_file("pass_resizes_v1"),
        run_sql_file("find_work_v1"),
        run_sql_file("reanchor_v2"),
    ]
