"""What the examples in the documents call Order and Email."""

from django.db import models


class DocumentedOrder(models.Model):
    customer_id = models.IntegerField()
    total = models.DecimalField(max_digits=9, decimal_places=2)

    class Meta:
        app_label = "testapp"

    def __str__(self) -> str:
        return f"order {self.pk}"


class DocumentedEmail(models.Model):
    order_id = models.IntegerField()
    text = models.TextField()

    class Meta:
        app_label = "testapp"

    def __str__(self) -> str:
        return self.text
