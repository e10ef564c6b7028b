"""Three groups of users to begin with. What you make of them afterwards stays."""

from django.contrib.auth.models import Group, Permission

from pubsub.errors import PubSubError

VIEWER = (
    "view_topic",
    "view_subscription",
    "view_outboxmessage",
    "view_deadletter",
    "view_operatorevent",
    "view_finding",
)
OPERATOR = (
    *VIEWER,
    "view_payload_outboxmessage",
    "view_payload_deadletter",
    "pause_subscription",
    "seek_subscription",
    "stop_worker_subscription",
    "replay_deadletter",
    "discard_deadletter",
    "edit_payload_deadletter",
)
ADMINISTRATOR = (
    *OPERATOR,
    "publish_outboxmessage",
    "add_topic",
    "change_topic",
    "delete_topic",
    "delete_subscription",
)

GROUPS = {
    "Pub/sub viewers": VIEWER,
    "Pub/sub operators": OPERATOR,
    "Pub/sub administrators": ADMINISTRATOR,
}


def make_groups(using: str) -> dict[str, bool]:
    """Makes those that are missing. Returns whether each was."""
    known = Permission.objects.using(using).filter(content_type__app_label="pubsub")
    if missing := set(ADMINISTRATOR) - set(known.values_list("codename", flat=True)):
        raise PubSubError(
            f'Database "{using}" lacks the permission {min(missing)}; run `manage.py migrate`, which makes all of them.'
        )
    made = {}
    for name, codenames in GROUPS.items():
        group, made[name] = Group.objects.using(using).get_or_create(name=name)
        if made[name]:
            group.permissions.set(known.filter(codename__in=codenames))
    return made
