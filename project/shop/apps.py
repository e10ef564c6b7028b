from django.apps import AppConfig


class ShopConfig(AppConfig):
    name = "project.shop"
    verbose_name = "Demo shop"
