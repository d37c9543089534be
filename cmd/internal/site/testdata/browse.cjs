// Looks at pages of the site in a real browser, and prints what is wrong with them, one line
// each. The task is JSON on standard input: url, chromium, pages, search and finds.
"use strict";
const fs = require("node:fs");
const puppeteer = require("puppeteer-core");
const axe = require("axe-core");

const task = JSON.parse(fs.readFileSync(0, "utf8"));
const wrong = (...words) => console.log(words.join(" "));
const views = [[1280, "light"], [390, "dark"]];

async function look(page, name, as) {
  await page.evaluate(axe.source);
  for (const [width, color] of as) {
    await page.setViewport({ width, height: 800 });
    await page.emulateMediaFeatures([{ name: "prefers-color-scheme", value: color }]);
    const found = await page.evaluate(async () => {
      const { violations } = await axe.run(document, { runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"], resultTypes: ["violations"] });
      return violations.map((v) => v.id + ": " + v.nodes.slice(0, 3).map((n) => n.html.slice(0, 160) + " " + n.failureSummary.replace(/\s+/g, " ")).join(" | "));
    });
    for (const violation of found) wrong(name, width, color, "axe", violation);
    const wide = await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
    if (wide > 0) wrong(name, "is", wide, "px too wide at", width);
  }
}

(async () => {
  const browser = await puppeteer.launch({ executablePath: task.chromium, args: ["--no-sandbox", "--disable-dev-shm-usage"] });
  process.on("SIGTERM", () => browser.close().finally(() => process.exit(1)));
  try {
    const page = await browser.newPage();
    page.on("console", (message) => { if (["error", "warn"].includes(message.type())) wrong(page.url(), "console:", message.text()); });
    page.on("pageerror", (error) => wrong(page.url(), "error:", error.message));
    for (const [n, name] of task.pages.entries()) {
      await page.goto(task.url + name);
      await look(page, name, [views[n % views.length]]);
    }
    await page.type("#search", task.search);
    await page.waitForSelector("#found a");
    const first = await page.$eval("#found a", (a) => a.pathname);
    if (first !== task.finds) wrong("the search for", task.search, "finds", first);
    await look(page, "what was found", views);
  } finally {
    await browser.close();
  }
})().catch((error) => { wrong(error.stack); process.exitCode = 1; });
