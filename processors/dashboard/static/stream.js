// Follows the server: an EventSource, and a watchdog for what it does not notice (a silent server, an answer that is an error).

import { Others } from "./others.js";

const SILENT_MS = 12_000; // The server says something every 5 s, whatever happens.
const HIDDEN_MS = 3_000; // A page that nobody sees gives its connection back; it catches up when it is looked at.
const LOOKS_IN_MS = 5_000; // As often as the server says something: where many pages are open, the later ones take turns.
const WAITS_MS = [1_000, 2_000, 4_000, 8_000];
const BAD_ADDRESS = [400, 404, 414, 431];

export class Stream {
  #source = null;
  #url = "";
  #first = true;
  #failures = 0;
  #watchdog = 0;
  #retry = 0;
  #hidden = 0;
  #handlers;
  #others;

  /**
   * `handlers`: frame(frame, first); trouble(text, answered), `answered`: the dashboard said it; refused(text): what is
   * asked for cannot be; paused(whether); shared(n): it looks in now and then, since n other pages follow.
   */
  constructor(handlers) {
    this.#handlers = handlers;
    this.#others = new Others(() => this.#turn());
    document.addEventListener("visibilitychange", () => this.#seen());
    addEventListener("online", () => this.#source === null || this.#reopen());
  }

  /** Follows a run, from now on and in place of what was followed. */
  open(run, size) {
    const asked = new URLSearchParams({ size });
    if (run) asked.set("run", run);
    const url = `/api/stream?${asked}`;
    if (url === this.#url) return;
    this.#url = url;
    this.#failures = 0;
    this.#reopen();
  }

  #reopen() {
    this.#close();
    if (document.hidden) {
      this.#pause();
      return;
    }
    this.#others.follow(true);
    const source = new EventSource(this.#url);
    this.#source = source;
    this.#first = true;
    source.addEventListener("message", (event) => source === this.#source && this.#take(event.data));
    source.addEventListener("error", () => source === this.#source && this.#broke(source));
    this.#watch();
  }

  #close() {
    this.#source?.close();
    this.#source = null;
    clearTimeout(this.#watchdog);
    clearTimeout(this.#retry);
  }

  #take(data) {
    this.#watch();
    let frame;
    try {
      frame = JSON.parse(data);
    } catch {
      this.#handlers.trouble("The server sent something that is no frame.", true);
      return;
    }
    this.#failures = 0;
    const first = this.#first;
    this.#first = false;
    this.#turn();
    this.#handlers.frame(frame, first);
  }

  /** Who came late gives the connection back once it was told, and asks again. */
  #turn() {
    const crowded = this.#others.crowded;
    this.#handlers.shared(crowded ? this.#others.count : 0);
    if (!crowded || this.#source === null || this.#first) return;
    this.#close();
    this.#retry = setTimeout(() => this.#reopen(), LOOKS_IN_MS);
  }

  #broke(source) {
    this.#handlers.trouble("The connection to the dashboard is lost. Trying again.", false);
    // CONNECTING: the browser tries again by itself. CLOSED: the answer was an error, and it never will.
    if (source.readyState === EventSource.CLOSED) {
      this.#later();
      void this.#ask(this.#url);
    }
  }

  #later() {
    clearTimeout(this.#retry);
    this.#retry = setTimeout(() => this.#reopen(), WAITS_MS[Math.min(this.#failures, WAITS_MS.length - 1)]);
    this.#failures += 1;
  }

  #watch() {
    clearTimeout(this.#watchdog);
    this.#watchdog = setTimeout(() => {
      this.#handlers.trouble("The dashboard has gone silent. Trying again.", false);
      this.#reopen();
    }, SILENT_MS);
  }

  /** An EventSource does not tell why it was refused, so ask once more for what the answer says. */
  async #ask(url) {
    const gone = new AbortController();
    try {
      const answer = await fetch(url, { signal: gone.signal, headers: { Accept: "text/event-stream" } });
      if (answer.ok || url !== this.#url) return;
      const problem = await problemOf(answer);
      if (BAD_ADDRESS.includes(answer.status) && url.includes("run=")) {
        this.#close();
        this.#handlers.refused(problem);
      } else {
        this.#handlers.trouble(answer.status === 401 ? `${problem} Load this page again to sign in.` : problem, true);
      }
    } catch {
      // Not reachable: what was said stands.
    } finally {
      gone.abort();
    }
  }

  #pause() {
    this.#close();
    this.#others.follow(false);
    this.#handlers.paused(true);
  }

  #seen() {
    clearTimeout(this.#hidden);
    if (document.hidden) {
      this.#hidden = setTimeout(() => this.#pause(), HIDDEN_MS);
      return;
    }
    this.#handlers.paused(false);
    if (this.#source === null && this.#url) this.#reopen();
  }
}

async function problemOf(answer) {
  try {
    return (await answer.json()).problem;
  } catch {
    return `It answers ${answer.status} ${answer.statusText}.`; // Whoever stands between may speak no JSON.
  }
}
