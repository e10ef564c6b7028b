"""Creating topics, changing their options, and removing them."""

from collections.abc import Mapping
from typing import Any

from django.db import connections
from django.db.models import F, Sum
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from pubsub.conf import conf
from pubsub.db.audit import record
from pubsub.db.locks import lock_sequencer
from pubsub.db.sql import load
from pubsub.db.transactions import read_committed
from pubsub.errors import InvalidSetting, InvalidTopic, Refused
from pubsub.models import (
    ConsumerOffset,
    DeadLetter,
    DedupKey,
    DelayedMessage,
    Lease,
    LogCounter,
    LogPartitionCounter,
    Member,
    Status,
    Subscription,
    Topic,
)
from pubsub.topic_options import OPTIONS, checked, column_of
from pubsub.topics.names import DEFAULT_TOPIC, check_name
from pubsub.topics.registry import create_topics, no_such_topic

from .cursors import lock_cursors
from .groups import OPEN_LETTERS
from .resize import locked_topic, resize_locked

Changes = dict[str, tuple[Any, Any]]
"""What was changed: option → (before, after)."""


def create_topic(name: str, *, actor: str, using: str, reason: str = "", **options: Any) -> Topic:
    """Creates a topic. Options are those of PUBSUB["topics"]; omitted options have their defaults.

    >>> create_topic("doctest.made", semantics="QUEUE", actor="doctest", using="default").semantics
    'QUEUE'
    """
    check_name(name)
    given = checked(name, options)
    with read_committed(using):
        if not create_topics(connections[using], {name: given}):
            raise Refused(_('Topic "%(topic)s" already exists; configure it instead.') % {"topic": name})
        topic = Topic.objects.using(using).get(name=name)
        record("create", actor=actor, using=using, topic=name, reason=reason, after=_options_of(topic))
    return topic


def configure_topic(name: str, *, actor: str, using: str, reason: str = "", **options: Any) -> Changes:
    """Changes options of a topic; omitted options stay. Returns the changes.

    A new number of partitions is a resize, see :func:`resize_topic`. A QUEUE has one group: a topic that several groups
    read cannot become one.

    >>> topic = create_topic("doctest.configured", actor="doctest", using="default")
    >>> configure_topic("doctest.configured", zero_subscribers="refuse", actor="doctest", using="default")
    {'zero_subscribers': ('keep', 'refuse')}
    """
    given = checked(name, options)
    with read_committed(using) as cursor:
        if {"partitions", "semantics"} & given.keys():
            # Subscriptions are created under this lock, and nothing is numbered while partitions change.
            lock_sequencer(cursor)
        topic = locked_topic(name, using)
        changes = _differences(topic, given)
        if changes.get("semantics", ("", ""))[1] == "QUEUE":
            _refuse_several_groups(topic, using)
        partitions = changes.get("partitions")
        if partitions:
            resize_locked(cursor, topic, partitions[1], actor=actor, using=using, reason=reason)
        rest = {option: values for option, values in changes.items() if option != "partitions"}
        if rest:
            _save(topic, {option: new for option, (_old, new) in rest.items()}, using)
            record(
                "configure",
                actor=actor,
                using=using,
                topic=name,
                reason=reason,
                before={option: old for option, (old, _new) in rest.items()},
                after={option: new for option, (_old, new) in rest.items()},
            )
    return changes


def sync_topics(
    declared: Mapping[str, Mapping[str, Any]] | None = None, *, actor: str = "migrate", using: str
) -> dict[str, Changes]:
    """Brings topics in line with ``PUBSUB["topics"]``. Returns the changes, by topic.

    Missing topics are created. Options in the settings are applied to existing topics, the number of partitions
    included. Other options, and topics that are not declared, stay as operators set them. Safe to repeat, and to run in
    several processes at once.

    >>> sync_topics({"doctest.synced": {"partitions": 2}}, using="default")["doctest.synced"]
    {'partitions': (None, 2)}
    >>> sync_topics({"doctest.synced": {"partitions": 2}}, using="default")
    {}
    """
    reason = 'PUBSUB["topics"]'
    done: dict[str, Changes] = {}
    for name, options in (conf().topics if declared is None else declared).items():
        try:
            given = checked(check_name(name), options)
        except InvalidTopic as error:
            raise InvalidSetting(f"{reason}: {error}") from error
        topic = Topic.objects.using(using).filter(name=name).first()
        if topic is None:
            try:
                create_topic(name, actor=actor, using=using, reason=reason, **given)
                done[name] = {option: (None, value) for option, value in given.items()}
                continue
            except Refused:
                # Another process has just created it, perhaps with other options.
                topic = Topic.objects.using(using).get(name=name)
        if _differences(topic, given):  # else no lock is taken at all
            changes = configure_topic(name, actor=actor, using=using, reason=reason, **given)
            if changes:
                done[name] = changes
    return done


def losses(topic: Topic, *, using: str) -> list[str]:
    """What removing a topic would lose, in words; empty if it can be removed. Counts nothing in the log.

    >>> losses(Topic.objects.get(name="default"), using="default")
    ['events without a topic are published to it']
    """
    here = {"topic_id": topic.pk}
    found = []
    if topic.name == DEFAULT_TOPIC:
        found.append(_("events without a topic are published to it"))
    retained = LogPartitionCounter.objects.using(using).filter(**here)
    messages = retained.aggregate(kept=Sum(F("entries") - F("retired")))["kept"] or 0
    if messages:
        said = ngettext("%(n)s event is in its log", "%(n)s events are in its log", messages)
        found.append(said % {"n": f"{messages:,}"})
    with connections[using].cursor() as cursor:
        cursor.execute(load("control/has_unnumbered"), here)
        if cursor.fetchone() == (True,):
            found.append(_("events wait for their offsets"))
    groups = list(
        Subscription.objects.using(using)
        .filter(**here)
        .exclude(status=Status.CANCELLED)
        .order_by("group_id")
        .values_list("group_id", flat=True)[:4]
    )
    if groups:
        shown = ", ".join(groups[:3]) + (", …" if len(groups) > 3 else "")
        found.append(_("groups are subscribed to it: %(groups)s") % {"groups": shown})
    if DeadLetter.objects.using(using).filter(**here, state__in=OPEN_LETTERS).exists():
        found.append(_("dead letters from it are open"))
    if DelayedMessage.objects.using(using).filter(**here).exists():
        found.append(_("delayed events wait for it"))
    return found


def remove_topic(
    name: str, *, actor: str, using: str, reason: str = "", force: bool = False, wait_s: float = 30
) -> list[str]:
    """Removes a topic, with all that refers to it. Refused if anything would be lost, unless forced.

    Returns what was lost. Its events stay in the log, unseen, until retention drops them: the log is shared by all
    topics. If a publisher has cached the topic's number, its events go to a topic "undeclared-topic-N", and none is
    lost. The default topic cannot be removed.

    >>> topic = create_topic("doctest.removed", actor="doctest", using="default")
    >>> remove_topic("doctest.removed", actor="doctest", using="default")
    []
    """
    if name == DEFAULT_TOPIC:
        raise Refused(
            _('Topic "%(topic)s" cannot be removed: events without a topic are published to it.') % {"topic": name}
        )
    with read_committed(using) as cursor:
        known = Topic.objects.using(using).filter(name=name).first()
        if known is None:
            raise no_such_topic(name, using)
        here = {"topic_id": known.pk}
        subscriptions = Subscription.objects.using(using).filter(**here)
        for group in subscriptions.order_by("group_id").values_list("group_id", flat=True):
            lock_cursors(name, known.pk, group, using=using, force=force, wait_s=wait_s)
        lock_sequencer(cursor)
        topic = locked_topic(name, using, to_remove=True)
        lost = losses(topic, using=using)
        if lost and not force:
            raise Refused(
                _('Topic "%(topic)s" was not removed: %(losses)s. Force it if none of that is needed.')
                % {"topic": name, "losses": "; ".join(lost)}
            )
        counter = LogCounter.objects.using(using).filter(**here).first()
        before = {
            **_options_of(topic),
            "tip": counter.next_offset - 1 if counter else 0,
            "groups": list(subscriptions.values_list("group_id", flat=True)),
            "lost": lost,
        }
        for model in (Lease, Member, ConsumerOffset, Subscription, DelayedMessage, DedupKey):
            model._default_manager.using(using).filter(**here).delete()
        for statement in (
            "DELETE FROM dead_letter_attempts USING dead_letter_queue AS letter "
            "WHERE letter_id = letter.id AND letter.topic_id = %(topic_id)s",
            "DELETE FROM dead_letter_queue WHERE topic_id = %(topic_id)s",
        ):
            cursor.execute(statement, here)
        # The counters stay: if the number is used again, its offsets continue.
        topic.delete(using=using)
        record("remove", actor=actor, using=using, topic=name, reason=reason, before=before)
    return lost


def _options_of(topic: Topic) -> dict[str, Any]:
    return {option: getattr(topic, column_of(option)) for option in OPTIONS}


def _differences(topic: Topic, given: Mapping[str, Any]) -> Changes:
    present = _options_of(topic)
    return {option: (present[option], value) for option, value in given.items() if present[option] != value}


def _save(topic: Topic, options: Mapping[str, Any], using: str) -> None:
    columns = {column_of(option): value for option, value in options.items()}
    for column, value in columns.items():
        setattr(topic, column, value)
    if columns:
        topic.save(using=using, update_fields=list(columns))


def _refuse_several_groups(topic: Topic, using: str) -> None:
    groups = list(
        Subscription.objects.using(using)
        .filter(topic=topic)
        .exclude(status=Status.CANCELLED)
        .order_by("created_at", "id")
        .values_list("group_id", flat=True)
    )
    if len(groups) > 1:
        raise Refused(
            _(
                'Topic "%(topic)s" cannot become a QUEUE, which has one group: it has %(n)s, %(groups)s. Cancel or '
                "remove all but one first."
            )
            % {
                "topic": topic.name,
                "n": len(groups),
                "groups": ", ".join(groups[:5]) + (", …" if len(groups) > 5 else ""),
            }
        )
