// Follows the server: an EventSource, and a watchdog for what it does not notice (a silent server, an answer that is an error).

const SILENT_MS = 12_000; // The server says something every 5 s, whatever happens.
const HIDDEN_MS = 60_000; // A page that nobody sees gives its connection back; it catches up when it is looked at.
const WAITS_MS = [1_000, 2_000, 4_000, 8_000];

export class Stream {
  #source = null;
  #url = "";
  #first = true;
  #failures = 0;
  #watchdog = 0;
  #retry = 0;
  #hidden = 0;
  #handlers;

  /** `handlers`: frame(frame, first), trouble(text) with "" when all is well again. */
  constructor(handlers) {
    this.#handlers = handlers;
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
      this.#handlers.trouble("The server sent something that is no frame.");
      return;
    }
    this.#failures = 0;
    const first = this.#first;
    this.#first = false;
    this.#handlers.frame(frame, first);
  }

  #broke(source) {
    this.#handlers.trouble("The connection to the dashboard is lost. Trying again.");
    // CONNECTING: the browser tries again by itself. CLOSED: the answer was an error, and it never will.
    if (source.readyState === EventSource.CLOSED) {
      this.#later();
      void this.#ask();
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
      this.#handlers.trouble("The dashboard has gone silent. Trying again.");
      this.#reopen();
    }, SILENT_MS);
  }

  /** An EventSource does not tell why it was refused, so ask once more for what the answer says. */
  async #ask() {
    const gone = new AbortController();
    try {
      const answer = await fetch(this.#url, { signal: gone.signal, headers: { Accept: "text/event-stream" } });
      if (answer.ok) return;
      const { problem } = await answer.json();
      this.#handlers.trouble(answer.status === 401 ? `${problem} Load this page again to sign in.` : problem);
    } catch {
      // Not reachable, or no JSON: what was said stands.
    } finally {
      gone.abort();
    }
  }

  #seen() {
    clearTimeout(this.#hidden);
    if (!document.hidden) {
      if (this.#source === null && this.#url) this.#reopen();
      return;
    }
    this.#hidden = setTimeout(() => this.#close(), HIDDEN_MS);
  }
}
