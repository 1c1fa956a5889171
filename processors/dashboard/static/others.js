// Knows of this browser's other pages of the dashboard: all of them together have six connections to it.

const MOST = 4; // Two are left for pages that are opened, and for what all of them ask.
const SAYS_MS = 5_000;
const FORGETS_MS = 15_000; // Who said nothing for so long is gone without a word.

export class Others {
  #key = `${Date.now().toString(36)}.${Math.random().toString(36).slice(2)}`; // The older page goes first.
  #channel = "BroadcastChannel" in window ? new BroadcastChannel("rollbook-dashboard") : null;
  #heard = new Map();
  #follows = false;
  #timer = 0;
  #changed;

  /** `changed` is called where other pages begin or end to follow. */
  constructor(changed) {
    this.#changed = changed;
    this.#channel?.addEventListener("message", ({ data }) => this.#hear(data));
    addEventListener("pagehide", () => this.follow(false));
  }

  /** How many follow beside this page. */
  get count() {
    const since = performance.now() - FORGETS_MS;
    return [...this.#heard.values()].filter((at) => at > since).length;
  }

  /** Whether so many were there before that this page may only look in. */
  get crowded() {
    const since = performance.now() - FORGETS_MS;
    return [...this.#heard].filter(([key, at]) => key < this.#key && at > since).length >= MOST;
  }

  /** Says whether this page follows from now on. */
  follow(follows) {
    if (follows === this.#follows) return;
    this.#follows = follows;
    clearInterval(this.#timer);
    if (follows) this.#timer = setInterval(() => this.#say(), SAYS_MS);
    this.#say();
  }

  #say() {
    this.#channel?.postMessage({ key: this.#key, follows: this.#follows });
  }

  #hear({ key, follows }) {
    const before = this.#heard.has(key);
    if (follows) this.#heard.set(key, performance.now());
    else this.#heard.delete(key);
    if (before === follows) return;
    if (follows && this.#follows) this.#say(); // Who is new knows of nobody.
    this.#changed();
  }
}
