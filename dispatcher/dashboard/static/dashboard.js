// What the pages need beyond htmx: they ask for themselves again while people look at
// them, and not while that would disturb what people do.
"use strict";
(() => {
  // How often a page asks again: where it hears of changes, so that what it says of ages
  // stays about right, and where it does not.
  const listening = 60000, polling = 10000;
  const status = document.getElementById("status");
  const live = document.getElementById("live");
  let asked = Date.now(); // when the page was last asked for
  let changed = 0; // when something has changed that it may not have
  let soonest = 0; // when to ask for it again
  let refreshing = false;
  let dropped = false; // the answer to a refresh came when the page was to stand still
  let acted = asked; // when its reader has last done something
  let stream = null;

  const wanted = () => live && !live.hidden && live.getAttribute("aria-pressed") === "true";

  // busy: a new page would take something away that is being used, or was just said.
  function busy() {
    const main = document.getElementById("main");
    if (main.querySelector(".notice") && Date.now() - acted < 8000) return true;
    const at = document.activeElement;
    const selection = document.getSelection();
    return main.querySelector("input[name=id]:checked, details[open], .htmx-request") !== null ||
      (main.contains(at) && at.matches("input:not([type=checkbox]), select, textarea")) ||
      (selection && !selection.isCollapsed && main.contains(selection.anchorNode));
  }

  // mark tells an element of a page from the others, also in the page that comes after it.
  const mark = (e) => [e.tagName, e.id, e.getAttribute("href"), e.form && e.form.getAttribute("action"), e.name, e.value, e.getAttribute("aria-label")].join(" ");

  // refocus keeps the place of those who use the keyboard.
  function refocus(marked) {
    const main = document.getElementById("main");
    if (!marked || main.contains(document.activeElement)) return;
    const again = [...main.querySelectorAll("a, button, input, summary")].find((e) => mark(e) === marked) || main;
    again.focus({ preventScroll: true });
  }

  function refresh() {
    if (!wanted() || document.hidden || refreshing || busy()) return;
    asked = Date.now();
    soonest = asked + 1000;
    refreshing = true;
    dropped = false;
    const at = document.activeElement;
    const marked = document.getElementById("main").contains(at) ? mark(at) : "";
    const here = new URL(location);
    here.searchParams.delete("done"); // what was done was said
    htmx.ajax("GET", here.pathname + here.search, { target: "#main", select: "#main", swap: "outerHTML show:none" })
      .then(() => { if (!dropped) { refocus(marked); compare(); } }, () => {}).finally(() => { refreshing = false; });
  }

  // compare finds out whether the page is older than the last change: many browsers share
  // what the server has asked for.
  function compare() {
    const main = document.getElementById("main");
    if (changed && asked - Number(main.dataset.age) > changed) changed = 0;
    soonest = Math.max(soonest, Date.now() + Number(main.dataset.next));
  }

  // listen hears of changes while people look at the page: a browser has few connections.
  function listen() {
    const wants = wanted() && !document.hidden && "stream" in document.body.dataset;
    if (!wants && stream) {
      stream.close();
      stream = null;
    }
    if (!wants || stream && stream.readyState !== EventSource.CLOSED) return;
    stream = new EventSource(document.body.dataset.stream);
    const change = () => { changed = Date.now(); };
    for (const kind of ["reset", "job", "worker", "queue", "batch", "schedule", "dead", "caps"]) stream.addEventListener(kind, change);
  }

  function tick() {
    const now = Date.now();
    const open = stream && stream.readyState === EventSource.OPEN;
    if (changed && now >= soonest || now - asked >= (open ? listening : polling)) refresh();
    if (!open && now - asked >= polling) listen();
  }

  document.body.addEventListener("htmx:beforeSwap", (event) => {
    const answer = event.detail.xhr;
    if (!refreshing) return;
    dropped = answer.status !== 200 || !wanted() || busy(); // which may have changed since it was asked for
    if (dropped) event.detail.shouldSwap = false;
  });
  document.body.addEventListener("htmx:afterRequest", (event) => {
    const answer = event.detail.xhr;
    if (!refreshing) acted = Date.now();
    const away = answer.status === 0 || (refreshing && answer.status >= 500);
    status.textContent = away ? "The server does not answer. This page may be out of date." : "";
  });

  // One box checks all rows, and the bulk actions say how many are checked.
  document.addEventListener("change", (event) => {
    const form = event.target.form;
    if (!form || !form.matches(".bulk")) return;
    if (event.target.matches("[data-all]")) {
      for (const box of form.querySelectorAll("input[name=id]")) box.checked = event.target.checked;
    }
    const checked = form.querySelectorAll("input[name=id]:checked").length;
    const says = form.querySelector("[data-checked]");
    if (says) says.textContent = checked ? checked + " checked" : "";
  });
  document.querySelector(".top nav [aria-current]")?.scrollIntoView({ block: "nearest", inline: "nearest" });

  const showAll = () => { for (const box of document.querySelectorAll("[data-all]")) box.hidden = false; };
  document.body.addEventListener("htmx:afterSettle", showAll);
  showAll();

  // A bulk action asks first, and says how many jobs it is about.
  document.body.addEventListener("htmx:confirm", (event) => {
    const form = event.detail.elt;
    const button = event.detail.triggeringEvent && event.detail.triggeringEvent.submitter;
    const checked = form.matches(".bulk") ? form.querySelectorAll("input[name=id]:checked").length : 0;
    if (!checked || !button) return;
    event.preventDefault();
    if (window.confirm(button.textContent + ": " + checked + (checked === 1 ? " job?" : " jobs?"))) event.detail.issueRequest(true);
  });

  if (live && document.body.hasAttribute("data-refresh")) {
    live.hidden = false;
    live.addEventListener("click", () => {
      live.setAttribute("aria-pressed", String(!wanted()));
      changed = Date.now();
      listen();
    });
    document.addEventListener("visibilitychange", listen);
    setInterval(tick, 250);
    listen();
  }
})();
