from contextlib import suppress

from django.apps import AppConfig
from django.core import checks
from django.core.exceptions import ImproperlyConfigured
from django.db.models.signals import post_delete, post_migrate, post_save, pre_migrate, pre_save
from django.utils.module_loading import autodiscover_modules
from django.utils.translation import gettext_lazy as _

from .errors import PubSubError


class PubSubConfig(AppConfig):
    name = "pubsub"
    verbose_name = _("Pub/sub")
    default_auto_field = "django.db.models.BigAutoField"

    def import_models(self) -> None:
        super().import_models()
        for model in self.models.values():
            # So Django makes no table of them elsewhere, and does not warn there of each comment that would be lost.
            model._meta.required_db_vendor = "postgresql"
            model._meta.required_db_features = ["supports_comments"]

    def ready(self) -> None:
        self._refuse_another_package()
        from .checks import (
            check_database,
            check_engines,
            check_event_streams,
            check_import_name,
            check_poolers,
            check_settings,
            check_tenants,
            check_vendors,
        )
        from .setup import install_before_migrate, make_way_for_loaded_topic, prepare_after_migrate
        from .topics import registry

        checks.register(check_settings, "pubsub")
        checks.register(check_import_name, "pubsub")
        checks.register(check_vendors, "pubsub")
        checks.register(check_tenants, "pubsub")
        checks.register(check_poolers, "pubsub")
        checks.register(check_engines, "pubsub", deploy=True)
        checks.register(check_event_streams, "pubsub", checks.Tags.urls)
        checks.register(check_database, "pubsub", checks.Tags.database)
        pre_migrate.connect(install_before_migrate, sender=self)
        post_migrate.connect(prepare_after_migrate, sender=self)
        pre_save.connect(make_way_for_loaded_topic, sender=self.get_model("Topic"))
        for signal in (post_save, post_delete):
            signal.connect(registry.forget_ids, sender=self.get_model("Topic"))
        autodiscover_modules("subscribers")
        with suppress(PubSubError):  # of what is wrong with it, and of what is not installed, the checks tell
            self._observe()

    def _refuse_another_package(self) -> None:
        import pubsub

        if not hasattr(pubsub, "subscribe"):
            raise ImproperlyConfigured(
                f"{pubsub.__file__} is not django-outbox-pubsub's: another package of the import name pubsub, such as "
                f"PyPubSub, was installed over it. Uninstall both, then install django-outbox-pubsub alone."
            )

    def _observe(self) -> None:
        from .conf import conf

        if conf().tracing:
            from .monitoring import tracing

            tracing.instrument()
