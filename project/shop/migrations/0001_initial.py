import django.db.models.deletion
from django.db import migrations, models

DAILY_SALES = """
CREATE VIEW shop_daily_sales_v AS
SELECT day || ' ' || shop AS id, day, shop,
       count(*) FILTER (WHERE kind = 'sold') AS orders,
       count(*) FILTER (WHERE kind = 'cancelled') AS cancelled,
       sum(amount) AS amount
FROM shop_sale GROUP BY day, shop
"""


class Migration(migrations.Migration):
    initial = True

    dependencies = []

    operations = [
        migrations.CreateModel(
            name="DailySales",
            fields=[
                ("id", models.TextField(primary_key=True, serialize=False)),
                ("day", models.DateField()),
                ("shop", models.CharField(max_length=30)),
                ("orders", models.BigIntegerField()),
                ("cancelled", models.BigIntegerField()),
                ("amount", models.DecimalField(decimal_places=2, max_digits=14)),
            ],
            options={
                "verbose_name_plural": "daily sales",
                "db_table": "shop_daily_sales_v",
                "ordering": ["-day", "shop"],
                "managed": False,
            },
        ),
        migrations.CreateModel(
            name="Customer",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("name", models.CharField(max_length=100)),
                ("email", models.EmailField(max_length=254, unique=True)),
            ],
        ),
        migrations.CreateModel(
            name="Product",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("sku", models.CharField(max_length=20, unique=True, verbose_name="SKU")),
                ("name", models.CharField(max_length=100)),
                ("price", models.DecimalField(decimal_places=2, max_digits=8)),
            ],
        ),
        migrations.CreateModel(
            name="Order",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("shop", models.CharField(help_text="The branch that sells: the tenant of the events.", max_length=30)),
                (
                    "status",
                    models.CharField(
                        choices=[("placed", "Placed"), ("paid", "Paid"), ("cancelled", "Cancelled")],
                        default="placed",
                        max_length=20,
                    ),
                ),
                ("total", models.DecimalField(decimal_places=2, help_text="In euros.", max_digits=10)),
                ("street", models.CharField(max_length=100)),
                ("postcode", models.CharField(max_length=10)),
                ("city", models.CharField(max_length=60)),
                ("placed_at", models.DateTimeField(auto_now_add=True)),
                ("closed_at", models.DateTimeField(blank=True, null=True, verbose_name="paid or cancelled")),
                (
                    "customer",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="orders", to="shop.customer"
                    ),
                ),
            ],
        ),
        migrations.CreateModel(
            name="Email",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "kind",
                    models.CharField(
                        choices=[
                            ("confirmation", "Confirmation"),
                            ("receipt", "Receipt"),
                            ("cancellation", "Cancellation"),
                        ],
                        max_length=20,
                    ),
                ),
                ("recipient", models.EmailField(max_length=254)),
                ("subject", models.CharField(max_length=200)),
                (
                    "event_id",
                    models.UUIDField(help_text="The event that asked for it: the idempotency key for a mail provider."),
                ),
                ("created_at", models.DateTimeField(auto_now_add=True)),
                (
                    "order",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="emails",
                        to="shop.order",
                    ),
                ),
            ],
        ),
        migrations.CreateModel(
            name="OrderLine",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("quantity", models.PositiveIntegerField()),
                ("price", models.DecimalField(decimal_places=2, max_digits=8)),
                (
                    "order",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="lines", to="shop.order"
                    ),
                ),
                (
                    "product",
                    models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name="+", to="shop.product"),
                ),
            ],
        ),
        migrations.CreateModel(
            name="Sale",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("kind", models.CharField(choices=[("sold", "Sold"), ("cancelled", "Cancelled")], max_length=20)),
                ("day", models.DateField()),
                ("shop", models.CharField(max_length=30)),
                ("amount", models.DecimalField(decimal_places=2, max_digits=10)),
                (
                    "order",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="sales",
                        to="shop.order",
                    ),
                ),
            ],
        ),
        migrations.CreateModel(
            name="Shipment",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("tracking_number", models.CharField(max_length=30, unique=True)),
                ("created_at", models.DateTimeField(auto_now_add=True)),
                (
                    "order",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.CASCADE, related_name="shipment", to="shop.order"
                    ),
                ),
            ],
        ),
        migrations.CreateModel(
            name="StockMovement",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "kind",
                    models.CharField(
                        choices=[("delivered", "Delivered"), ("sold", "Sold"), ("returned", "Returned")], max_length=20
                    ),
                ),
                ("quantity", models.IntegerField(help_text="Negative: out of the warehouse.")),
                ("created_at", models.DateTimeField(auto_now_add=True)),
                (
                    "line",
                    models.ForeignKey(
                        db_index=False,
                        null=True,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="movements",
                        to="shop.orderline",
                    ),
                ),
                (
                    "product",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="movements", to="shop.product"
                    ),
                ),
            ],
        ),
        migrations.AddConstraint(
            model_name="order",
            constraint=models.CheckConstraint(
                condition=models.Q(("status__in", ["placed", "paid", "cancelled"])), name="shop_order_status"
            ),
        ),
        migrations.AddConstraint(
            model_name="email",
            constraint=models.UniqueConstraint(fields=("order", "kind"), name="shop_email_once"),
        ),
        migrations.AddConstraint(
            model_name="orderline",
            constraint=models.UniqueConstraint(fields=("order", "product"), name="shop_order_line_once"),
        ),
        migrations.AddConstraint(
            model_name="sale",
            constraint=models.UniqueConstraint(fields=("order", "kind"), name="shop_sale_once"),
        ),
        migrations.AddConstraint(
            model_name="stockmovement",
            constraint=models.UniqueConstraint(fields=("line", "kind"), name="shop_stock_movement_once"),
        ),
        migrations.RunSQL(DAILY_SALES, "DROP VIEW shop_daily_sales_v"),
    ]
