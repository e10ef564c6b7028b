"""Each factory makes rows that the database takes."""

import pytest
from django.apps import apps

from tests import factories

FACTORIES = [
    factory
    for factory in vars(factories).values()
    if isinstance(factory, type)
    and issubclass(factory, factories.DjangoModelFactory)
    and factory.__module__ == factories.__name__
    and not factory._meta.abstract
]


def test_every_table_has_a_factory():
    tables = {
        model for model in apps.get_app_config("pubsub").get_models() if model._meta.managed and not model._meta.proxy
    }
    assert {factory._meta.model for factory in FACTORIES} == tables


@pytest.mark.django_db
@pytest.mark.parametrize("factory", FACTORIES, ids=lambda factory: factory.__name__)
def test_a_factory_makes_rows(factory):
    made = factory.create_batch(3)
    for row in made:
        assert type(row).objects.get(pk=row.pk) == row
        assert str(row)
    assert len({row.pk for row in made}) == (1 if factory is factories.SequencerFactory else 3)


@pytest.mark.django_db
def test_a_dead_letter_can_wait_for_its_next_attempt():
    assert factories.DeadLetterFactory(retrying=True).next_attempt_at
