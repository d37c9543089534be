// The page of a job: it follows the session, shows older events as its reader scrolls up,
// and sends answers without loading the page again. What is shown is made by the server.
"use strict";
(() => {
  const most = 3000; // events that the page keeps while it follows
  const log = document.getElementById("session");
  const head = document.getElementById("job-head");

  for (const button of document.querySelectorAll("button[data-copy]")) {
    button.hidden = !navigator.clipboard;
    button.addEventListener("click", async () => {
      await navigator.clipboard.writeText(document.getElementById(button.dataset.copy).textContent);
      button.firstChild.textContent = "Copied";
    });
  }

  // The head: what keeps the job where it is, and what can be done now.
  let asking = 0;
  let asks = 0; // how many times it was to be asked for
  let shown = 0; // which of them the page shows
  let over = false; // the session has come to its end
  const headIsUsed = () => head.querySelector("details[open]") || head.contains(document.activeElement);
  function refreshHead(wait) {
    clearTimeout(asking);
    const mine = ++asks;
    asking = setTimeout(async () => {
      if (document.hidden || headIsUsed()) return refreshHead(2000);
      const answer = await fetch(head.dataset.src, { headers: { Accept: "text/html" } }).catch(() => null);
      const good = answer && answer.ok && !answer.redirected;
      const text = good ? await answer.text() : "";
      // An answer that was overtaken by a newer one is old, and one that is to be
      // followed by another is not to put that off.
      if (good && mine > shown && !headIsUsed()) {
        replaceHead(text);
        shown = mine;
      }
      if (mine !== asks) return;
      if (shown === mine) laterHead(); else refreshHead(2000);
    }, wait);
  }
  // replaceHead leaves the parts that have not changed alone: a click may be on its way there,
  // and a screen reader may be reading.
  function replaceHead(text) {
    const part = document.createElement("template");
    part.innerHTML = text;
    const parts = [...part.content.children];
    if (parts.length !== head.children.length) return head.replaceChildren(part.content);
    parts.forEach((now, i) => { if (!now.isEqualNode(head.children[i])) head.children[i].replaceWith(now); });
  }
  function laterHead() {
    const again = head.querySelector("[data-again]");
    // Pages share answers of the server, so the first one behind the end may be older.
    if (again) refreshHead(over ? 2000 : Number(again.dataset.again) * 1000);
  }
  if (head) laterHead();

  // A form that acts says what went wrong, where it stands.
  document.addEventListener("submit", async (event) => {
    const form = event.target;
    if (!form.matches("form[data-act]")) return;
    event.preventDefault();
    const body = new URLSearchParams(new FormData(form, event.submitter));
    const buttons = [...form.querySelectorAll("button")];
    for (const b of buttons) b.disabled = true;
    const answer = await fetch(form.action, { method: "POST", body, headers: { "X-Requested-With": "fetch" } }).catch(() => null);
    if (answer && answer.redirected) { location.assign(answer.url); return; }
    let said = form.querySelector(".said");
    if (!said) {
      said = document.createElement("p");
      said.className = "said";
      said.setAttribute("role", "status");
      form.append(said);
    }
    said.textContent = "Sent.";
    said.classList.toggle("bad", !answer || !answer.ok);
    if (answer && answer.ok) {
      form.reset();
    } else {
      const page = answer && new DOMParser().parseFromString(await answer.text(), "text/html");
      said.textContent = (page && page.querySelector("main .lead")?.textContent) || "The server does not answer: try again.";
    }
    if (!answer || !answer.ok || form.matches(".send")) for (const b of buttons) b.disabled = false;
  });

  if (!log) return;
  const reader = document.getElementById("follow");
  const toEnd = document.getElementById("to-end");
  const olderLine = log.querySelector(".older");
  const atEnd = () => innerHeight + scrollY >= document.documentElement.scrollHeight - 80;
  const scrollToEnd = () => scrollTo({ top: document.documentElement.scrollHeight });

  // place puts an event where it belongs, once: what came of a tool into its call.
  function place(article, first) {
    const into = article.dataset.into && document.getElementById(article.dataset.into);
    if (into) {
      into.querySelector(".inner").append(article);
      if (article.dataset.outcome) {
        const says = into.querySelector("summary .outcome");
        says.textContent = article.dataset.outcome;
        says.classList.toggle("bad", article.classList.contains("failed"));
      }
    } else if (first) {
      log.insertBefore(article, first);
    } else {
      log.append(article);
    }
    const closes = article.dataset.closes;
    if (!closes || first) return;
    for (const question of closes === "all" ? log.querySelectorAll(".question") : [document.getElementById(closes)]) {
      if (!question) continue;
      question.classList.add("closed");
      for (const control of question.querySelectorAll("button, input")) control.disabled = true;
    }
  }

  // Older events come as the reader gets near the beginning.
  let reading = false;
  async function older() {
    const link = olderLine.querySelector("a");
    if (reading || olderLine.hidden || !log.dataset.live) return;
    reading = true;
    const answer = await fetch(link.dataset.older, { headers: { Accept: "text/html" } }).catch(() => null);
    if (answer && answer.ok && !answer.redirected) {
      const part = document.createElement("template");
      part.innerHTML = await answer.text();
      const height = document.documentElement.scrollHeight;
      const top = scrollY;
      const first = olderLine.nextElementSibling;
      for (const article of [...part.content.querySelectorAll(":scope > article")]) {
        if (!document.getElementById(article.id)) log.insertBefore(article, first);
      }
      for (const article of [...log.querySelectorAll(":scope > article[data-into]")]) place(article, article.nextElementSibling);
      const next = part.content.querySelector(".older");
      olderLine.hidden = next.hidden;
      olderLine.firstElementChild.replaceWith(next.firstElementChild);
      scrollTo({ top: top + document.documentElement.scrollHeight - height });
    }
    reading = false;
  }
  new IntersectionObserver((seen) => { if (seen.some((s) => s.isIntersecting) && scrollY > 0) older(); }, { rootMargin: "600px" }).observe(olderLine);
  addEventListener("scroll", () => { if (scrollY < 600 && !atEnd()) older(); }, { passive: true });
  olderLine.addEventListener("click", (event) => { event.preventDefault(); older(); });

  // A page that follows for days keeps the newest events, and the way to the others.
  function trim() {
    const all = log.querySelectorAll(":scope > article");
    if (all.length <= most) return;
    const gone = [...all].slice(0, all.length - most);
    const first = all[gone.length];
    for (const article of gone) {
      for (const inner of article.querySelectorAll("article")) {
        if (Number(inner.dataset.seq) > Number(first.dataset.seq)) log.insertBefore(inner, first);
      }
      article.remove();
    }
    const seq = log.querySelector(":scope > article").dataset.seq;
    const link = olderLine.querySelector("a");
    link.href = location.pathname + "?before=" + seq;
    link.dataset.older = location.pathname + "/older?before=" + seq;
    olderLine.hidden = false;
  }

  if (!log.dataset.live) return;
  let last = log.dataset.last;
  let source = null;
  let again = 0;
  let waiting = [];

  const say = (text, away) => {
    reader.textContent = text;
    reader.classList.toggle("away", Boolean(away));
  };

  // show puts what has come on the page, once a frame.
  function show() {
    const follow = atEnd();
    for (const text of waiting.splice(0)) {
      const part = document.createElement("template");
      part.innerHTML = text;
      const article = part.content.firstElementChild;
      if (document.getElementById(article.id)) continue;
      place(article);
      if (article.hasAttribute("data-turns")) refreshHead(100);
    }
    if (follow) {
      trim();
      scrollToEnd();
    }
    toEnd.hidden = follow || atEnd();
  }

  function connect() {
    if (source || over || document.hidden) return;
    source = new EventSource(log.dataset.live + "?after=" + last);
    source.addEventListener("open", () => { say("Live"); again = 0; });
    source.addEventListener("fragment", (event) => {
      last = event.lastEventId;
      if (waiting.push(event.data) === 1) requestAnimationFrame(show);
    });
    source.addEventListener("end", (event) => {
      over = true;
      disconnect();
      say("The job has finished.");
      refreshHead(100);
    });
    source.addEventListener("error", () => {
      if (over) return;
      say("Reconnecting: the server does not answer. Nothing is lost.", true);
      // A browser asks again by itself where the connection was cut, and not where the
      // server said no.
      if (source.readyState !== EventSource.CLOSED) return;
      disconnect();
      again = Math.min(again + 1, 10);
      setTimeout(connect, 500 * again);
    });
  }

  function disconnect() {
    if (source) source.close();
    source = null;
  }

  // A browser has few connections to a server, over all its tabs.
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) disconnect(); else connect();
  });
  addEventListener("pagehide", disconnect);
  addEventListener("pageshow", connect);
  addEventListener("scroll", () => { if (atEnd()) toEnd.hidden = true; }, { passive: true });
  toEnd.addEventListener("click", scrollToEnd);
  if (!location.hash) scrollToEnd();
  connect();
})();
