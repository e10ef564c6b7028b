"""A customer, and something to buy."""

from decimal import Decimal

import factory
from factory.django import DjangoModelFactory

from project.shop.models import Customer, Product


class CustomerFactory(DjangoModelFactory):
    class Meta:
        model = Customer

    name = factory.Sequence(lambda n: f"Customer {n}")
    email = factory.Sequence(lambda n: f"customer.{n}@example.com")


class ProductFactory(DjangoModelFactory):
    class Meta:
        model = Product

    sku = factory.Sequence(lambda n: f"SKU-{n}")
    name = factory.Sequence(lambda n: f"Product {n}")
    price = Decimal("12.50")
