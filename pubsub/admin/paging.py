"""Lists of tables that grow without end: a page is found by where the one before it ended. Nothing is counted.

An admin that wants it::

    class LetterAdmin(KeysetPages, admin.ModelAdmin):
        keyset = "id"          # a unique column; the greatest comes first

The page's address says where it begins: ``?before=812`` is what is older, ``?after=812`` what is newer.
"""

from typing import Any

from django.contrib.admin import ShowFacets
from django.contrib.admin.options import IncorrectLookupParameters
from django.contrib.admin.views.main import ChangeList
from django.db.models import QuerySet
from django.http import HttpRequest

BEFORE, AFTER = "before", "after"


class CheckedChangeList(ChangeList):
    """A list whose address may hold anything: what PostgreSQL cannot look for is no filter of it."""

    def get_queryset(self, request: HttpRequest, exclude_parameters: Any = None) -> QuerySet[Any]:
        own = {getattr(each, "parameter_name", None) for each in self.list_filter}  # which look for themselves
        asked = [value for name, values in self.filter_params.items() if name not in own for value in values]
        if any("\x00" in value for value in asked):
            raise IncorrectLookupParameters("A filter cannot contain a NUL character.")
        return super().get_queryset(request, exclude_parameters)


class KeysetChangeList(CheckedChangeList):
    """The rows of a page and whether there are more on either side, by one query with a limit."""

    is_keyset = True
    """For the templates, which show other links and no numbers."""

    newer: str | None = None
    """The query string of the page with newer rows; None on the newest one."""
    older: str | None = None
    newest: str | None = None
    oldest: str | None = None

    def get_queryset(self, request: HttpRequest, exclude_parameters: Any = None) -> QuerySet[Any]:
        for name in (BEFORE, AFTER):  # they are no filters, and are not kept where the filter changes
            self.params.pop(name, None)
            self.filter_params.pop(name, None)
        return super().get_queryset(request, exclude_parameters)

    def get_ordering(self, request: HttpRequest, queryset: QuerySet[Any]) -> list[Any]:
        return [f"-{self._keyset}"]

    @property
    def _keyset(self) -> str:
        return str(self.model_admin.keyset)  # type: ignore[attr-defined]

    def get_results(self, request: HttpRequest) -> None:
        before, after = (_whole_number(request, name) for name in (BEFORE, AFTER))
        limit = self.list_per_page
        rows: QuerySet[Any] = self.queryset
        if after is not None:
            # From the page on towards the newest; turned round below.
            rows = rows.filter(**{f"{self._keyset}__gt": after}).order_by(self._keyset)
        elif before is not None:
            rows = rows.filter(**{f"{self._keyset}__lt": before})
        found = list(rows[: limit + 1])
        has_more = len(found) > limit
        del found[limit:]
        if after is not None:
            found.reverse()
        self.result_list = found
        self._link(
            found,
            has_newer=has_more if after is not None else before is not None,
            has_older=True if after is not None else has_more,
            is_oldest=after == 0,
        )
        # What the admin's own templates ask for.
        self.result_count = len(found)
        self.full_result_count = None
        self.show_full_result_count = False
        self.show_admin_actions = bool(found)
        self.can_show_all = self.multi_page = False
        self.paginator = None

    def _link(self, found: list[Any], *, has_newer: bool, has_older: bool, is_oldest: bool) -> None:
        self.is_whole = not has_newer and not has_older
        if has_newer:
            self.newest = self.get_query_string()
            self.newer = self.get_query_string({AFTER: self._key(found[0])}) if found else self.newest
        if has_older and not is_oldest:
            self.oldest = self.get_query_string({AFTER: 0})
            self.older = self.get_query_string({BEFORE: self._key(found[-1])}) if found else self.oldest

    def _key(self, row: Any) -> Any:
        return getattr(row, self._keyset)


def _whole_number(request: HttpRequest, name: str) -> int | None:
    text = request.GET.get(name)
    if text is None:
        return None
    if not (text.isascii() and text.isdecimal() and len(text) < 19):
        raise IncorrectLookupParameters(f"{name} must be a whole number, not {text!r}.")
    return int(text)


class KeysetPages:
    """For a ModelAdmin: pages of the newest rows first, none of them counted."""

    keyset = "id"
    sortable_by: Any = ()
    show_full_result_count = False
    show_facets = ShowFacets.NEVER
    list_per_page = 50

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[ChangeList]:
        return KeysetChangeList
