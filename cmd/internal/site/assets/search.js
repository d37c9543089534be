// Searches the sections of all pages. The index is loaded when it is first needed.
"use strict";
(() => {
  const root = document.body.dataset.root;
  const field = document.getElementById("search");
  const found = document.getElementById("found");
  const article = document.querySelector("article");
  field.closest("[hidden]").hidden = false;

  let loading;
  const load = () => loading ??= new Promise((done, failed) => {
    const script = document.createElement("script");
    script.src = root + "search-index.js";
    script.onload = () => done(window.searchIndex);
    script.onerror = failed;
    document.head.append(script);
  });

  // rank is how well a section fits; 0 if a word is missing.
  const rank = (section, words) => {
    let sum = 0;
    for (const word of words) {
      const title = section.Title.toLowerCase(), page = section.Page.toLowerCase();
      if (title.includes(word)) sum += 8;
      else if (page.includes(word)) sum += 4;
      else if (section.Text.toLowerCase().includes(word)) sum += 1;
      else return 0;
    }
    return section.Title === section.Page ? sum + 4 : sum;
  };

  const element = (name, text) => Object.assign(document.createElement(name), { textContent: text });

  const entry = ({ section }, words) => {
    const item = document.createElement("li");
    const link = element("a", section.Title === section.Page ? section.Title : section.Page + ": " + section.Title);
    link.href = root + section.Address;
    const at = Math.max(0, section.Text.toLowerCase().indexOf(words[0]) - 60);
    item.append(link, element("p", (at > 0 ? "…" : "") + section.Text.slice(at, at + 160) + (section.Text.length > at + 160 ? "…" : "")));
    return item;
  };

  field.addEventListener("focus", load, { once: true });
  field.addEventListener("input", async () => {
    const words = field.value.toLowerCase().split(/\s+/).filter(Boolean);
    const sections = await load();
    article.hidden = words.length > 0;
    found.hidden = words.length === 0;
    if (words.length === 0) return;
    const best = sections.map((section) => ({ section, rank: rank(section, words) })).filter((f) => f.rank > 0).sort((a, b) => b.rank - a.rank).slice(0, 30);
    const list = document.createElement("ol");
    list.append(...best.map((f) => entry(f, words)));
    found.replaceChildren(element("h1", best.length === 0 ? "Nothing found" : "Found"), list);
  });
})();
