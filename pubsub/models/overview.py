"""What the admin lists as a page of its own, though it has no table of its own."""

from django.utils.translation import gettext_lazy as _

from .topic import Subscription


class Overview(Subscription):
    """How everything stands. Who may see subscriptions may see it."""

    class Meta:
        proxy = True
        default_permissions = ()
        verbose_name = _("overview")
        verbose_name_plural = _("overview")
