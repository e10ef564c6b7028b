"""The overview: what is wrong, with a link to where something can be done, for those who may see it."""

import datetime as dt
import re

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils import timezone

from pubsub.admin.overview import PER_PAGE
from pubsub.db.connections import dedicated_connection
from pubsub.monitoring import problems
from pubsub.monitoring.recent import RecentStatus
from tests.admin.pages import text_of
from tests.factories import (
    ConsumerOffsetFactory,
    DeadLetterFactory,
    FindingFactory,
    LogPartitionCounterFactory,
    MemberFactory,
    OperatorEventFactory,
    SampleFactory,
    SubscriptionFactory,
    TopicFactory,
)

pytestmark = pytest.mark.django_db(transaction=True)

OVERVIEW = "admin:pubsub_overview_changelist"
ALL = ("view_subscription", "view_deadletter", "view_topic", "view_outboxmessage")


@pytest.fixture
def group():
    subscription = SubscriptionFactory(topic=TopicFactory(name="parcels"), group_id="mail")
    LogPartitionCounterFactory(topic=subscription.topic, entries=1500)
    ConsumerOffsetFactory(topic=subscription.topic, group_id="mail", passed=1000)
    MemberFactory(topic=subscription.topic, group_id="mail")
    return subscription


def test_it_says_so_if_nothing_is_wrong(sign_in, group):
    text = text_of(sign_in(*ALL).get(reverse(OVERVIEW)))
    assert "Nothing is stuck, and nothing needs your attention." in text
    assert "mail parcels active 500" in text


def test_each_problem_leads_to_where_it_is_dealt_with(sign_in, group):
    DeadLetterFactory(topic=group.topic, group_id="mail")
    group.status = "PAUSED"
    group.save()
    client = sign_in(*ALL)
    page = client.get(reverse(OVERVIEW))
    rows = [cause.row for cause in page.context["causes"]]
    assert [wrong.problem.code for wrong in rows] == ["dead-letters", "paused"]
    for wrong in rows:
        assert wrong.address in page.content.decode().replace("&amp;", "&")
        assert client.get(wrong.address).status_code == 200
    letters = client.get(rows[0].address)
    assert len(letters.context["cl"].result_list) == 1


@pytest.mark.parametrize("code", problems.CODES)
def test_every_kind_of_problem_leads_somewhere(sign_in, group, monkeypatch, code):
    DeadLetterFactory(topic=group.topic, group_id="mail")
    DeadLetterFactory(topic=group.topic, group_id="mail", retrying=True)
    found = problems.Problem(code=code, text="It is wrong.", topic="parcels", group="mail", offset=1)
    monkeypatch.setattr("pubsub.admin.overview.find_problems", lambda now: [found])
    client = sign_in(*ALL)
    page = client.get(reverse(OVERVIEW))
    html = page.content.decode()
    (address, press) = re.search(r'<a class="button" id="fix-1" href="([^"]+)">([^<]+)</a>', html).groups()
    assert press
    if address.startswith("#"):
        assert f'id="{address[1:]}"' in html
        return
    there = client.get(address.replace("&amp;", "&"))
    assert there.status_code == 200
    assert "parcels" in text_of(there)


def test_a_user_who_may_not_see_a_page_gets_no_link_to_it(sign_in, group):
    DeadLetterFactory(topic=group.topic, group_id="mail")
    page = sign_in("view_subscription").get(reverse(OVERVIEW))
    html = page.content.decode()
    assert "1 dead letter in mail (parcels)" in text_of(page)
    for hidden in ("/deadletter/", "/outboxmessage/", f"/topic/{group.topic.pk}/"):
        assert hidden not in html


def test_it_is_for_those_who_may_see_subscriptions(sign_in, group):
    client = sign_in("view_deadletter")
    assert client.get(reverse(OVERVIEW)).status_code == 403
    assert client.get(reverse(OVERVIEW) + "?live").status_code == 403
    assert reverse(OVERVIEW) not in client.get(reverse("admin:index")).content.decode()
    client = sign_in("view_subscription")
    assert reverse(OVERVIEW) in client.get(reverse("admin:index")).content.decode()
    assert reverse(OVERVIEW) in client.get(reverse("admin:app_list", args=["pubsub"])).content.decode()


def test_a_refresh_has_no_frame_and_is_not_cached(sign_in, group):
    page = sign_in(*ALL).get(reverse(OVERVIEW) + "?live")
    assert 'data-part="problems"' in page.content.decode()
    assert "<html" not in page.content.decode()
    assert "no-store" in page["Cache-Control"]


def test_nothing_on_it_is_inline(sign_in, group):
    html = sign_in(*ALL).get(reverse(OVERVIEW)).content.decode()
    for forbidden in (" style=", "<style", " onclick=", "javascript:", 'src="http', "<script>"):
        assert forbidden not in html


@pytest.mark.parametrize(("may", "shown"), [(True, "SELECT 'a payload'"), (False, "it may quote payloads")])
def test_queries_are_shown_to_those_who_may_see_payloads(sign_in, monkeypatch, may, shown):
    monkeypatch.setattr("pubsub.monitoring.status.OLD_TRANSACTION", dt.timedelta(0))
    client = sign_in("view_subscription", *(["view_payload_outboxmessage"] if may else []))
    with dedicated_connection("default") as holder, holder.transaction():
        holder.execute("SELECT 'a payload'")
        text, pid = text_of(client.get(reverse(OVERVIEW))), holder.info.backend_pid
    assert shown in text
    assert ("a payload" in text) == may
    assert f"session {pid}" in text


def test_names_are_escaped(sign_in):
    attack = "<script>alert(1)</script>"
    subscription = SubscriptionFactory(group_id=attack, status="PAUSED")
    ConsumerOffsetFactory(topic=subscription.topic, group_id=attack)
    page = sign_in(*ALL).get(reverse(OVERVIEW))
    assert attack in text_of(page)
    assert "<script>alert" not in page.content.decode()


def test_charts_show_the_last_hour(sign_in, group):
    now = timezone.now()
    for minutes, lag in ((50, 0), (30, 800), (10, 200)):
        SampleFactory(topic=group.topic, group_id="mail", lag=lag, taken_at=now - dt.timedelta(minutes=minutes))
    page = sign_in(*ALL).get(reverse(OVERVIEW))
    assert "Lag in the last hour: 500 events now, 800 at most." in page.content.decode()


def test_it_takes_the_same_few_queries_however_many_groups_there_are(sign_in, group):
    client = sign_in(*ALL)

    def queries():
        client.get(reverse(OVERVIEW))
        with CaptureQueriesContext(connection) as captured:
            assert client.get(reverse(OVERVIEW)).status_code == 200
        return len(captured)

    few = queries()
    for _ in range(20):
        subscription = SubscriptionFactory()
        ConsumerOffsetFactory(topic=subscription.topic, group_id=subscription.group_id)
        SampleFactory(topic=subscription.topic, group_id=subscription.group_id)
    assert queries() == few <= 11


def test_many_problems_of_one_kind_are_one_sentence_and_many_groups_are_pages(sign_in, group):
    for number in range(60):
        SubscriptionFactory(topic=group.topic, group_id=f"group-{number:02}", status="DEAD")
    client = sign_in(*ALL)
    page = client.get(reverse(OVERVIEW))
    (cause,) = page.context["causes"]
    assert (cause.row.problem.code, cause.more) == ("dead", 59)
    assert "and 59 more like it" in text_of(page)
    assert len(page.context["groups"]) == PER_PAGE
    assert all(row.group.status == "DEAD" for row in page.context["groups"]), "what is wrong comes first"
    shown = {row.group.group for row in page.context["groups"]}
    while behind := page.context["pages"]["groups"]["behind"]:
        page = client.get(reverse(OVERVIEW) + behind)
        shown |= {row.group.group for row in page.context["groups"]}
    assert len(shown) == 61
    found = client.get(reverse(OVERVIEW) + "?q=GROUP-07&live")
    assert [row.group.group for row in found.context["groups"]] == ["group-07"]
    assert "No group or topic is called like “nothing”" in text_of(client.get(reverse(OVERVIEW) + "?q=nothing"))


def test_all_who_watch_share_one_status(sign_in, group, monkeypatch):
    monkeypatch.setattr("pubsub.monitoring.recent.FOR_S", 60)
    monkeypatch.setattr("pubsub.monitoring.recent.recent", RecentStatus())
    client = sign_in(*ALL)
    first = client.get(reverse(OVERVIEW)).context["status"]
    assert client.get(reverse(OVERVIEW) + "?live").context["status"] is first
    monkeypatch.setattr("pubsub.monitoring.recent.FOR_S", 0)
    assert client.get(reverse(OVERVIEW) + "?live").context["status"] is not first


def test_findings_show_the_latest_run_of_each_job(sign_in):
    now = timezone.now()
    FindingFactory(job="skew", data={"key": "old"}, made_at=now - dt.timedelta(days=1))
    run = FindingFactory(
        job="skew",
        row_number=0,
        made_at=now,
        data={"key": "<b>", "events": 3},
        parameters={"report": "/reports/skew.html", "hours": 24},
    ).run_id
    FindingFactory(job="skew", run_id=run, row_number=1, made_at=now, data={"key": "b", "events": 9})
    FindingFactory(job="latency", parameters={"report": "javascript:alert(1)"})
    client = sign_in("view_finding")
    page = client.get(reverse("admin:pubsub_finding_changelist"))
    assert [run.job for run in page.context["runs"]] == ["latency", "skew"]
    assert page.context["runs"][1].rows == [["<b>", "3"], ["b", "9"]]
    html = page.content.decode()
    assert "/reports/skew.html" in html
    assert "javascript:" not in html
    assert "events: from 3 to 9." in html
    assert "old" not in text_of(page)
    assert sign_in("view_topic").get(reverse("admin:pubsub_finding_changelist")).status_code == 403


def test_the_audit_log_is_read_and_never_written(sign_in, admin_client):
    event = OperatorEventFactory(before={"status": "ACTIVE"})
    client = sign_in("view_operatorevent")
    assert "the mail server is down" in text_of(client.get(reverse("admin:pubsub_operatorevent_changelist")))
    page = client.get(reverse("admin:pubsub_operatorevent_change", args=[event.pk]))
    assert '"status": "ACTIVE"' in text_of(page)
    for action, arguments in (("add", []), ("delete", [event.pk])):
        address = reverse(f"admin:pubsub_operatorevent_{action}", args=arguments)
        assert admin_client.post(address, {"post": "yes"}).status_code == 403
