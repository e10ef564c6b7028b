"""Dead letters in a real browser: found, looked into, repaired, replayed, gone."""

import pytest
from django.db import connection, transaction
from playwright.sync_api import Page, expect

from pubsub import publish
from pubsub.models import DeadLetter, OperatorEvent, Subscription, Topic
from pubsub.subscriptions.declare import Declaration
from pubsub.worker.worker import Worker
from tests.factories import DeadLetterFactory

pytestmark = pytest.mark.django_db(transaction=True)

ATTACK = "<img src=x onerror=\"document.title='attacked'\"><script>document.title='attacked'</script>"


def charge(event):
    """A handler that wants a number."""
    if event.payload["total"] + 0 < 0:
        raise ValueError("a negative total")


def drain():
    Worker([Declaration(topic="orders.events", group="billing", handler=charge)], using="default", drain=True).run()


@pytest.fixture
def failed():
    """Three orders whose totals are texts."""
    Topic.objects.get_or_create(name="orders.events")
    drain()
    for number in range(1, 4):
        with transaction.atomic():
            order = {"order": number, "customer": {"name": "Zoë <Admin>"}, "total": f"{number}9,90"}
            publish("orders.events", order, type="order.placed", key=f"customer-{number}", host_id="shop-1")
    drain()
    assert DeadLetter.objects.filter(state="dead").count() == 3
    return list(DeadLetter.objects.order_by("c_offset"))


def test_an_event_is_found_inspected_edited_replayed_and_gone(signed_in: Page, failed, picture) -> None:
    page = signed_in
    page.goto("/admin/pubsub/deadletter/")
    page.fill("#searchbar", "customer-2")
    page.keyboard.press("Enter")
    expect(page.locator("#result_list tbody tr")).to_have_count(1)
    page.locator("#result_list tbody th a").first.click()
    expect(page.locator(".pubsub-json").first).to_contain_text('"total": "29,90"')
    expect(page.locator(".field-traceback_shown")).to_contain_text("TypeError")

    page.click("text=Edit and replay…")
    picture("letter-edit")
    page.fill("#id_text", '{"order": 2, "total": 29.90,}')
    page.click("text=Show changes")
    expect(page.locator(".errornote")).to_contain_text("Expected JSON, but in line 1, column 29")
    page.fill("#id_text", '{"order": 2, "customer": {"name": "Zoë <Admin>"}, "total": 29.90}')
    page.fill("#id_reason", "a comma in the total")
    page.click("text=Show changes")
    expect(page.locator(".pubsub-goes")).to_contain_text('"total": "29,90"')
    expect(page.locator(".pubsub-comes")).to_contain_text('"total": 29.90')
    picture("letter-difference")
    page.click("input[name=replay]")
    expect(page.locator(".messagelist .success")).to_contain_text("will be handled again")
    expect(page.locator(".field-original_shown")).to_contain_text('"total": "29,90"')

    drain()
    page.reload()
    expect(page.locator(".field-state .readonly")).to_have_text("handled at a later attempt")
    expect(page.locator(".field-operator_actions")).to_contain_text("operator, edit-dead-letter-payload: a comma in")
    expect(page.locator("text=Edit and replay…")).to_have_count(0)
    picture("letter-resolved")
    page.goto("/admin/pubsub/deadletter/?state=dead")
    expect(page.locator("#result_list tbody tr")).to_have_count(2)


def test_two_operators_press_replay_at_once(signed_in: Page, second: Page, failed, picture) -> None:
    for page in (signed_in, second):
        page.goto("/admin/pubsub/deadletter/?state=dead")
        page.click("#action-toggle")
        page.select_option("select[name=action]", "replay_selected")
        page.click("button[name=index]")
        expect(page.locator("text=3 events of 3 transactions").first).to_be_visible()
    signed_in.fill("#id_reason", "the first one")
    signed_in.click("input[value=Replay]")
    second.click("input[value=Replay]")
    expect(signed_in.locator(".pubsub-result tbody tr", has_text="✓ dead → retrying")).to_have_count(3)
    expect(second.locator(".messagelist .warning")).to_contain_text("already handled by someone else")
    expect(second.locator(".pubsub-result tbody tr", has_text="not changed: retrying")).to_have_count(3)
    picture("letters-result")
    assert [event.actor for event in OperatorEvent.objects.filter(action="replay-dead-letters")] == ["operator"]


def test_many_batches_continue_by_themselves_with_progress(signed_in: Page, monkeypatch) -> None:
    monkeypatch.setattr("pubsub.admin.actions.AT_ONCE", 10)
    monkeypatch.setattr("pubsub.admin.actions.SECONDS_OF_WORK", 0)
    monkeypatch.setattr("pubsub.dead_letters.actions.BATCH_SIZE", 40)
    topic, _ = Topic.objects.get_or_create(name="orders.events")
    DeadLetterFactory.create_batch(170, topic=topic)
    page = signed_in
    page.goto("/admin/pubsub/deadletter/")
    page.click("#action-toggle")
    page.click("text=Select all that match")
    page.select_option("select[name=action]", "discard_selected")
    page.click("button[name=index]")
    expect(page.locator("text=170 events of 170 transactions").first).to_be_visible()
    page.click("input[value=Discard]")
    expect(page.locator(".messagelist .success")).to_contain_text("170 events of 170 transactions discarded")
    assert not DeadLetter.objects.exclude(state="discarded").exists()


def test_hostile_and_huge_payloads_are_displayed_safely(signed_in: Page, picture) -> None:
    page = signed_in
    topic, _ = Topic.objects.get_or_create(name="orders.events")
    letter = DeadLetterFactory(
        topic=topic,
        payload={ATTACK: [ATTACK, {"deep": {"deeper": ATTACK}}]},
        type=ATTACK,
        key=ATTACK,
        exception_message=ATTACK,
        traceback=ATTACK,
    )
    huge = DeadLetterFactory(topic=topic)
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE dead_letter_queue SET payload = ("
            "  SELECT jsonb_agg(jsonb_build_object('n', n, 'text', repeat('x', 80)))"
            " FROM generate_series(1, 50000) AS n) WHERE id = %s RETURNING length(payload::text)",
            [huge.pk],
        )
        assert cursor.fetchone()[0] > 5_000_000
    for address in ("/admin/pubsub/deadletter/", f"/admin/pubsub/deadletter/{letter.pk}/change/"):
        page.goto(address)
        expect(page).not_to_have_title("attacked")
        expect(page.locator("img[src=x]")).to_have_count(0)
    expect(page.locator(".field-payload_shown")).to_contain_text("<script>document.title")
    picture("letter-hostile")

    page.goto(f"/admin/pubsub/deadletter/{huge.pk}/change/")
    expect(page.locator(".field-payload_shown")).to_contain_text("50,000")
    expect(page.locator(".field-payload_shown")).to_contain_text("… and 49,900 more")
    picture("letter-huge")
    page.locator(".field-payload_shown summary").nth(1).focus()
    before = page.locator(".field-payload_shown details[open]").count()
    page.keyboard.press("Enter")
    expect(page.locator(".field-payload_shown details[open]")).not_to_have_count(before)
    address = page.locator("text=Show all as plain text").get_attribute("href")
    assert len(page.request.get(address).body()) > 5_000_000


def test_an_empty_list_and_a_narrow_one(signed_in: Page, picture) -> None:
    page = signed_in
    page.goto("/admin/pubsub/deadletter/")
    picture("letters-empty")
    for topic in ("orders.events", "payments.events"):
        topic, _ = Topic.objects.get_or_create(name=topic)
        DeadLetterFactory.create_batch(40, topic=topic)
        Subscription.objects.get_or_create(topic=topic, group_id="email-service")
    DeadLetter.objects.filter(pk__in=[*DeadLetter.objects.values_list("pk", flat=True)][::7]).update(state="resolved")
    page.goto("/admin/pubsub/deadletter/")
    picture("letters-full")
    fits = "document.querySelector('.results').scrollWidth <= document.querySelector('.results').clientWidth"
    assert page.evaluate(fits), "no column is out of sight on a common screen"
    page.set_viewport_size({"width": 390, "height": 900})
    page.wait_for_load_state("load")
    assert page.evaluate("document.documentElement.scrollWidth <= 390"), "the page itself never scrolls sideways"


def tab_to(page: Page, selector: str, most: int = 200) -> None:
    """Presses the tab key until it is there, and looks whether what has the focus can be seen on the way."""
    for _ in range(most):
        page.keyboard.press("Tab")
        hidden = page.evaluate(
            """() => {
                const it = document.activeElement;
                const bar = document.querySelector('.pubsub-actions');
                if (!bar || bar.contains(it) || !it.getClientRects().length) return false;
                return it.getBoundingClientRect().top > bar.getBoundingClientRect().top;
            }"""
        )
        assert not hidden, "what has the focus is behind the buttons"
        if page.evaluate("selector => document.activeElement.matches(selector)", selector):
            return
    raise AssertionError(f"The tab key does not lead to {selector}.")


def test_dead_letters_are_replayed_edited_and_discarded_by_keyboard_only(signed_in: Page, failed) -> None:
    page = signed_in
    page.goto("/admin/pubsub/deadletter/")
    tab_to(page, "select[name=action]")
    page.keyboard.type("Replay")
    tab_to(page, "tbody .action-select")
    page.keyboard.press("Space")
    for _ in range(20):  # back to the button before the list
        page.keyboard.press("Shift+Tab")
        if page.evaluate("document.activeElement.matches('.actions button')"):
            break
    page.keyboard.press("Enter")
    expect(page.locator("text=1 event of 1 transaction").first).to_be_visible()
    tab_to(page, "#id_reason")
    page.keyboard.type("by keyboard")
    tab_to(page, "input[value=Replay]")
    page.keyboard.press("Enter")
    expect(page.locator(".messagelist .success")).to_contain_text("will be handled again")

    page.goto(f"/admin/pubsub/deadletter/{failed[0].pk}/change/")
    tab_to(page, ".field-payload_shown summary")
    page.keyboard.press("Enter")
    expect(page.locator(".field-payload_shown details").first).not_to_have_attribute("open", "")
    tab_to(page, "a.pubsub-action")
    page.keyboard.press("Enter")
    expect(page.locator("#id_text")).to_be_visible()
    tab_to(page, "#id_text")
    page.keyboard.press("Control+A")
    page.keyboard.type("7")
    tab_to(page, "input[name=show]")
    page.keyboard.press("Enter")
    expect(page.locator("input[name=store]")).to_be_visible()
    tab_to(page, "input[name=store]")
    page.keyboard.press("Enter")
    expect(page.locator(".messagelist .success")).to_contain_text("The payload is changed")
    tab_to(page, "button.pubsub-danger")
    page.keyboard.press("Enter")
    expect(page.locator("input[value=Discard]")).to_be_visible()
    tab_to(page, "input[value=Discard]")
    page.keyboard.press("Enter")
    expect(page.locator(".messagelist .success")).to_contain_text("1 event of 1 transaction discarded")
    assert OperatorEvent.objects.filter(reason="by keyboard").exists()
