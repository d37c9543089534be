// Uses the terminals of a job in a real browser, as a person does: looks, types, changes the
// size, meets hostile output, loses the server. It prints a line for each step. The task is
// JSON in the first argument: url, token, job, chromium, patience, and perhaps shots, a directory.
"use strict";
const path = require("node:path");
const puppeteer = require("puppeteer-core");
const axe = require("axe-core");

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
  page.on("dialog", (dialog) => { say("dialog", dialog.message()); dialog.dismiss(); });
  page.on("popup", (popup) => say("popup", popup.url()));
  await page.evaluateOnNewDocument(() => {
    document.addEventListener("securitypolicyviolation", (event) => console.error("policy: " + event.violatedDirective + " " + event.blockedURI));
    document.execCommand = (command) => console.error("the page runs the command " + command);
    if (navigator.clipboard) navigator.clipboard.writeText = navigator.clipboard.write = () => console.error("the page fills the clipboard");
    // Handlers that were there first are asked last: what reaches these was not refused.
    let screen;
    Object.defineProperty(window, "Terminal", {
      get: () => screen,
      set: (real) => {
        screen = class extends real {
          constructor(options) {
            super(options);
            window.screenShown = this;
            for (const n of [0, 1, 2, 4, 8, 10, 11, 12, 52, 104, 110, 111, 112]) {
              this.parser.registerOscHandler(n, () => { console.error("the page acts on OSC " + n); return false; });
            }
          }
        };
      },
    });
    // A refresh that comes once a minute comes soon.
    const later = window.setTimeout;
    window.setTimeout = (what, wait, ...more) => later(what, wait === 60000 ? 300 : wait, ...more);
  });
}

const has = (page, selector, text) =>
  page.waitForFunction((s, t) => [...document.querySelectorAll(s)].some((e) => e.textContent.includes(t)), {}, selector, text);

// lines are those of the screen, with what has been scrolled away.
const lines = (page) => page.evaluate(() => {
  const buffer = window.screenShown.buffer.active;
  return Array.from({ length: buffer.length }, (_, i) => buffer.getLine(i).translateToString(true));
});
const shows = (page, expression) => page.waitForFunction((e) => {
  const buffer = window.screenShown?.buffer.active;
  return buffer && Array.from({ length: buffer.length }, (_, i) => buffer.getLine(i).translateToString(true)).some((line) => new RegExp(e).test(line));
}, {}, expression);

async function type(page, text) {
  await page.keyboard.type(text);
  await page.keyboard.press("Enter");
}

const inTerminal = (page) => page.evaluate(() => document.activeElement.matches("#screen textarea"));

// look checks the page in each view and each color.
async function look(page, name) {
  await page.evaluate(axe.source);
  for (const view of [{ name: "desktop", width: 1280, height: 800 }, { name: "phone", width: 390, height: 844 }]) {
    await page.setViewport(view);
    for (const color of ["light", "dark"]) {
      await page.emulateMediaFeatures([{ name: "prefers-color-scheme", value: color }]);
      const found = await page.evaluate(async () => {
        const { violations } = await axe.run(document, { runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"], resultTypes: ["violations"] });
        return violations.map((v) => v.id + ": " + v.nodes.map((n) => n.html.slice(0, 160) + " " + n.failureSummary.replace(/\s+/g, " ")).join(" | "));
      });
      for (const violation of found) say("axe", name, view.name, color, violation);
      if (task.shots) await page.screenshot({ path: path.join(task.shots, `${name}-${view.name}-${color}.png`), fullPage: true });
    }
    const wide = await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
    if (wide > 0) say("wide", name, view.name, wide);
  }
  await page.setViewport({ width: 1280, height: 800 });
}

// colors: what a program colors is colored, without inline styles.
async function colors(page) {
  await page.emulateMediaFeatures([{ name: "prefers-color-scheme", value: "dark" }]);
  await type(page, "printf '\\033[38;2;1;200;3mtr''ue\\033[0m \\033[32mgre''en\\033[0m\\n'");
  await shows(page, "^true green");
  const found = await page.waitForFunction(() => {
    const spans = [...document.querySelectorAll(".xterm-rows span")];
    const colored = ["true", "green"].map((text) => spans.find((e) => e.textContent === text)).filter(Boolean).map((e) => getComputedStyle(e).color);
    return colored.length === 2 ? colored : null;
  });
  const [exact, green] = await found.jsonValue();
  if (exact !== "rgb(1, 200, 3)" || green === "rgb(227, 230, 234)") say("colors", exact, green);
}

// stays: a refresh of the head leaves what has not changed alone.
async function stays(page) {
  await page.evaluate(() => { document.querySelector("#job-head h1").stays = true; });
  for (let n = 0; n < 2; n++) await page.waitForResponse((answer) => answer.url().endsWith("/head"));
  await page.evaluate(() => new Promise((done) => setTimeout(done, 50)));
  if (!await page.evaluate(() => document.querySelector("#job-head h1").stays)) say("head", "is made anew");
}

// sizes: the terminal has the size of the page, also when that changes.
async function sizes(page) {
  for (const width of [1280, 700]) {
    await page.setViewport({ width, height: 800 });
    await page.waitForFunction((narrow) => window.screenShown.cols < 90 === narrow, {}, width === 700);
    const { rows, cols } = await page.evaluate(() => ({ rows: window.screenShown.rows, cols: window.screenShown.cols }));
    await type(page, `clear; while [ "$(stty size)" != "${rows} ${cols}" ]; do sleep 0.05; done; echo wi''dth ${width}`);
    await shows(page, "^width " + width);
  }
  await page.setViewport({ width: 1280, height: 800 });
}

// hostile: what a program writes changes nothing but the screen, and has nothing typed but
// where the cursor is, and what kind of terminal this is.
async function hostile(page) {
  const title = await page.title();
  await type(page, "clear; stty -echo -icanon min 0 time 20; cat hostile; dd bs=1000 count=1 2>/dev/null | cat -v; stty sane; echo; echo ov''er");
  await shows(page, "^over");
  const got = await lines(page);
  const typed = got.find((line) => line.includes("^["));
  if (!/^(in>)?\^\[\[\?1;2c\^\[\[\d+;\d+R$/.test((typed ?? "").replace(/^.*?(?=\^\[)/, ""))) say("typed", JSON.stringify(got));
  if (await page.title() !== title) say("title", await page.title());
  const link = await page.waitForSelector(".xterm-rows ::-p-text(runs)");
  const looks = await link.evaluate((e) => e.className + " " + getComputedStyle(e).textDecorationLine);
  if (!/none$/.test(looks) || /link|underline/.test(looks)) say("link", looks);
  const box = await link.boundingBox();
  await page.mouse.move(box.x + 2, box.y + 5);
  await page.mouse.click(box.x + 2, box.y + 5);
  if (await page.$("#terminals img, #terminals a, #terminals script")) say("elements", await page.$eval("#terminals", (e) => e.innerHTML));
}

// attached waits until a page that was loaded again shows the terminal, and goes there.
async function attached(page) {
  await has(page, "#terminal-state", "Terminal 1");
  await page.locator("#terminal-list button").click();
  await page.waitForFunction(() => document.querySelector("#screen textarea")?.readOnly === false);
}

// reloads: another page shows the same terminal, and answers no question that was answered.
async function reloads(page) {
  await page.reload();
  await attached(page);
  await shows(page, "^over");
  await type(page, "echo ag''ain");
  await shows(page, "^again");
  const line = (await lines(page)).findLast((text) => text.includes("echo ag''ain"));
  if (line !== "in>echo ag''ain") say("prompt", line);
}

// touches: the keys that a phone lacks.
async function touches(page) {
  await page.setViewport({ width: 390, height: 844, hasTouch: true }); // which reloads the page
  await attached(page);
  await type(page, "clear; echo rea''dy; cat -v | sed -u 's/^/got/'");
  await shows(page, "^ready");
  if (task.shots) await page.screenshot({ path: path.join(task.shots, "terminal-touch.png") });
  for (const key of ["tab", "esc", "up"]) await page.locator(`#terminal-touch [value=${key}]`).click();
  await page.keyboard.press("Enter");
  await shows(page, "^got +\\^\\[\\^\\[\\[A$");
  await page.locator("#terminal-touch [value=interrupt]").click();
  await shows(page, "^in>$"); // what is typed before the prompt may be lost with the program
  await type(page, "echo do''ne");
  await shows(page, "^done");
  await page.setViewport({ width: 1280, height: 800 });
  await attached(page);
}

// keys: Tab is the program's, and Escape before it leaves.
async function keys(page) {
  await type(page, "echo rea''dy; cat -v >tabs");
  await shows(page, "^ready");
  await page.keyboard.press("Tab");
  if (!await inTerminal(page)) say("keys", "Tab leaves the terminal");
  await page.keyboard.press("Enter");
  await page.keyboard.press("Escape");
  await page.keyboard.press("Tab");
  if (await inTerminal(page)) say("keys", "Escape and Tab do not leave the terminal");
  await page.keyboard.down("Shift");
  await page.keyboard.press("Tab");
  await page.keyboard.up("Shift");
  if (!await inTerminal(page)) say("keys", "Tab does not lead back to the terminal");
  await page.keyboard.press("Enter");
  await page.keyboard.down("Control");
  await page.keyboard.press("d");
  await page.keyboard.up("Control");
  await type(page, "clear; od -An -c tabs");
  await shows(page, "^ +\\\\t +\\\\n +\\^ +\\[ +\\\\n");
}

(async () => {
  const browser = await puppeteer.launch({ executablePath: task.chromium, args: ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"], headless: true });
  try {
    const page = await browser.newPage();
    page.setDefaultTimeout(task.patience);
    await watch(page);
    await page.setViewport({ width: 1280, height: 800 });
    await page.goto(task.url + "/ui/jobs/" + task.job);
    await page.type("#token", task.token);
    await Promise.all([page.waitForNavigation(), page.keyboard.press("Enter")]);
    await Promise.all([page.waitForNavigation(), page.locator(".tabs a ::-p-text(Terminal)").click()]);
    await has(page, "#terminal-state", "No terminal is open.");
    await page.locator("#open-terminal").click();
    await has(page, "#terminal-state", "Terminal 1");
    await type(page, "exec bash --norc");
    await type(page, "PS1='in>'; pwd");
    await shows(page, "/workspace");
    await colors(page);
    await stays(page);
    await sizes(page);
    await hostile(page);
    await reloads(page);
    await keys(page);
    await touches(page);
    await look(page, "terminal");
    say("looked");
    await page.locator("#terminal-list button").click();
    await type(page, "clear; stty -echo; for i in $(seq 150); do echo n$i; sleep 0.03; done; stty echo");
    await shows(page, "^n30$"); // far enough behind the clear that what comes twice is seen
    away = true;
    say("counting");
    await has(page, "#terminal-state.away", "Reconnecting");
    say("away");
    await type(page, "echo mean''while >>typed; cat typed");
    await told;
    await shows(page, "^meanwhile");
    away = false;
    const got = await lines(page);
    say("numbers", JSON.stringify(got.filter((line) => /^n\d+$/.test(line)).map((line) => Number(line.slice(1)))));
    if (got.filter((line) => line === "meanwhile").length !== 1) say("typed", JSON.stringify(got));
    await has(page, "#terminal-state", "Terminal 1.");

    // The server that has come back is for reading only.
    const other = await browser.newPage();
    other.setDefaultTimeout(task.patience);
    await watch(other);
    await other.goto(task.url + "/ui/jobs/" + task.job + "/terminal");
    if (await other.$("#open-terminal")) say("reading", "opens terminals");
    await other.locator("#terminal-list button").click();
    await has(other, "#terminal-state", "to look at only");
    await shows(other, "^meanwhile");
    await type(other, "touch never");
    await other.waitForFunction((cols) => window.screenShown.cols === cols, {}, await page.evaluate(() => window.screenShown.cols));
    await other.close();

    await page.bringToFront();
    await page.locator("#terminal-list button").click();
    await type(page, "ls never; exit 7");
    await has(page, "#terminal-state", "has ended with");
    await shows(page, "cannot access 'never'");
    say("state", await page.$eval("#terminal-state", (e) => e.textContent));
    await page.locator("#open-terminal").click();
    await has(page, "#terminal-state", "Terminal 2");
    await type(page, "touch go-on");
    await has(page, "#terminal-state", "The job has ended");
    await page.reload();
    await has(page, ".empty", "The job has ended");
    say("done");
  } catch (error) {
    for (const page of await browser.pages()) say("shows", JSON.stringify(await lines(page).catch(() => page.url())), await page.evaluate(() => document.activeElement.outerHTML.slice(0, 200)));
    throw error;
  } finally {
    await browser.close();
  }
})().catch((error) => { say("failed", error.stack.replace(/\n/g, " ")); process.exitCode = 1; }).finally(() => process.stdin.destroy());
