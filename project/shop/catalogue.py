"""What the shop starts with: products on the shelves, and people who like to buy."""

from decimal import Decimal

from django.db import transaction

from .models import Customer, Product, StockMovement

BRANCHES = ["Berlin", "Hamburg", "Leipzig"]
STREETS = ["Ahornweg", "Bahnhofstr.", "Gartenweg", "Hauptstr.", "Lindenallee", "Marktplatz", "Schulstr."]
POSTCODES = {"Berlin": "101{:02}", "Hamburg": "203{:02}", "Leipzig": "041{:02}"}
PRODUCTS = [
    ("TEA-001", "Teapot, cast iron", "49.90"),
    ("TEA-002", "Darjeeling, 250 g", "14.50"),
    ("TEA-003", "Tea strainer", "6.90"),
    ("COF-001", "Coffee grinder", "89.00"),
    ("COF-002", "Espresso, 1 kg", "19.90"),
    ("COF-003", "Filter papers, 100", "3.50"),
    ("KIT-001", "Bread knife", "34.00"),
    ("KIT-002", "Cutting board, oak", "42.50"),
    ("KIT-003", "Mixing bowl", "17.80"),
    ("HOM-001", "Wool blanket", "79.00"),
    ("HOM-002", "Beeswax candles, 4", "12.00"),
    ("HOM-003", "Desk lamp", "119.00"),
]
FIRST_NAMES = ["Ada", "Barbara", "Edsger", "Frances", "Grace", "Jean", "Katherine", "Niklaus", "Radia", "Tony"]
LAST_NAMES = ["Becker", "Fischer", "Hoffmann", "Keller", "Lehmann", "Neumann", "Richter", "Schulz", "Vogel", "Wolf"]
FIRST_DELIVERY = 10_000


@transaction.atomic
def fill() -> None:
    """Add what is missing. The caller sees to it that no other process is doing the same."""
    known = set(Product.objects.values_list("sku", flat=True))
    added = Product.objects.bulk_create(
        Product(sku=sku, name=name, price=Decimal(price)) for sku, name, price in PRODUCTS if sku not in known
    )
    StockMovement.objects.bulk_create(
        StockMovement(product=product, kind=StockMovement.Kind.DELIVERED, quantity=FIRST_DELIVERY) for product in added
    )
    Customer.objects.bulk_create(
        (
            Customer(name=f"{first} {last}", email=f"{first}.{last}@example.com".lower())
            for first in FIRST_NAMES
            for last in LAST_NAMES
        ),
        ignore_conflicts=True,
    )
