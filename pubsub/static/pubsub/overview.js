// Keeps the overview up to date: fetches its parts again and again, replaces those that have changed, and rests while
// the page is hidden. What you have open, and where the keyboard is, stays.
"use strict";
(() => {
  const settings = document.getElementById("pubsub-refresh").dataset;
  const live = document.getElementById("pubsub-live");
  const state = document.getElementById("pubsub-refresh-state");
  const button = document.getElementById("pubsub-refresh-pause");
  let timer = 0;
  let paused = false;

  function say(text) {
    if (state.textContent !== text) state.textContent = text;
  }

  function plan() {
    clearTimeout(timer);
    if (!paused && !document.hidden) timer = setTimeout(refresh, Number(settings.everyMs));
  }

  function replace(old, fresh) {
    for (const details of old.querySelectorAll("details[id]")) {
      const same = fresh.querySelector("#" + CSS.escape(details.id));
      if (same) same.open = details.open;
    }
    if (old.isEqualNode(fresh)) return;
    const focused = old.contains(document.activeElement) ? document.activeElement : null;
    const inside = focused && (focused.id || (focused.parentElement && focused.parentElement.id));
    old.replaceWith(fresh);
    if (!inside) return;
    const again = document.getElementById(inside);
    if (again) (focused.id ? again : again.querySelector("summary") || again).focus({preventScroll: true});
  }

  function show(html) {
    const fresh = new DOMParser().parseFromString(html, "text/html");
    for (const part of fresh.querySelectorAll("[data-part]")) {
      const old = live.querySelector(`[data-part="${part.dataset.part}"]`);
      if (old) replace(old, document.adoptNode(part));
    }
    title();
  }

  function title() {
    const stuck = Number(live.querySelector("[data-stuck]").dataset.stuck);
    document.title = document.title.replace(/^\(\d+\) /, "");
    if (stuck) document.title = `(${stuck}) ${document.title}`;
  }

  async function refresh() {
    try {
      const query = new URLSearchParams(location.search);
      query.set("live", "");
      const response = await fetch(`?${query}`, {credentials: "same-origin", cache: "no-store", redirect: "manual"});
      if (response.type === "opaqueredirect" || response.status === 403) {
        say(settings.signedOut);
        return;
      }
      if (!response.ok) throw new Error(response.status);
      const html = await response.text();
      if (!paused) {
        show(html);
        say("");
      }
    } catch {
      say(settings.lost);
    }
    plan();
  }

  button.hidden = false;
  button.addEventListener("click", () => {
    paused = !paused;
    button.textContent = paused ? settings.resume : settings.pause;
    say(paused ? settings.paused : "");
    if (paused) clearTimeout(timer);
    else refresh();
  });
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) clearTimeout(timer);
    else if (!paused) refresh();
  });
  title();
  plan();
})();
