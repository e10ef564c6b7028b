"""The shop in the admin: there to look at. Only an order's address can be changed, which heals a refused shipment."""

from typing import Any

from django.contrib import admin, messages
from django.db.models import QuerySet, Sum
from django.http import HttpRequest

from . import orders
from .models import Customer, DailySales, Email, Order, OrderLine, Product, Sale, Shipment, StockMovement


class LookOnly:
    """What these tables say comes from events, not from people."""

    def has_add_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False


class LineInline(LookOnly, admin.TabularInline):
    model = OrderLine


class EmailInline(LookOnly, admin.TabularInline):
    model = Email
    fields = readonly_fields = ["kind", "subject", "created_at"]


class ShipmentInline(LookOnly, admin.TabularInline):
    model = Shipment
    fields = readonly_fields = ["tracking_number", "created_at"]


@admin.register(Order)
class OrderAdmin(LookOnly, admin.ModelAdmin):
    list_display = ["__str__", "customer", "shop", "status", "total", "postcode", "city", "placed_at", "shipment"]
    list_filter = ["status", "shop", ("shipment", admin.EmptyFieldListFilter)]
    list_select_related = ["customer", "shipment"]
    search_fields = ["=id", "customer__name", "=postcode"]
    ordering = ["-id"]
    show_full_result_count = False
    fields = ["customer", "shop", "status", "total", "street", "postcode", "city", "placed_at", "closed_at"]
    readonly_fields = ["customer", "shop", "status", "total", "placed_at", "closed_at"]
    inlines = [LineInline, EmailInline, ShipmentInline]
    actions = ["correct_postcodes"]

    def has_change_permission(self, request: HttpRequest, obj: Order | None = None) -> bool:
        return admin.ModelAdmin.has_change_permission(self, request, obj)

    @admin.action(description="Correct the postcode: digits for letters that look like them", permissions=["change"])
    def correct_postcodes(self, request: HttpRequest, queryset: QuerySet[Order]) -> None:
        changed = orders.correct_postcodes(list(queryset.values_list("pk", flat=True)))
        if changed:
            text = f"Postcodes corrected: {changed}. Now replay what failed, under Dead letters."
            self.message_user(request, text, messages.SUCCESS)
        else:
            self.message_user(request, "These postcodes are right already.", messages.WARNING)


@admin.register(Customer)
class CustomerAdmin(LookOnly, admin.ModelAdmin):
    list_display = ["name", "email"]
    search_fields = ["name", "email"]


@admin.register(Product)
class ProductAdmin(LookOnly, admin.ModelAdmin):
    list_display = ["sku", "name", "price", "in_stock"]
    search_fields = ["sku", "name"]

    def get_queryset(self, request: HttpRequest) -> QuerySet[Product]:
        return super().get_queryset(request).annotate(in_stock=Sum("movements__quantity", default=0))

    @admin.display(ordering="in_stock")
    def in_stock(self, product: Any) -> int:
        return int(product.in_stock)


@admin.register(Email)
class EmailAdmin(LookOnly, admin.ModelAdmin):
    list_display = ["subject", "recipient", "kind", "created_at"]
    list_filter = ["kind"]
    ordering = ["-id"]
    show_full_result_count = False


@admin.register(DailySales)
class DailySalesAdmin(LookOnly, admin.ModelAdmin):
    list_display = ["day", "shop", "orders", "cancelled", "amount"]
    list_display_links = None
    list_filter = ["shop"]


@admin.register(Sale)
class SaleAdmin(LookOnly, admin.ModelAdmin):
    list_display = ["order_id", "kind", "shop", "amount", "day"]
    list_filter = ["kind", "shop"]
    ordering = ["-id"]
    show_full_result_count = False


@admin.register(StockMovement)
class StockMovementAdmin(LookOnly, admin.ModelAdmin):
    list_display = ["product", "kind", "quantity", "created_at"]
    list_filter = ["kind", "product"]
    list_select_related = ["product"]
    ordering = ["-id"]
    show_full_result_count = False


@admin.register(Shipment)
class ShipmentAdmin(LookOnly, admin.ModelAdmin):
    list_display = ["tracking_number", "order", "created_at"]
    search_fields = ["=order__id", "=tracking_number"]
    ordering = ["-id"]
    show_full_result_count = False
