"""The report is one file with everything in it, and what stands in events does nothing in it."""

import io
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import connection
from pyspark.sql import SparkSession

from pubsub.models import Finding
from tests.factories import DeadLetterFactory

from .log import make_topic, orders, publish_all

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.timeout(400)]

EVIL = "<script>alert(1)</script>\"'><img src=x onerror=alert(1)>"


class Tags(HTMLParser):
    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs


def test_one_page_has_everything(spark: SparkSession, tmp_path: Path, admin_client: Any) -> None:
    topic = make_topic(EVIL)
    publish_all(EVIL, orders(40))
    publish_all(EVIL, ({"payload": 1, "key": EVIL, "type": EVIL} for _ in range(5)))
    DeadLetterFactory(topic_id=topic, group_id=EVIL, exception_class=EVIL, exception_message=EVIL, c_offset=1)
    path = tmp_path / "new" / "report.html"
    printed = io.StringIO()
    call_command(
        "run_spark_job", "report", "--output", str(path), "--save", "--url", "/reports/today.html", stdout=printed
    )
    page = path.read_text()
    found = Tags(page)
    assert "script" not in found.tags
    assert "img" not in found.tags
    assert not [name for name, _ in found.attributes if name.startswith("on")]
    assert found.tags.count("svg") == 4, "throughput, dead letters, skew and the funnel; no group has passed anything"
    assert not re.search(r"""(?:src|href)=["'](?!#)""", page), "nothing is loaded from elsewhere"
    assert f"{EVIL}: offsets 1 to 45 are whole.".replace("<", "&lt;").replace(">", "&gt;")[:20] in page
    assert set(Finding.objects.values_list("job", flat=True)) == {
        "throughput",
        "dead_letters",
        "skew",
        "funnel",
        "audit",
        "report",
    }
    admin = admin_client.get("/admin/pubsub/finding/")
    assert {run.report for run in admin.context["runs"]} == {"/reports/today.html"}
    assert "The report is in" in printed.getvalue()
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM log_entry WHERE topic_id = %s AND c_offset = 7", [topic])
    with pytest.raises(CommandError, match="gap at offset 7"):
        call_command("run_spark_job", "report", "--output", str(path), stdout=printed)
    assert "gap at offset 7" in path.read_text()
