// Requests about the terminals of a job, over a WebSocket, and over another one where that
// is lost: see docs/how-to/http.md#terminals.
"use strict";

const pause = (milliseconds) => new Promise((done) => setTimeout(done, milliseconds));

class Attachment {
  static #silence = 30000; // how long a server may say nothing while it is to answer; a read has an answer after 5 s

  static #finished = { code: "finished", message: "The job has ended, and the agent's terminals with it." };

  #address;
  #job;
  #tell;
  #state = "";
  #socket = null; // a promise of one, which fails where there will be none
  #number = 0;
  #waiting = new Map(); // what takes the answer to each request, by its number
  #silent = 0;

  // The address is that of the WebSocket, and job that of the job. Tell is called with what
  // has become of the connection: live; away, which passes; over; and with words about it.
  constructor(address, job, tell) {
    this.#address = new URL(address, location.href);
    this.#address.protocol = this.#address.protocol.replace("http", "ws");
    this.#job = job;
    this.#tell = tell;
  }

  // ask returns the answer to a request. It repeats one whose connection is lost, and one
  // that no worker has taken: none has an effect twice. It throws what a worker refuses
  // with, and why nothing can be asked any more.
  async ask(request) {
    for (;;) {
      const answer = await this.#call(await this.#connected(), request);
      if (!answer) continue;
      if (!answer.error) {
        this.#say("live", "");
        return answer;
      }
      switch (answer.error.code) {
        case "unavailable":
          this.#say("away", "No agent of the job runs now, or its worker does not answer: trying again.");
          await pause(1000);
          break;
        case "finished":
          throw this.#end(Attachment.#finished);
        default:
          this.#say("live", "");
          throw answer.error;
      }
    }
  }

  #say(state, words) {
    if (state + words === this.#state) return;
    this.#state = state + words;
    this.#tell(state, words);
  }

  // end fails this request and all that follow.
  #end(why) {
    this.#socket = Promise.reject(why);
    this.#socket.catch(() => {}); // it may be that no more follow
    this.#say("over", why.message);
    return why;
  }

  #connected() {
    this.#socket ??= this.#connect();
    return this.#socket;
  }

  async #connect() {
    for (let failed = 1; ; failed = Math.min(failed + 1, 10)) {
      const socket = await this.#open();
      if (socket) return socket;
      await this.#askWhy();
      await pause(300 * failed);
    }
  }

  // open returns a WebSocket, or null where there is none: a browser does not say why.
  #open() {
    return new Promise((done) => {
      const socket = new WebSocket(this.#address);
      socket.addEventListener("open", () => done(socket));
      socket.addEventListener("close", () => { done(null); this.#lose(socket); });
      socket.addEventListener("message", (event) => this.#hand(socket, event.data));
    });
  }

  // askWhy finds out whether another attempt may have a connection.
  async #askWhy() {
    const answer = await fetch(this.#job, { headers: { Accept: "application/json" } }).catch(() => null);
    const job = answer && answer.ok ? await answer.json().catch(() => null) : null;
    if (answer && [401, 403, 404].includes(answer.status)) {
      throw this.#end({ code: "refused", message: answer.status === 401 ? "This session has ended: log in again." : "This job is not, or no longer, for you." });
    }
    if (job && job.state === "finished") throw this.#end(Attachment.#finished);
    this.#say("away", job ? "The server takes no connection for terminals now: trying again." : "Reconnecting: the server does not answer. Nothing is lost.");
  }

  // call returns the answer to a request over a connection, or null where that is lost.
  #call(socket, request) {
    if (socket.readyState !== WebSocket.OPEN) {
      this.#lose(socket);
      return null;
    }
    return new Promise((done) => {
      this.#number++;
      this.#waiting.set(this.#number, { socket, done });
      socket.send(JSON.stringify({ number: this.#number, request }));
      this.#heard(socket);
    });
  }

  #hand(socket, data) {
    this.#heard(socket);
    const reply = JSON.parse(data);
    const call = this.#waiting.get(reply.number);
    this.#waiting.delete(reply.number);
    if (call) call.done(reply.answer);
  }

  // heard notes that the server lives, and waits for what it says next.
  #heard(socket) {
    clearTimeout(this.#silent);
    this.#silent = setTimeout(() => { if (this.#waiting.size) this.#lose(socket); }, Attachment.#silence);
  }

  // lose gives up a connection, and has its requests repeated.
  #lose(socket) {
    if (socket.lost) return;
    socket.lost = true;
    socket.close();
    const calls = [...this.#waiting].filter(([, call]) => call.socket === socket);
    if (calls.length) this.#say("away", "Reconnecting: the server does not answer. Nothing is lost.");
    this.#socket = null;
    for (const [number, call] of calls) {
      this.#waiting.delete(number);
      call.done(null);
    }
  }
}
