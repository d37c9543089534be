// The terminals of a job's agent: a list of them, and one that is shown. Everything is a
// request that may be repeated, with how much has been seen or typed so far. So a connection
// that is lost costs nothing.
"use strict";
(() => {
  const part = document.getElementById("terminals");
  if (!part) return;
  const mostInput = 16 << 10; // bytes of one request
  const mostWaiting = 1 << 20; // bytes that wait to be typed
  const watches = "watch" in part.dataset;
  const frame = document.getElementById("screen");
  const state = document.getElementById("terminal-state");
  const list = document.getElementById("terminal-list");
  const opener = document.getElementById("open-terminal");
  const keys = document.getElementById("terminal-touch");

  let connection = "";
  let trouble = ""; // of the connection
  let absent = ""; // why there are no terminals
  let shown = null;
  let there = []; // the terminals that are there
  const attachment = new Attachment(part.dataset.attach, part.dataset.job, (now, words) => {
    connection = now;
    trouble = words;
    describe();
  });

  function describe() {
    let words = trouble;
    if (!words && shown) words = shown.says;
    if (!words) words = absent;
    if (!words) words = there.length ? "Choose a terminal." : "No terminal is open.";
    if (state.textContent !== words) state.textContent = words;
    state.classList.toggle("away", connection === "away");
    if (opener) opener.disabled = connection === "over" || Boolean(shown && shown.opening);
    if (keys) keys.hidden = !shown || shown.opening;
  }

  // printable shows what others wrote, without what would act or hide.
  const printable = (text) => text.replace(/[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/gu, (c) => "\\u" + c.codePointAt(0).toString(16).padStart(4, "0"));
  const cut = (text, most) => text.length > most ? text.slice(0, most - 1) + "…" : text;
  const encode = (bytes) => btoa(Array.from(bytes, (b) => String.fromCharCode(b)).join(""));
  const decode = (text) => Uint8Array.from(atob(text ?? ""), (c) => c.charCodeAt(0));

  // uuid is one also where a page has no TLS, and so no crypto.randomUUID.
  function uuid() {
    const bytes = crypto.getRandomValues(new Uint8Array(16));
    bytes[6] = bytes[6] & 0x0f | 0x40;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    return Array.from(bytes, (b) => b.toString(16).padStart(2, "0")).join("").replace(/(.{8})(.{4})(.{4})(.{4})/, "$1-$2-$3-$4-");
  }

  function ending(exit) {
    if (exit.why) return "has ended: " + printable(exit.why);
    return exit.signal ? "was ended by " + printable(exit.signal) : "has ended with " + exit.code;
  }

  // A View is a terminal on the page.
  class View {
    number = 0; // of the terminal; 0: there is none yet
    opening = true;
    says = "Opening a terminal…";

    #id = uuid();
    #attempt = 0;
    #gone = false;
    #screen = newScreen(frame);
    #fit = new FitAddon.FitAddon();
    #size = null; // that of the terminal, as far as is known
    #before = 0; // bytes that it had shown when it was attached to
    #typed = 0;
    #input = new Uint8Array();
    #wake = () => {};
    #watcher = new ResizeObserver(() => this.fit());
    #dark = matchMedia("(prefers-color-scheme: dark)");
    #recolor = () => { this.#screen.options.theme = colorsOf(frame); };

    constructor() {
      this.#dark.addEventListener("change", this.#recolor);
      this.#screen.loadAddon(this.#fit);
      this.#screen.textarea.setAttribute("aria-describedby", "terminal-keys");
      this.#screen.onData((text) => this.#type(new TextEncoder().encode(text)));
      this.#screen.onBinary((text) => this.#type(Uint8Array.from(text, (c) => c.charCodeAt(0))));
    }

    // run opens a terminal, or attaches to one, and shows it until it has ended.
    async run(number) {
      try {
        const size = this.#room();
        const answer = await this.#ask("open", number ? { terminal: number } : size);
        if (this.#gone) return;
        const [about] = answer.terminals;
        this.#attempt = answer.attempt;
        this.#before = about.shown;
        this.number = about.terminal;
        this.opening = false;
        this.says = "Terminal " + this.number + (watches ? ", to look at only." : ".");
        this.adopt(about);
        history.replaceState(null, "", "#terminal-" + this.number);
        this.#watcher.observe(frame);
        this.#screen.textarea.addEventListener("focus", () => this.fit());
        this.#mayType(0);
        refresh();
        describe();
        this.#send();
        await this.#show();
      } catch (refusal) {
        this.#over(refusal.message ? printable(refusal.message) : String(refusal));
      }
    }

    close() {
      this.#gone = true;
      this.#watcher.disconnect();
      this.#dark.removeEventListener("change", this.#recolor);
      this.#screen.dispose();
      this.#wake();
    }

    focus() { this.#screen.focus(); }

    // press types a key that the keyboards of phones lack.
    press(key) {
      const arrow = this.#screen.modes.applicationCursorKeysMode ? "\x1bO" : "\x1b[";
      this.#screen.input({ esc: "\x1b", tab: "\t", interrupt: "\x03", up: arrow + "A", down: arrow + "B" }[key]);
      this.focus();
    }

    // adopt takes over the size of the terminal, which any of its viewers may have given it.
    adopt({ rows, columns }) {
      if (this.#size && this.#size.rows === rows && this.#size.columns === columns) return;
      this.#size = { rows, columns };
      this.#screen.resize(columns, rows);
    }

    // fit gives the terminal the size that the page has room for.
    async fit() {
      const size = this.#room();
      if (watches || this.#gone || !this.number || !size || size.rows === this.#size.rows && size.columns === this.#size.columns) return;
      this.adopt(size);
      await this.#ask("resize", size).catch(() => {}); // it has ended, which is told elsewhere
    }

    #room() {
      const room = this.#fit.proposeDimensions();
      return room && { rows: Math.min(room.rows, 1000), columns: Math.min(room.cols, 1000) };
    }

    #ask(verb, more) {
      return attachment.ask({ verb, id: this.#id, ...(this.#attempt && { attempt: this.#attempt, terminal: this.number }), ...more });
    }

    async #show() {
      for (let from = 0; !this.#gone;) {
        const answer = await this.#ask("read", { from });
        if (this.#gone) return;
        const data = decode(answer.data);
        const begins = answer.from ?? 0;
        if (from > 0 && begins > from) {
          await this.#write(new TextEncoder().encode("\x18\r\n[" + (begins - from) + " bytes are missing here]\r\n"));
        }
        const old = Math.max(0, Math.min(data.length, this.#before - begins));
        await this.#write(data.subarray(0, old));
        this.#mayType(begins + old);
        await this.#write(data.subarray(old));
        from = begins + data.length;
        if (answer.exit) return this.#over("The program " + ending(answer.exit) + ".");
      }
    }

    #write(data) { return new Promise((done) => this.#screen.write(data, done)); }

    // mayType lets the keyboard in, once all is shown from before. Until then a question
    // of a program to its terminal is an old one, and is not answered again.
    #mayType(at) { if (at >= this.#before && !watches) this.#screen.options.disableStdin = false; }

    #over(words) {
      if (this.#gone) return;
      this.opening = false;
      this.#screen.options.disableStdin = true;
      this.#watcher.disconnect();
      this.says = (this.number ? "Terminal " + this.number + ": " : "") + words;
      describe();
      refresh();
    }

    #type(bytes) {
      if (this.#input.length + bytes.length > mostWaiting) return; // the program does not read
      const all = new Uint8Array(this.#input.length + bytes.length);
      all.set(this.#input);
      all.set(bytes, this.#input.length);
      this.#input = all;
      this.#wake();
    }

    // send types what waits. Each byte counts once, however often it is sent.
    async #send() {
      while (!this.#gone) {
        if (!this.#input.length) {
          await new Promise((done) => { this.#wake = done; });
          continue;
        }
        const data = this.#input.subarray(0, mostInput);
        const answer = await this.#ask("write", { from: this.#typed, data: encode(data) }).catch(() => null);
        if (!answer) return; // it has ended, which is told elsewhere
        const taken = Math.max(0, Math.min((answer.from ?? 0) - this.#typed, data.length));
        this.#typed += taken;
        this.#input = this.#input.subarray(taken);
        if (!taken) await pause(250); // the program does not read
      }
    }
  }

  function show(number) {
    if (number && shown && shown.number === number) return shown.focus();
    if (shown) shown.close();
    frame.hidden = false;
    shown = new View();
    describe();
    shown.run(number);
    shown.focus();
  }

  // The list: a button for each terminal.
  function put(terminals, why = "") {
    there = terminals;
    absent = why;
    for (const about of terminals) {
      let button = list.querySelector(`[data-terminal="${about.terminal}"]`);
      if (!button) {
        button = document.createElement("button");
        button.type = "button";
        button.dataset.terminal = about.terminal;
        button.addEventListener("click", () => show(about.terminal));
        list.append(button);
      }
      const words = about.terminal + ": " + cut(printable(about.args.join(" ")), 40) + (about.by ? ", by " + printable(about.by) : "") + (about.exit ? ", ended" : "");
      if (button.textContent !== words) button.textContent = words;
      const pressed = String(Boolean(shown && shown.number === about.terminal));
      if (button.getAttribute("aria-pressed") !== pressed) button.setAttribute("aria-pressed", pressed);
      if (pressed === "true") shown.adopt(about);
    }
    for (const button of [...list.children]) {
      if (!terminals.some((about) => String(about.terminal) === button.dataset.terminal)) button.remove();
    }
    list.hidden = !terminals.length;
    describe();
  }

  let asking = null;
  function refresh() {
    asking ??= attachment.ask({ verb: "list" }).then((answer) => put(answer.terminals ?? []), (refusal) => {
      put([], refusal.code === "not_ready" ? "No agent of the job runs now: trying again." : printable(refusal.message));
    }).finally(() => { asking = null; });
    return asking;
  }

  async function follow() {
    await refresh();
    const [, number] = location.hash.match(/^#terminal-(\d+)$/) ?? [];
    if (there.some((about) => String(about.terminal) === number)) show(Number(number));
    while (connection !== "over") {
      await pause(3000);
      if (!document.hidden) await refresh();
    }
  }

  state.textContent = "Connecting…";
  if (opener) {
    opener.hidden = false;
    opener.addEventListener("click", () => show(0));
  }
  for (const button of keys ? keys.children : []) button.addEventListener("click", () => shown.press(button.value));
  follow();
})();
