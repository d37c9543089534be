// Has pull requests opened by clicks, as a person does, and prints what is wrong, one line each.
// The task is JSON on standard input: url, token, chromium, patience, taken and refused, two jobs.
"use strict";
const fs = require("node:fs");
const puppeteer = require("puppeteer-core");
const axe = require("axe-core");

const task = JSON.parse(fs.readFileSync(0, "utf8"));
const wrong = (...words) => console.log(words.join(" "));

// look checks a page for those who cannot see it.
async function look(page, name) {
  await page.evaluate(axe.source);
  const found = await page.evaluate(async () => (await axe.run(document, { runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"], resultTypes: ["violations"] })).violations
    .map((v) => v.id + ": " + v.nodes.map((n) => n.html.slice(0, 160) + " " + n.failureSummary.replace(/\s+/g, " ")).join(" | ")));
  for (const violation of found) wrong(name, "axe", violation);
}

// becomes waits for what the page says of the pull request, and returns it.
async function becomes(page, part) {
  await page.waitForFunction((part) => document.querySelector("#pull")?.textContent.includes(part), {}, part);
  return page.$eval("#pull", (p) => ({ text: p.textContent, link: p.querySelector("a")?.href, bad: p.classList.contains("bad") }));
}

(async () => {
  const browser = await puppeteer.launch({ executablePath: task.chromium, args: ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"], headless: true });
  try {
    const page = await browser.newPage();
    page.setDefaultTimeout(task.patience);
    page.on("console", (message) => { if (message.type() === "error" || message.type() === "warn") wrong(page.url(), "console:", message.text()); });
    page.on("pageerror", (error) => wrong(page.url(), "error:", error.message));
    await page.goto(task.url + "/");
    await page.type("#token", task.token);
    await Promise.all([page.waitForNavigation(), page.keyboard.press("Enter")]);

    const taken = "/ui/jobs/" + task.taken;
    await page.goto(task.url + taken + "/review");
    await look(page, "review");
    await Promise.all([page.waitForNavigation(), page.locator(`main > .actions form[action="${taken}/pull-request"] button`).click()]);
    if (new URL(page.url()).pathname !== taken + "/review") wrong("the button leads to", page.url());
    const open = await becomes(page, "#1 open");
    if (open.bad || !new URL(open.link).pathname.endsWith("/o/r/pull/1")) wrong("the page says", JSON.stringify(open));
    await page.waitForFunction(() => !document.querySelector('#job-head form[action$="/pull-request"]'));
    await look(page, "open");

    const refused = "/ui/jobs/" + task.refused;
    await page.goto(task.url + refused);
    await page.locator(`details.do:has(form[action="${refused}/pull-request"]) summary`).click();
    await Promise.all([page.waitForNavigation(), page.locator(`form[action="${refused}/pull-request"] button`).click()]);
    const told = await becomes(page, "refused");
    if (!told.bad || told.link || !told.text.includes("No commits between main and same")) wrong("the page says", JSON.stringify(told));
    if (!await page.$(`#job-head form[action="${refused}/pull-request"]`)) wrong("a pull request that was refused cannot be asked for again");
    await look(page, "refused");
  } finally {
    await browser.close();
  }
})().catch((error) => { wrong("the browser:", error.stack); process.exitCode = 1; });
