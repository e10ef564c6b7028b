"""The forms of a group's actions: the reason, and for a move its target."""

import datetime as dt
from typing import Any

from django import forms
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from pubsub import control

MOST_HOURS = 1000 * 365 * 24

WAIT_S = 5
"""How long a forced action waits for running batches."""


class ReasonForm(forms.Form):
    """The reason, and whether to force: `can_force` says what that means; empty: there is nothing to force."""

    reason = forms.CharField(
        label=gettext_lazy("Reason"),
        required=False,
        max_length=1000,
        help_text=gettext_lazy("Recorded in the audit log."),
    )
    force = forms.BooleanField(required=False)

    def __init__(self, *args: Any, can_force: str, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if can_force:
            self.fields["force"].label = can_force
        else:
            del self.fields["force"]


class SeekForm(ReasonForm):
    """Where to move a group's cursors, and in which partitions."""

    TO = (
        ("latest", gettext_lazy("to the end (skip everything published so far)")),
        ("earliest", gettext_lazy("to the oldest event still kept")),
        ("offset", gettext_lazy("to an offset")),
        ("time", gettext_lazy("to the first event at or after a time")),
        ("by", gettext_lazy("by a number of events in each partition (negative: back)")),
        ("older", gettext_lazy("forward past everything older than … hours")),
    )
    field_order = ("to", "offset", "time", "by", "older", "partitions", "force", "reason")

    to = forms.ChoiceField(label=gettext_lazy("Move"), choices=TO)
    offset = forms.IntegerField(label=gettext_lazy("Offset"), required=False, min_value=1, max_value=10**18)
    time = forms.DateTimeField(
        label=gettext_lazy("Time"),
        required=False,
        widget=forms.DateTimeInput(attrs={"type": "datetime-local", "step": "1"}, format="%Y-%m-%dT%H:%M:%S"),
    )
    by = forms.IntegerField(
        label=gettext_lazy("Number of events"), required=False, min_value=-(10**18), max_value=10**18
    )
    older = forms.FloatField(label=gettext_lazy("Hours"), required=False, min_value=0, max_value=MOST_HOURS)
    partitions = forms.CharField(
        label=gettext_lazy("Only in partitions"),
        required=False,
        help_text=gettext_lazy("Partition numbers separated by commas. Empty: all."),
    )

    def clean_partitions(self) -> list[int] | None:
        text = self.cleaned_data["partitions"].strip()
        parts = [part.strip() for part in text.split(",")]
        if text and not all(part.isascii() and part.isdecimal() and len(part) <= 10 for part in parts):
            raise forms.ValidationError(_("Enter partition numbers separated by commas, such as 0, 3."))
        return [int(part) for part in parts] if text else None

    def clean(self) -> dict[str, Any]:
        cleaned: dict[str, Any] = super().clean() or {}
        to = cleaned.get("to")
        if to in ("offset", "time", "by", "older") and to not in self.errors and cleaned.get(to) is None:
            self.add_error(to, _("Required for the choice above."))
        if to == "older" and cleaned.get("partitions") is not None:
            self.add_error("partitions", _("Moving past old events applies to all partitions: leave this empty."))
        return cleaned

    def preview(self, topic: str, group: str, using: str) -> list[control.CursorMove]:
        if self.cleaned_data["to"] == "older":
            return control.preview_force_complete(topic, group, using=using, **self._older)
        return control.preview_seek(topic, group, using=using, **self._target)

    def run(self, topic: str, group: str, **given: Any) -> list[control.CursorMove]:
        given |= {"force": self.cleaned_data["force"], "wait_s": WAIT_S}
        if self.cleaned_data["to"] == "older":
            return control.force_complete(topic, group, **self._older, **given)
        return control.seek(topic, group, **self._target, **given)

    @property
    def _older(self) -> dict[str, Any]:
        return {"older_than": dt.timedelta(hours=self.cleaned_data["older"])}

    @property
    def _target(self) -> dict[str, Any]:
        chosen = self.cleaned_data
        target: dict[str, Any] = {"partitions": chosen["partitions"]}
        if chosen["to"] == "by":
            return {**target, "by": chosen["by"]}
        return {**target, "to": chosen["to"] if chosen["to"] in ("latest", "earliest") else chosen[chosen["to"]]}
