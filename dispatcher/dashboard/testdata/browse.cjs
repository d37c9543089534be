// Looks at pages in a real browser, and prints what is wrong with them, one line each.
// The task is JSON on standard input: url, token, pages, chromium, patience, and perhaps shots, a directory; with
// look it does nothing else.
"use strict";
const fs = require("node:fs");
const path = require("node:path");
const puppeteer = require("puppeteer-core");
const axe = require("axe-core");

const task = JSON.parse(fs.readFileSync(0, "utf8"));
const wrong = (...words) => console.log(words.join(" "));
const views = [
  { name: "desktop", width: 1280, height: 800 },
  { name: "phone", width: 390, height: 844 },
];

// watch reports what a page complains about.
async function watch(page) {
  page.on("console", (message) => {
    if (page.url().endsWith("no-such-batch") && message.text().includes("404")) return;
    if (message.type() === "error" || message.type() === "warn") wrong(page.url(), "console:", message.text());
  });
  page.on("pageerror", (error) => wrong(page.url(), "error:", error.message));
  await page.evaluateOnNewDocument(() => {
    document.addEventListener("securitypolicyviolation", (event) => console.error("policy: " + event.violatedDirective + " " + event.blockedURI));
  });
}

// look checks a page in each view and each color.
async function look(page, name) {
  await page.evaluate(axe.source);
  for (const view of views) {
    await page.setViewport({ width: view.width, height: view.height });
    for (const color of ["light", "dark"]) {
      await page.emulateMediaFeatures([{ name: "prefers-color-scheme", value: color }, { name: "prefers-reduced-motion", value: "reduce" }]);
      const found = await page.evaluate(async () => {
        const { violations } = await axe.run(document, { runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"], resultTypes: ["violations"] });
        return violations.map((v) => v.id + ": " + v.nodes.map((n) => n.html.slice(0, 160) + " " + n.failureSummary.replace(/\s+/g, " ")).join(" | "));
      });
      for (const violation of found) wrong(name, view.name, color, "axe", violation);
      if (task.shots) await page.screenshot({ path: path.join(task.shots, `${name}-${view.name}-${color}.png`), fullPage: true });
    }
    const wide = await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
    if (wide > 0) wrong(name, view.name, "is", wide, "px too wide");
  }
}

// walk presses Tab until the page begins again: it must reach all that can be used, and
// show where it is.
async function walk(page, name) {
  await page.setViewport(views[0]);
  const wanted = await page.evaluate(() => {
    document.querySelector("#live[aria-pressed=true]:not([hidden])")?.click();
    document.activeElement.blur();
    const all = [...document.querySelectorAll("a[href], button, input:not([type=hidden], [type=radio]), select, textarea, summary, [tabindex='0']")];
    return all.filter((e) => e.checkVisibility() && !e.disabled).map((e, i) => { e.dataset.walk = i; return e.outerHTML.slice(0, 120); });
  });
  const reached = new Set();
  for (let i = 0; i < wanted.length + 4; i++) {
    await page.keyboard.press("Tab");
    const at = await page.evaluate(() => {
      const e = document.activeElement;
      const style = getComputedStyle(e);
      return { walk: e.dataset.walk, seen: style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 1, html: e.outerHTML.slice(0, 120), skip: e.matches(".skip") };
    });
    if (i === 0 && !at.skip) wrong(name, "does not begin with the skip link, but with", at.html);
    if (at.walk === undefined) continue;
    if (!at.seen) wrong(name, "does not show the focus on", at.html);
    reached.add(Number(at.walk));
  }
  wanted.forEach((html, i) => { if (!reached.has(i)) wrong(name, "Tab does not reach", html); });
}

// act uses what a page offers, as a person does.
async function act(page) {
  await page.goto(task.url + "/ui/queues");
  await page.evaluate(() => { window.stayed = true; });
  await page.locator('button[aria-label="Pause: gpu"]').click();
  await page.waitForSelector('button[aria-label="Resume: gpu"]');
  await page.waitForFunction(() => document.querySelector(".notice")?.textContent.includes("Paused"));
  page.on("dialog", (dialog) => {
    if (dialog.message() !== "Cancel checked: 2 jobs?") wrong("the browser asks", dialog.message());
    dialog.accept();
  });
  if (!await page.evaluate(() => window.stayed)) wrong("pausing a queue loads the page anew");
  await page.goto(task.url + "/ui/jobs?queue=low-priority-maintenance&state=pending");
  for (const row of [1, 2]) await page.locator(`tbody tr:nth-child(${row}) input[name=id]`).click(); // the page may refresh before the first one
  await page.locator('button[formaction="/ui/bulk/cancel"]').click();
  await page.waitForFunction(() => document.querySelector(".notice")?.textContent.startsWith("Cancelled: 2"));
  if (page.url().includes("done=")) wrong("an action changes the address to", page.url());
  const left = (await page.$$("input[name=id]")).length;
  if (left !== 1) wrong(left, "jobs are left of 3 of which 2 were cancelled");
}

// follow watches a page that nobody touches: a change elsewhere comes to it.
async function follow(page) {
  await page.goto(task.url + "/ui/jobs?q=dependencies");
  await page.evaluate(() => { window.stayed = true; });
  for (let jobs = 1; jobs <= 2; jobs++) {
    // In one step: the page may refresh at any time, and has no focus for a moment then.
    const focus = await page.evaluate((what) => {
      document.querySelector(what).focus();
      return document.activeElement.outerHTML;
    }, jobs === 1 ? "main button" : "main tbody a");
    const ran = await fetch(task.url + "/v1/schedules/dependencies/run", { method: "POST", headers: { Authorization: "Bearer " + task.token } });
    if (ran.status !== 201) wrong("the schedule does not run:", await ran.text());
    await page.waitForFunction((jobs) => document.querySelectorAll("tbody tr").length === jobs, { timeout: task.patience / 8 }, jobs); // before the page asks by itself, on a calm machine
    await page.waitForFunction((focus) => document.activeElement.outerHTML === focus, { timeout: task.patience / 8 }, focus)
      .catch(async () => wrong("a change elsewhere moves the focus from", focus, "to", await page.evaluate(() => document.activeElement.outerHTML)));
  }
  if (!await page.evaluate(() => window.stayed)) wrong("a change elsewhere loads the page anew");
  const asks = await page.evaluate(async () => {
    const before = performance.getEntriesByType("resource").length;
    await new Promise((done) => setTimeout(done, 4000));
    return performance.getEntriesByType("resource").length - before;
  });
  if (asks > 3) wrong("a page asks", asks, "times while nothing happens");
}

// plain reads a page without JavaScript.
async function plain(browser) {
  const page = await browser.newPage();
  page.setDefaultTimeout(task.patience);
  await page.setJavaScriptEnabled(false);
  await page.goto(task.url + "/ui/schedules");
  if (await page.$eval("#live", (live) => live.checkVisibility())) wrong("without JavaScript a button offers to refresh");
  await Promise.all([page.waitForNavigation(), page.click('button[aria-label="Run now: dependencies"]')]);
  const text = await page.$eval("main", (main) => main.textContent);
  if (!text.includes("The job of the schedule is submitted.")) wrong("without JavaScript a schedule does not run:", text);
  await page.goto(task.url + "/ui/batches/nightly-fixes");
  await Promise.all([page.waitForNavigation(), page.click('a.button[href*="reason=check_failed"]')]);
  await Promise.all([page.waitForNavigation(), page.click("main form button")]);
  const retried = await page.$eval("main", (main) => main.textContent);
  if (!retried.includes("1 job running again.")) wrong("without JavaScript the jobs of a reason do not run again:", retried);
  await page.close();
}

(async () => {
  const browser = await puppeteer.launch({ executablePath: task.chromium, args: ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"], headless: true });
  try {
    const page = await browser.newPage();
    page.setDefaultTimeout(task.patience);
    await watch(page);
    await page.goto(task.url + "/");
    await look(page, "login");
    await page.type("#token", task.token);
    await Promise.all([page.waitForNavigation(), page.keyboard.press("Enter")]);
    if (new URL(page.url()).pathname !== "/ui/") wrong("the login leads to", page.url());
    for (const [name, address] of Object.entries(task.pages)) {
      await page.goto(task.url + address);
      await look(page, name);
      await walk(page, name);
    }
    if (task.look) return; // pages of another package
    await follow(page);
    await act(page);
    await plain(browser);
  } finally {
    await browser.close();
  }
})().catch((error) => { wrong("the browser:", error.stack); process.exitCode = 1; });
