"""Overview, log, live tail and what is done with groups: in a browser, under a strict policy, by keyboard."""

import os
import socket
import subprocess
import sys
import threading
import time

import pytest
from django.db import connections, transaction
from playwright.sync_api import expect

from pubsub import publish_many
from pubsub.models import ConsumerOffset, DeadLetter, Subscription
from pubsub.sequencing.sequencer import sequence
from tests.browser.shop import a_lively_shop
from tests.browser.strictness import serious_findings
from tests.factories import SubscriptionFactory, TopicFactory
from tests.sessions import database_url, wait_until

pytestmark = pytest.mark.django_db(transaction=True)


def test_what_was_searched_for_stays_when_the_page_refreshes_itself(operator):
    page, topic = operator, TopicFactory(name="parcels.events")
    for number in range(30):
        SubscriptionFactory(topic=topic, group_id=f"group-{number:02}", status="DEAD")
    page.goto("/admin/pubsub/overview/")
    page.fill("#pubsub-search", "group-07")
    page.press("#pubsub-search", "Enter")
    expect(page.locator('[data-part="groups"] tbody th')).to_have_count(1)
    page.locator("#alike-dead summary").click()
    Subscription.objects.filter(group_id="group-07").update(status="PAUSED")
    expect(page.locator(".pubsub-pill")).to_have_text("paused", timeout=15_000)
    expect(page.locator('[data-part="groups"] tbody th')).to_have_count(1)
    expect(page.locator("#alike-dead li").first).to_be_visible()


def test_the_overview_answers_what_is_stuck_and_where_to_press(operator, picture, complaints):
    page = operator
    page.goto("/admin/pubsub/overview/")
    expect(page.locator(".pubsub-fine")).to_contain_text("Nothing is stuck")
    picture("overview-empty")
    assert serious_findings(page) == []

    a_lively_shop()
    page.goto("/admin/")
    page.locator("#content-main").get_by_role("link", name="Overview").click()
    expect(page.locator(".pubsub-stuck")).to_contain_text("No worker is running for shipping (orders.events)")
    expect(page.locator(".pubsub-problems")).to_contain_text("analytics (orders.events) is paused; 240 events")
    expect(page).to_have_title("(1) Overview | Django site admin")
    picture("overview")
    assert serious_findings(page) == []
    for scheme in ("dark", "light"):
        page.emulate_media(color_scheme=scheme)
        page.wait_for_function("document.getAnimations().length === 0")  # colours that are on their way are no colours
        assert serious_findings(page) == []
    page.set_viewport_size({"width": 390, "height": 900})
    assert page.evaluate("document.documentElement.scrollWidth") <= 390, "nothing is wider than the phone"
    assert serious_findings(page) == []
    page.set_viewport_size({"width": 1280, "height": 900})

    page.get_by_role("link", name="View dead letters").click()
    expect(page.locator("#result_list tbody tr")).to_have_count(6)
    assert complaints == []


def test_the_overview_refreshes_itself_unless_paused_or_hidden(operator, complaints, monkeypatch):
    monkeypatch.setattr("pubsub.admin.overview.EVERY_MS", 100)
    a_lively_shop()
    page = operator
    page.goto("/admin/pubsub/overview/")
    page.locator("summary", has_text="8 partitions of emails").click()
    page.locator("summary", has_text="8 partitions of emails").focus()
    DeadLetter.objects.filter(c_offset__lte=2).delete()
    expect(page.locator(".pubsub-problems")).to_contain_text("4 dead letters")
    emails = page.locator("summary", has_text="8 partitions of emails")
    expect(emails).to_be_focused()
    assert emails.evaluate("it => it.parentElement.open"), "what was opened stays open"

    page.click("#pubsub-refresh-pause")
    expect(page.locator("#pubsub-refresh-state")).to_have_text("Paused.")
    requests = []
    page.on("request", lambda request: requests.append(request.url))
    DeadLetter.objects.all().delete()
    page.wait_for_timeout(500)
    assert requests == []
    page.click("#pubsub-refresh-pause")
    expect(page.locator(".pubsub-problems")).not_to_contain_text("dead letters in")

    page.evaluate(
        "() => { Object.defineProperty(document, 'hidden', {get: () => true, configurable: true});"
        " document.dispatchEvent(new Event('visibilitychange')); }"
    )
    page.wait_for_timeout(300)  # what was under way ends
    requests.clear()
    page.wait_for_timeout(500)
    assert requests == []
    with page.expect_request("**/?live="):
        page.evaluate("() => { delete document.hidden; document.dispatchEvent(new Event('visibilitychange')); }")
    assert complaints == []


def test_a_paused_group_is_found_and_resumed_by_keyboard(operator, picture, complaints):
    a_lively_shop()
    page = operator
    page.goto("/admin/pubsub/overview/")
    link = page.get_by_role("link", name="Resume or move")
    link.focus()
    page.keyboard.press("Enter")
    expect(page.locator("#content h2").first).to_have_text("analytics ← orders.events")
    picture("subscription-paused")
    assert serious_findings(page) == []
    page.get_by_role("link", name="Resume…").focus()
    page.keyboard.press("Enter")
    page.fill("#id_reason", "the warehouse has moved")
    assert serious_findings(page) == []
    picture("subscription-resume")
    page.keyboard.press("Enter")
    expect(page.locator(".messagelist .success")).to_have_text("Group analytics on orders.events is resumed.")
    assert Subscription.objects.get(group_id="analytics").status == "ACTIVE"
    expect(page.locator(".field-operator_actions")).to_contain_text("the warehouse has moved")
    assert complaints == []


def test_a_group_is_moved_after_a_look_at_its_new_lag(operator, picture, complaints):
    a_lively_shop()
    page = operator
    shipping = Subscription.objects.get(group_id="shipping")
    page.goto(f"/admin/pubsub/subscription/{shipping.pk}/do/seek/")
    picture("seek")
    assert serious_findings(page) == []
    page.select_option("#id_to", "offset")
    page.fill("#id_offset", "121")
    page.click("text=Preview…")
    expect(page.locator(".pubsub-what")).to_contain_text("The group is 240 events behind; it would be 120.")
    picture("seek-preview")
    assert serious_findings(page) == []
    page.click("input[name=confirmed]")
    expect(page.locator(".messagelist .success")).to_contain_text("it is now 120 events behind")
    assert complaints == []


def test_two_operators_press_the_same_action(operator, second, complaints):
    a_lively_shop()
    address = f"/admin/pubsub/subscription/{Subscription.objects.get(group_id='shipping').pk}/do"
    for page in (operator, second):
        page.goto(f"{address}/seek/")
        page.select_option("#id_to", "by")
        page.fill("#id_by", "10")
        page.fill("#id_partitions", "0")
        page.click("text=Preview…")
        expect(page.locator(".pubsub-what")).to_contain_text("it would be 14")
    operator.click("input[name=confirmed]")
    expect(operator.locator(".messagelist .success")).to_contain_text("it is now 14 events behind")
    second.click("input[name=confirmed]")
    expect(second.locator(".errorlist")).to_contain_text("operator has moved the group meanwhile")
    expect(second.locator(".pubsub-what")).to_contain_text("The group is 14 events behind; it would be 4.")
    assert ConsumerOffset.objects.get(group_id="shipping", partition_id=0).passed == 10

    for page in (operator, second):
        page.goto(f"{address}/pause/")
    second.fill("#id_reason", "the depot is closed")
    second.click(".pubsub-ask input[type=submit]")
    expect(second.locator(".messagelist .success")).to_have_text("Group shipping on orders.events is paused.")
    operator.click(".pubsub-ask input[type=submit]")
    expect(operator.locator(".messagelist .warning")).to_contain_text(
        "already done by someone else: shipping on orders.events is paused already (the depot is closed (second))."
    )
    assert complaints == []


def test_the_log_is_searched_and_an_event_found(operator, picture, complaints):
    page = operator
    page.goto("/admin/pubsub/outboxmessage/")
    picture("messages-empty")
    topic = a_lively_shop()
    page.goto("/admin/pubsub/outboxmessage/")
    expect(page.locator("#result_list tbody tr")).to_have_count(50)
    picture("messages")
    assert serious_findings(page) == []
    page.fill("#id_key", "customer-7")
    page.keyboard.press("Enter")
    expect(page.locator("#result_list tbody tr")).to_have_count(12)
    page.fill("#id_key", "")
    page.fill("#id_offset", "3")
    page.keyboard.press("Enter")
    page.locator("#result_list tbody tr").last.get_by_role("link").click()
    expect(page.locator("#content h1")).to_have_text(f"{topic.name}:3")
    expect(page.locator(".pubsub-json").first).to_contain_text("Zoë Köhler")
    expect(page.locator("#content")).to_contain_text("waiting: the group is at offset")
    picture("event")
    assert serious_findings(page) == []
    page.get_by_role("link", name="failed: waiting for an operator").click()
    expect(page.locator(".field-state")).to_contain_text("waiting for an operator")
    assert complaints == []


def test_an_event_is_published_by_hand(operator, picture, complaints):
    page = operator
    a_lively_shop()
    page.goto("/admin/pubsub/outboxmessage/publish/?topic=orders.events")
    page.fill("#id_payload", "{oops")
    page.fill("#id_type", "order.tested")
    page.click("input[type=submit]")
    expect(page.locator(".errorlist")).to_contain_text("Not valid JSON")
    page.fill("#id_payload", '{"order": 4711, "note": "<b>test</b>"}')
    picture("publish")
    assert serious_findings(page) == []
    page.click("text=Publish…")
    expect(page.locator(".pubsub-what")).to_contain_text("emails")
    picture("publish-confirm")
    assert serious_findings(page) == []
    page.click("input[name=confirmed]")
    expect(page.locator(".messagelist .success")).to_contain_text("Published to orders.events, with event id")
    sequence("default")
    page.reload()
    expect(page.locator("#result_list tbody tr").first).to_contain_text("order.tested")
    assert complaints == []


def test_the_topics_pages(operator, picture, complaints):
    page = operator
    topic = a_lively_shop()
    page.goto(f"/admin/pubsub/topic/{topic.pk}/change/")
    expect(page.locator(".pubsub-grid tbody tr")).to_have_count(4)
    picture("topic")
    assert serious_findings(page) == []
    page.goto("/admin/pubsub/finding/")
    expect(page.locator("#content")).to_contain_text("throughput")
    picture("findings")
    assert serious_findings(page) == []
    page.goto("/admin/pubsub/")
    picture("app-index")
    assert complaints == []


class Publishing(threading.Thread):
    """Publishes at a steady rate, numbering as it goes, until stopped."""

    def __init__(self, topic: str, a_second: int) -> None:
        super().__init__(daemon=True)
        self.topic, self.a_second, self.published = topic, a_second, 0
        self.stopping = threading.Event()

    def run(self):
        try:
            begun = time.monotonic()
            while not self.stopping.wait(0.05):
                due = int((time.monotonic() - begun) * self.a_second) - self.published
                with transaction.atomic():
                    publish_many(
                        self.topic,
                        ({"payload": {"n": self.published + n}, "type": f"type-{n % 2}", "key": n} for n in range(due)),
                    )
                self.published += due
                sequence("default")
        finally:
            connections.close_all()

    def stop(self):
        self.stopping.set()
        self.join()


def wait_for(condition, page, seconds=30):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        page.wait_for_timeout(50)


def offsets(page):
    return page.eval_on_selector_all("#pubsub-tail li", "rows => rows.map(row => Number(row.dataset.offset))")


def test_the_tail_keeps_up_and_misses_nothing(operator, picture, complaints):
    page = operator
    topic = TopicFactory(name="busy.events", total_partitions=4)
    page.goto(f"/admin/pubsub/outboxmessage/tail/?topic={topic.pk}")
    expect(page.locator("#tail-state")).to_have_text("Following.")
    picture("tail-empty")
    publishing = Publishing(topic.name, a_second=200)
    publishing.start()
    try:
        wait_for(lambda: len(offsets(page)) >= 600, page)
        # Behind by no more than what comes in a second or two.
        assert publishing.published - max(offsets(page)) < 400
        page.click("#tail-pause")
        expect(page.locator("#tail-state")).to_contain_text("Paused")
        shown = len(offsets(page))
        page.wait_for_timeout(600)
        assert len(offsets(page)) - shown <= 500, "at most what was under way"
        page.click("#tail-pause")
        page.fill("#tail-filter", "type-1")
        wait_for(lambda: len(offsets(page)) >= 1000, page)
        hidden = page.locator("#pubsub-tail li:not([hidden])", has_text="type-0").count()
        assert hidden == 0
        page.fill("#tail-filter", "")
    finally:
        publishing.stop()
    page.wait_for_function(
        f"document.querySelector('#pubsub-tail li:last-child').dataset.offset == {publishing.published}"
    )
    found = offsets(page)
    assert found == list(range(found[0], publishing.published + 1))
    picture("tail")
    assert serious_findings(page) == []
    assert complaints == []


class Server:
    """The project's own server, as a process that can be killed and started again at the same address."""

    def __init__(self):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.url = f"http://localhost:{self.port}"
        self.process = None

    def start(self):
        command = [sys.executable, "manage.py", "runserver", "--noreload", "--insecure", f"127.0.0.1:{self.port}"]
        settings = {"DATABASE_URL": database_url(), "DJANGO_SETTINGS_MODULE": "tests.settings"}
        self.process = subprocess.Popen(
            command, env=os.environ | settings, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        wait_until(self.answers, "the server answers")

    def answers(self):
        with socket.socket() as asking:
            return asking.connect_ex(("127.0.0.1", self.port)) == 0

    def kill(self):
        self.process.kill()
        self.process.wait()


@pytest.fixture
def server():
    server = Server()
    server.start()
    yield server
    server.kill()


def test_the_tail_continues_where_it_was_after_a_server_restart(signed_in, server):
    page = signed_in
    topic = TopicFactory(name="busy.events", total_partitions=1)

    def publish_some():
        with transaction.atomic():
            publish_many(topic.name, ({"payload": n} for n in range(600)))
        sequence("default")

    page.goto(f"{server.url}/admin/pubsub/outboxmessage/tail/?topic={topic.pk}")
    expect(page.locator("#tail-state")).to_have_text("Following.")
    publish_some()
    expect(page.locator("#pubsub-tail li")).to_have_count(600)
    server.kill()
    expect(page.locator("#tail-state")).to_contain_text("The server does not answer")
    publish_some()
    server.start()
    expect(page.locator("#tail-state")).to_have_text("Following.", timeout=15_000)
    expect(page.locator("#pubsub-tail li")).to_have_count(1200)
    assert offsets(page) == list(range(1, 1201))
