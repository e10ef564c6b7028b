"""Publishing the changes of a Django model, in the transactions that make them.

What is published is what the database holds: a row is read and locked before it changes, and read again afterwards. So
F() expressions, database defaults, triggers, deferred fields and stale instances come out true.
"""

import dataclasses
import datetime as dt
import functools
import math
from collections.abc import Callable, Iterable, Mapping
from types import SimpleNamespace
from typing import Any, TypeVar

from django.core.serializers.json import DjangoJSONEncoder
from django.db import models, router, transaction
from django.db.models.signals import class_prepared, post_delete, post_save, pre_delete, pre_save

from pubsub.errors import InvalidEvent, InvalidPublication, WrongDatabase
from pubsub.suggest import hint
from pubsub.topics.names import check_name

from .publish import publish

M = TypeVar("M", bound=models.Model)

Source = str | Callable[[Any], Any]
"""Where an event's key, tenant or user comes from: a field of the row, or a function of the instance."""

Row = dict[str, Any]


def publish_changes(
    topic: str,
    *,
    key: Source = "pk",
    host_id: Source | None = None,
    user_id: Source | None = None,
    fields: Iterable[str] | None = None,
    exclude: Iterable[str] = (),
    type_prefix: str | None = None,
) -> Callable[[type[M]], type[M]]:
    """Publishes each change made through a model: the row and its event commit together, or neither does.

    The events of a model ``Customer`` have these types and payloads::

        customer.created   {"id": 1, "row": {"id": 1, "email": "a@example.org"}}
        customer.updated   {"id": 1, "changed": {"email": {"old": "a@example.org", "new": "b@example.org"}}}
        customer.deleted   {"id": 1, "row": {"id": 1, "email": "b@example.org"}}

    A save that changes none of the published fields publishes nothing.

    - ``key``, ``host_id``, ``user_id``: the name of a field, or a function that is given the instance. Without a key
      the events of each row keep their order.
    - ``fields`` or ``exclude``: what is published, or what is not. Excluded values never leave the table.
    - ``type_prefix``: how the types begin; by default the model's name in lower case.

    It covers save(), create(), get_or_create(), update_or_create(), delete() of instances and of querysets, cascades,
    proxies, and the part of the row that children by multi-table inheritance save. Not covered are queryset.update(),
    bulk_create(), bulk_update(), on_delete=SET_NULL, loaddata, the historical models of migrations, and other
    programs: :class:`pubsub.migration_operations.PublishRowChanges` lets the database publish those.

    >>> @publish_changes("customers.events", exclude=["password"])
    ... class Customer(models.Model):
    ...     email = models.EmailField()
    ...     password = models.CharField(max_length=128)
    ...
    ...     class Meta:
    ...         app_label = "doctest"
    """

    def decorate(model: type[M]) -> type[M]:
        changes = _Changes(
            model=model,
            topic=check_name(topic),
            prefix=type_prefix,
            key=key,
            host_id=host_id,
            user_id=user_id,
            fields=_choose_fields(model, fields, exclude),
        )
        changes.check_sources()
        _save_in_transaction(model)
        changes.listen_to(model)
        # Signals name the exact class: proxies and children, which come later, send their own.
        class_prepared.connect(changes.listen_to_heir, weak=False)
        return model

    return decorate


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class _Changes:
    """One decorated model: what it publishes, and where to."""

    model: type[models.Model]
    topic: str
    prefix: str | None
    key: Source
    host_id: Source | None
    user_id: Source | None
    fields: tuple[Any, ...]

    def listen_to(self, model: type[models.Model]) -> None:
        pre_save.connect(self.before_save, sender=model, weak=False)
        post_save.connect(self.after_save, sender=model, weak=False)
        # A child by multi-table inheritance is deleted together with its parents, and each table's row has a signal.
        if model._meta.concrete_model is self.model._meta.concrete_model:
            pre_delete.connect(self.before_delete, sender=model, weak=False)
            post_delete.connect(self.after_delete, sender=model, weak=False)

    def listen_to_heir(self, *, sender: type[models.Model], **kwargs: Any) -> None:
        if issubclass(sender, self.model) and not sender._meta.abstract:
            self.listen_to(sender)

    def before_save(self, *, instance: models.Model, raw: bool, using: str, **kwargs: Any) -> None:
        if not raw:
            self.remember(instance, self.read(instance, using, lock=True))

    def after_save(self, *, instance: models.Model, raw: bool, using: str, **kwargs: Any) -> None:
        if raw:
            return
        before, after = self.recall(instance), self.read(instance, using)
        if after is None:
            return  # a trigger on the table has swallowed it
        self.correct(instance, after)
        if before is None:
            self.publish("created", instance, after, {"row": self.published(after)}, using)
            return
        old, new = self.published(before), self.published(after)
        changed = {name: {"old": old[name], "new": new[name]} for name in new if _differ(old[name], new[name])}
        if changed:
            self.publish("updated", instance, after, {"changed": changed}, using)

    def before_delete(self, *, instance: models.Model, using: str, **kwargs: Any) -> None:
        self.remember(instance, self.read(instance, using, lock=True))

    def after_delete(self, *, instance: models.Model, using: str, **kwargs: Any) -> None:
        before = self.recall(instance)
        if before is not None:  # else it was deleted by someone else first
            self.publish("deleted", instance, before, {"row": self.published(before)}, using)

    def read(self, instance: models.Model, using: str, *, lock: bool = False) -> Row | None:
        pk = getattr(instance, self.model._meta.pk.attname)
        parts = pk if isinstance(pk, tuple) else (pk,)
        if any(part is None or hasattr(part, "resolve_expression") for part in parts):
            return None  # the database will assign one
        # Only the tables of parents are joined, whose part of the row is about to change as well.
        rows = self.model._base_manager.using(using).order_by().filter(pk=pk)
        if lock:
            rows = rows.select_for_update(no_key=True)
        return next(iter(rows.values("pk", *self.columns)), None)

    @functools.cached_property
    def columns(self) -> tuple[str, ...]:
        names = [field.attname for field in self.fields]
        for source in (self.key, self.host_id, self.user_id):
            if isinstance(source, str) and source != "pk":
                names.append(_field_of(self.model, source).attname)
        return tuple(dict.fromkeys(names))

    def published(self, row: Row) -> Row:
        return {field.attname: _plain(field, row[field.attname]) for field in self.fields}

    def publish(self, what: str, instance: models.Model, row: Row, content: Mapping[str, Any], using: str) -> None:
        self.check_database(using)
        pk = row["pk"]
        identity = {"id": list(pk) if isinstance(pk, tuple) else pk}
        try:
            publish(
                self.topic,
                {**identity, **content},
                type=f"{self.prefix or self.model._meta.model_name}.{what}",
                key=self.value(self.key, instance, row),
                host_id=self.value(self.host_id, instance, row),
                user_id=self.value(self.user_id, instance, row),
                using=using,
            )
        except InvalidEvent as error:
            raise InvalidEvent(
                f"{self.model._meta.label} {pk!r} cannot be published as {what}: {error} Exclude fields that "
                f"must not be published by publish_changes(exclude=[…])."
            ) from error

    def value(self, source: Source | None, instance: models.Model, row: Row) -> Any:
        if source is None:
            return None
        if callable(source):
            return source(instance)
        found = row["pk" if source == "pk" else _field_of(self.model, source).attname]
        return ":".join(map(str, found)) if isinstance(found, tuple) else found

    def check_database(self, using: str) -> None:
        if not router.allow_migrate(using, "pubsub", model_name="outboxmessage"):
            raise WrongDatabase(
                f'{self.model._meta.label} was changed on database "{using}", where the outbox\'s tables are not: the '
                f"change and its event could not commit together. Let the router migrate pubsub there as well."
            )

    def check_sources(self) -> None:
        for source in (self.key, self.host_id, self.user_id):
            if isinstance(source, str) and source != "pk":
                _field_of(self.model, source)

    # Kept on the instance between two signals, by declaration, as one row may be published twice. A receiver of the
    # first signal may save the instance itself: then there are several rows, and the innermost change's comes last.

    def remember(self, instance: models.Model, row: Row | None) -> None:
        instance.__dict__.setdefault("_pubsub_before", {}).setdefault(self, []).append(row)

    def recall(self, instance: models.Model) -> Row | None:
        kept: dict[_Changes, list[Row | None]] = instance.__dict__.get("_pubsub_before", {})
        rows = kept.get(self, [])
        row = rows.pop() if rows else None
        if not rows:
            kept.pop(self, None)
        if not kept:
            instance.__dict__.pop("_pubsub_before", None)
        return row

    def correct(self, instance: models.Model, row: Row) -> None:
        """Updates what outer changes remember, as it has just changed."""
        kept: dict[_Changes, list[Row | None]] = instance.__dict__.get("_pubsub_before", {})
        if self in kept:
            kept[self] = [row] * len(kept[self])


def _save_in_transaction(model: type[models.Model]) -> None:
    save_base = model.save_base

    @functools.wraps(save_base)
    def save_base_and_publish(self: models.Model, *args: Any, **kwargs: Any) -> None:
        using = kwargs.get("using") or (args[3] if len(args) > 3 else None)
        using = using or router.db_for_write(self.__class__, instance=self)
        # Without a savepoint, like Django's own: a failing save breaks the surrounding transaction, no more, no less.
        with transaction.atomic(using=using, savepoint=False):
            save_base(self, *args, **kwargs)

    save_base_and_publish.alters_data = True  # type: ignore[attr-defined]
    model.save_base = save_base_and_publish  # type: ignore[method-assign]


def _choose_fields(model: type[models.Model], fields: Iterable[str] | None, exclude: Iterable[str]) -> tuple[Any, ...]:
    if not (isinstance(model, type) and issubclass(model, models.Model)) or model._meta.abstract:
        raise InvalidPublication(
            f"publish_changes() decorates a model that has a table, not {model!r}: decorate each concrete model."
        )
    if fields is not None and exclude:
        raise InvalidPublication("publish_changes() takes fields or exclude, not both.")
    for option, names in (("fields", fields), ("exclude", exclude)):
        if isinstance(names, str):
            raise InvalidPublication(f"{option} must be a list of field names such as [{names!r}], not {names!r}.")
    every = tuple(model._meta.concrete_fields)
    if fields is not None:
        wanted = {_field_of(model, name) for name in fields}
        return tuple(field for field in every if field in wanted)
    hidden = {_field_of(model, name) for name in exclude}
    return tuple(field for field in every if field not in hidden)


def _field_of(model: type[models.Model], name: str) -> Any:
    by_name = {name: field for field in model._meta.concrete_fields for name in (field.attname, field.name)}
    if name not in by_name:
        raise InvalidPublication(
            f'{model._meta.label} has no field with a column called "{name}". {hint(name, by_name)}'
        )
    return by_name[name]


def _plain(field: Any, value: Any) -> Any:
    """A column's value in a form for JSON. Times keep their microseconds, so that no change of one is missed."""
    match value:
        case float() if not math.isfinite(value):
            return str(value)
        case dt.datetime() | dt.time():
            return value.isoformat()
        case None | bool() | int() | float() | str() | list() | dict():
            return value
    try:
        _encode(value)
    except TypeError:
        # Binary data, ranges and other types that only the field can write.
        return field.value_to_string(SimpleNamespace(**{field.attname: value}))
    return value


_encode = DjangoJSONEncoder().encode


def _differ(old: Any, new: Any) -> bool:
    # To Python 1, 1.0 and True are equal; to JSON they are not.
    return bool(old != new) or _encode(old) != _encode(new)
