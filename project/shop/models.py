"""The shop's own rows, and below them what its four consumer groups write.

Each effect has a unique constraint: an event that was handled twice could not go unnoticed.
"""

from django.db import models
from django.db.models import Q


class Customer(models.Model):
    """A person who buys. Their orders are handled in order: the customer is the key of the events."""

    name = models.CharField(max_length=100)
    email = models.EmailField(unique=True)

    def __str__(self) -> str:
        return self.name


class Product(models.Model):
    """Something to buy. What is in stock is the sum of its movements."""

    sku = models.CharField("SKU", max_length=20, unique=True)
    name = models.CharField(max_length=100)
    price = models.DecimalField(max_digits=8, decimal_places=2)

    def __str__(self) -> str:
        return self.name


class Order(models.Model):
    """What a customer wants, and where it is to go."""

    class Status(models.TextChoices):
        PLACED = "placed"
        PAID = "paid"
        CANCELLED = "cancelled"

    shop = models.CharField(max_length=30, help_text="The branch that sells: the tenant of the events.")
    customer = models.ForeignKey(Customer, models.PROTECT, related_name="orders")
    status = models.CharField(max_length=20, choices=Status, default=Status.PLACED)
    total = models.DecimalField(max_digits=10, decimal_places=2, help_text="In euros.")
    street = models.CharField(max_length=100)
    postcode = models.CharField(max_length=10)
    city = models.CharField(max_length=60)
    placed_at = models.DateTimeField(auto_now_add=True)
    closed_at = models.DateTimeField("paid or cancelled", null=True, blank=True)

    class Meta:
        constraints = [
            models.CheckConstraint(condition=Q(status__in=["placed", "paid", "cancelled"]), name="shop_order_status"),
        ]

    def __str__(self) -> str:
        return f"Order {self.pk}"


class OrderLine(models.Model):
    """So many of a product, at the price of the day."""

    order = models.ForeignKey(Order, models.CASCADE, related_name="lines")
    product = models.ForeignKey(Product, models.PROTECT, related_name="+")
    quantity = models.PositiveIntegerField()
    price = models.DecimalField(max_digits=8, decimal_places=2)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["order", "product"], name="shop_order_line_once")]

    def __str__(self) -> str:
        return f"{self.quantity} × {self.product_id}"


class Email(models.Model):
    """A letter to a customer, ready to be sent: what the group `emails` writes."""

    class Kind(models.TextChoices):
        CONFIRMATION = "confirmation"
        RECEIPT = "receipt"
        CANCELLATION = "cancellation"

    order = models.ForeignKey(Order, models.CASCADE, related_name="emails", db_index=False)
    kind = models.CharField(max_length=20, choices=Kind)
    recipient = models.EmailField()
    subject = models.CharField(max_length=200)
    event_id = models.UUIDField(help_text="The event that asked for it: the idempotency key for a mail provider.")
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["order", "kind"], name="shop_email_once")]

    def __str__(self) -> str:
        return f"{self.kind} to {self.recipient}"


class Sale(models.Model):
    """What an order adds to, or by its cancellation takes from, a day's sales: written by the group `analytics`.

    A row per order and not a running total: two consumers that add to one row would wait for each other.
    """

    class Kind(models.TextChoices):
        SOLD = "sold"
        CANCELLED = "cancelled"

    order = models.ForeignKey(Order, models.CASCADE, related_name="sales", db_index=False)
    kind = models.CharField(max_length=20, choices=Kind)
    day = models.DateField()
    shop = models.CharField(max_length=30)
    amount = models.DecimalField(max_digits=10, decimal_places=2)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["order", "kind"], name="shop_sale_once")]

    def __str__(self) -> str:
        return f"{self.day} {self.shop}: {self.amount}"


class DailySales(models.Model):
    """The sales of a day in a branch: a view that adds them up."""

    id = models.TextField(primary_key=True)
    day = models.DateField()
    shop = models.CharField(max_length=30)
    orders = models.BigIntegerField()
    cancelled = models.BigIntegerField()
    amount = models.DecimalField(max_digits=14, decimal_places=2)

    class Meta:
        managed = False
        db_table = "shop_daily_sales_v"
        verbose_name_plural = "daily sales"
        ordering = ["-day", "shop"]

    def __str__(self) -> str:
        return self.id


class StockMovement(models.Model):
    """What came into the warehouse or left it: written by the group `inventory`."""

    class Kind(models.TextChoices):
        DELIVERED = "delivered"
        SOLD = "sold"
        RETURNED = "returned"

    product = models.ForeignKey(Product, models.PROTECT, related_name="movements")
    line = models.ForeignKey(OrderLine, models.CASCADE, null=True, related_name="movements", db_index=False)
    kind = models.CharField(max_length=20, choices=Kind)
    quantity = models.IntegerField(help_text="Negative: out of the warehouse.")
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["line", "kind"], name="shop_stock_movement_once")]

    def __str__(self) -> str:
        return f"{self.quantity:+} × {self.product_id}"


class Shipment(models.Model):
    """A parcel that the carrier has accepted: written by the group `shipping`."""

    order = models.OneToOneField(Order, models.CASCADE, related_name="shipment")
    tracking_number = models.CharField(max_length=30, unique=True)
    created_at = models.DateTimeField(auto_now_add=True)

    def __str__(self) -> str:
        return self.tracking_number
