"""A project that knows this app by its package alone, and in which pytest is run."""

from pathlib import Path

import pytest
from django.db import connection

CHECKOUT = Path(__file__).resolve().parent.parent.parent

SETTINGS = """
SECRET_KEY = "scratch"
INSTALLED_APPS = ["pubsub", "shop"]
DATABASES = {{"default": {database!r}}}
PUBSUB = {{"topics": {{"orders.events": {{"partitions": 4}}}}}}
USE_TZ = True
"""

MODELS = """
from django.db import models


class Order(models.Model):
    customer_id = models.IntegerField()
    total = models.DecimalField(max_digits=9, decimal_places=2)


class Email(models.Model):
    order_id = models.IntegerField()
    text = models.TextField()
"""


@pytest.fixture
def shop(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    kept = ("ENGINE", "HOST", "PORT", "USER", "PASSWORD")
    database = {name: connection.settings_dict[name] for name in kept}
    database |= {"NAME": "postgres", "TEST": {"NAME": f"{connection.settings_dict['NAME']}_plugin"}}
    files = {"settings": SETTINGS.format(database=database), "shop/models": MODELS, "shop/__init__": ""}
    for name, text in files.items():
        path = pytester.path / f"{name}.py"
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    pytester.makeini("[pytest]\nDJANGO_SETTINGS_MODULE = settings\npythonpath = .\naddopts = -p pubsub.pytest_plugin\n")
    monkeypatch.setenv("PYTHONPATH", str(CHECKOUT))
    for name in ("DJANGO_SETTINGS_MODULE", "DATABASE_URL", "PYTEST_ADDOPTS"):
        monkeypatch.delenv(name, raising=False)
    return pytester
