"""Models whose changes the tests publish: one for each way in which Django makes a row."""

import uuid

from django.db import models
from django.db.models.functions import Now

from pubsub.models.fields import RandomUUID
from pubsub.publishing.model_changes import publish_changes


@publish_changes("customers.events", host_id="tenant", exclude=["password"])
class Customer(models.Model):
    email = models.EmailField()
    password = models.CharField(max_length=100, default="secret")
    tenant = models.CharField(max_length=20, null=True)
    visits = models.IntegerField(default=0)
    score = models.FloatField(default=0)
    balance = models.DecimalField(max_digits=9, decimal_places=2, default=0)
    details = models.JSONField(default=dict, null=True)
    photo = models.BinaryField(default=b"")
    joined = models.DateTimeField(db_default=Now())
    referrer = models.ForeignKey("self", models.SET_NULL, null=True)

    def __str__(self) -> str:
        return self.email


class Regular(Customer):
    """A proxy of a model that is published."""

    class Meta:
        proxy = True


@publish_changes("customers.events", key="customer", user_id=lambda order: f"clerk-{order.clerk}", type_prefix="sale")
class Order(models.Model):
    customer = models.ForeignKey(Customer, models.CASCADE)
    clerk = models.IntegerField(default=1)

    def __str__(self) -> str:
        return f"{self.pk}"


@publish_changes("customers.events", fields=["name"])
class Place(models.Model):
    name = models.CharField(max_length=50)
    address = models.CharField(max_length=50, default="")

    def __str__(self) -> str:
        return self.name


@publish_changes("customers.events")
class Restaurant(Place):
    """Published twice: as a place and as a restaurant."""

    stars = models.IntegerField(default=0)


class Cafe(Place):
    """Published as a place only."""

    cups = models.IntegerField(default=0)


@publish_changes("customers.events")
class Ticket(models.Model):
    id = models.UUIDField(primary_key=True, default=uuid.uuid4)
    price = models.IntegerField(default=0)

    def __str__(self) -> str:
        return str(self.id)


@publish_changes("customers.events")
class Coupon(models.Model):
    """Its key is made by the database."""

    id = models.UUIDField(primary_key=True, db_default=RandomUUID())

    def __str__(self) -> str:
        return str(self.id)


@publish_changes("customers.events")
class Seat(models.Model):
    pk = models.CompositePrimaryKey("row", "number")
    row = models.CharField(max_length=1)
    number = models.IntegerField()
    taken = models.BooleanField(default=False)

    def __str__(self) -> str:
        return f"{self.row}{self.number}"


class Account(models.Model):
    """Written by others too: its changes are published by triggers."""

    owner = models.CharField(max_length=50, db_column="owner name")
    password = models.CharField(max_length=100, default="secret")
    balance = models.DecimalField(max_digits=12, decimal_places=2, null=True)
    details = models.JSONField(default=dict)
    token = models.BinaryField(default=b"")
    seen_at = models.DateTimeField(null=True)

    def __str__(self) -> str:
        return self.owner
