"""How models that are views keep out of fixtures."""

from typing import Any

from django.db import models


class NothingToDump(models.Manager):  # type: ignore[type-arg]
    """The default manager of a view. `dumpdata` asks it, and what a view shows could not be loaded again."""

    def get_queryset(self) -> "models.QuerySet[Any]":
        return super().get_queryset().none()
