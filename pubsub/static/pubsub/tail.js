// Follows a topic: asks for what has been numbered since the last offset it has seen. So nothing is left out or shown
// twice, whatever happens in between: a pause, a sleeping laptop, a restart of the server.
"use strict";
(() => {
  const box = document.getElementById("pubsub-tail");
  if (!box) return;
  const texts = box.dataset;
  const list = box.querySelector("ol");
  const state = document.getElementById("tail-state");
  const count = document.getElementById("tail-count");
  const filter = document.getElementById("tail-filter");
  const button = document.getElementById("tail-pause");
  const IDLE_MS = 500, LONGEST_MS = 5000, MOST_ROWS = 2000;
  let after = null;
  let paused = false;
  let asking = false;
  let timer = 0;
  let failures = 0;
  let seen = 0;

  function say(text) {
    if (state.textContent !== text) state.textContent = text;
  }

  function matches(row) {
    return row.dataset.text.includes(filter.value.trim().toLowerCase());
  }

  function cell(tag, text) {
    const element = document.createElement(tag);
    element.textContent = text;
    element.title = text;
    return element;
  }

  function row(event) {
    const item = document.createElement("li");
    item.dataset.offset = event.offset;
    item.dataset.text = `${event.type}\n${event.key}`.toLowerCase();
    const link = cell("a", event.offset);
    link.href = event.address;
    item.append(link, cell("span", event.at), cell("span", event.type), cell("span", event.key), cell("code", event.payload));
    item.hidden = !matches(item);
    return item;
  }

  function showCount() {
    const shown = list.querySelectorAll("li:not([hidden])").length;
    count.textContent = `${seen} ${texts.seen}, ${shown} ${texts.shown}`;
  }

  function show(events) {
    if (!events.length) return;
    const atEnd = box.scrollHeight - box.scrollTop - box.clientHeight < 40;
    const rows = document.createDocumentFragment();
    for (const event of events) rows.append(row(event));
    list.append(rows);
    seen += events.length;
    while (list.childElementCount > MOST_ROWS) list.firstElementChild.remove();
    if (atEnd) box.scrollTop = box.scrollHeight;
    showCount();
  }

  function plan(ms) {
    clearTimeout(timer);
    if (!paused && !document.hidden) timer = setTimeout(ask, ms);
  }

  async function ask() {
    if (asking) return;
    asking = true;
    try {
      const query = new URLSearchParams({topic: texts.topic});
      if (after !== null) query.set("after", after);
      const response = await fetch(`${texts.source}?${query}`, {credentials: "same-origin", cache: "no-store", redirect: "manual"});
      if (response.type === "opaqueredirect" || response.status === 403) {
        say(texts.signedOut);
        return;
      }
      if (!response.ok) throw new Error(response.status);
      const answer = await response.json();
      failures = 0;
      show(answer.events);
      after = answer.next;
      if (!paused) say(answer.dropped ? texts.dropped : texts.following);
      plan(after < answer.tip ? 0 : IDLE_MS);
    } catch {
      failures += 1;
      if (!paused) say(texts.lost);
      plan(Math.min(LONGEST_MS, IDLE_MS * failures));
    } finally {
      asking = false;
    }
  }

  button.addEventListener("click", () => {
    paused = !paused;
    button.textContent = paused ? texts.resume : texts.pause;
    say(paused ? texts.paused : texts.following);
    if (paused) clearTimeout(timer);
    else plan(0);
  });
  document.getElementById("tail-clear").addEventListener("click", () => {
    list.replaceChildren();
    showCount();
  });
  filter.addEventListener("input", () => {
    for (const item of list.children) item.hidden = !matches(item);
    showCount();
  });
  document.getElementById("tail-topic").addEventListener("change", (event) => event.target.form.submit());
  document.getElementById("pubsub-tail-form").addEventListener("submit", (event) => event.preventDefault());
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) clearTimeout(timer);
    else if (!paused) plan(0);
  });
  ask();
})();
