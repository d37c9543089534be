// Watches a job in a real browser: to its end, over a server that dies, with a question
// that a click answers; then runs a failed job again. It prints a line for each step. The
// task is JSON in the first argument: url, token, job, failing, chromium, patience.
"use strict";
const puppeteer = require("puppeteer-core");

const task = JSON.parse(process.argv[2]);
const say = (...words) => console.log(words.join(" "));
const told = new Promise((resolve) => process.stdin.once("data", resolve));
let away = false; // the server is not there: requests fail, which the console tells

async function watch(page) {
  page.on("console", (message) => {
    if (message.type() !== "error" && message.type() !== "warn") return;
    if (away && /net::ERR_/.test(message.text())) return;
    say("console", message.text());
  });
  page.on("pageerror", (error) => say("error", error.message));
  await page.evaluateOnNewDocument(() => {
    document.addEventListener("securitypolicyviolation", (event) => console.error("policy: " + event.violatedDirective + " " + event.blockedURI));
  });
}

const has = (page, selector, text) =>
  page.waitForFunction((s, t) => [...document.querySelectorAll(s)].some((e) => e.textContent.includes(t)), {}, selector, text);

(async () => {
  const browser = await puppeteer.launch({ executablePath: task.chromium, args: ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"], headless: true });
  try {
    const page = await browser.newPage();
    page.setDefaultTimeout(task.patience);
    await watch(page);
    await page.goto(task.url + "/ui/jobs/" + task.job);
    await page.type("#token", task.token);
    await Promise.all([page.waitForNavigation(), page.keyboard.press("Enter")]);
    await has(page, ".ev.output", "line 5");
    away = true;
    say("following");
    await has(page, "#follow.away", "Reconnecting");
    say("away");
    await told;
    await has(page, "#follow", "Live");
    away = false;
    await has(page, ".ev.output", "line 80");
    await has(page, ".question .words", "Which <b>color</b>?");
    await page.locator(".question:not(.closed) button ::-p-text(Blue)").click();
    await page.waitForSelector(".question.closed");
    say("answered");
    await has(page, ".ev.output", "chosen Blue");
    await has(page, "#follow", "The job has finished.");
    await has(page, "#job-head .badge", "success");
    say("events", JSON.stringify(await page.$$eval("#session [data-seq]", (all) => all.map((e) => Number(e.dataset.seq)))));
    await page.goto(task.url + "/ui/jobs/" + task.failing);
    await has(page, "#job-head .badge", "failure");
    // A refresh may replace the button between the look for it and the click, so it is looked for again.
    await Promise.all([page.waitForNavigation(), page.locator("#job-head button ::-p-text(Retry)").click()]);
    await has(page, ".ev.output", "attempt 2");
    await has(page, "#job-head .badge", "success");
    say("retried");
    say("done");
  } finally {
    await browser.close();
  }
})().catch((error) => { say("failed", error.stack.replace(/\n/g, " ")); process.exitCode = 1; }).finally(() => process.stdin.destroy());
