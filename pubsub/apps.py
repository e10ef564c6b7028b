from contextlib import suppress

from django.apps import AppConfig
from django.core import checks
from django.db.models.signals import post_delete, post_migrate, post_save
from django.utils.module_loading import autodiscover_modules
from django.utils.translation import gettext_lazy as _

from .errors import PubSubError


class PubSubConfig(AppConfig):
    name = "pubsub"
    verbose_name = _("Pub/sub")
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from .checks import check_database, check_engines, check_event_streams, check_poolers, check_settings
        from .setup import prepare_after_migrate
        from .topics import registry

        checks.register(check_settings, "pubsub")
        checks.register(check_poolers, "pubsub")
        checks.register(check_engines, "pubsub", deploy=True)
        checks.register(check_event_streams, "pubsub", checks.Tags.urls)
        checks.register(check_database, "pubsub", checks.Tags.database)
        post_migrate.connect(prepare_after_migrate, sender=self)
        for signal in (post_save, post_delete):
            signal.connect(registry.forget_ids, sender=self.get_model("Topic"))
        autodiscover_modules("subscribers")
        with suppress(PubSubError):  # of what is wrong with it, and of what is not installed, the checks tell
            self._observe()

    def _observe(self) -> None:
        from .conf import conf

        if conf().tracing:
            from .monitoring import tracing

            tracing.instrument()
