"""What operators did, for tests to look at: without the topics that `migrate` made and the groups that subscribed."""

from django.db.models import QuerySet

from pubsub.models import OperatorEvent


def journal() -> QuerySet[OperatorEvent]:
    return OperatorEvent.objects.exclude(actor__in=["migrate", "consumer"])
