"""Pages of the admin that are no form for a row."""

from typing import Any

from django.contrib import admin
from django.contrib.admin.views.main import ChangeList
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils.functional import Promise
from django.utils.text import capfirst

from .paging import CheckedChangeList


def plain_text(text: str, name: str) -> HttpResponse:
    """A text of publishers that no browser takes for anything else; `name` is what it is saved as."""
    response = HttpResponse(text, content_type="text/plain; charset=utf-8")
    response["X-Content-Type-Options"] = "nosniff"
    response["Content-Disposition"] = f'inline; filename="{name}.json"'
    response["Content-Security-Policy"] = "default-src 'none'; sandbox"
    return response


class OwnPages(admin.ModelAdmin):  # type: ignore[type-arg]
    """An entry in the admin's index that has pages of its own, beside Django's."""

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[ChangeList]:
        return CheckedChangeList

    def get_object(self, request: HttpRequest, object_id: str, from_field: str | None = None) -> Any:
        """An address may name a field to look for, and Django takes an empty name for one."""
        return super().get_object(request, object_id, from_field or None)

    def page(self, request: HttpRequest, template: str, title: str | Promise, **context: Any) -> TemplateResponse:
        """A whole page in the admin's frame; `crumbs` are addresses and names on the way to it."""
        request.current_app = self.admin_site.name
        return TemplateResponse(
            request,
            f"admin/pubsub/{template}.html",
            {**self.admin_site.each_context(request), "title": title, "opts": self.opts, **context},
        )

    def address(self, view: str, *arguments: Any) -> str:
        """An address within this site, whatever its name is."""
        return reverse(f"admin:pubsub_{view}", args=arguments, current_app=self.admin_site.name)

    def home(self) -> tuple[str, str]:
        """The list that all pages of this entry are on the way from, for `crumbs`."""
        return self.address(f"{self.opts.model_name}_changelist"), capfirst(str(self.opts.verbose_name_plural))


class Pages(OwnPages):
    """One in which nothing is added, changed or deleted by Django's forms."""

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False
