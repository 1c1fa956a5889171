// The way to a trajectory's history and back: who comes back finds the place, and the focus, that was left.

export class Way {
  #y = 0;
  #focused = null;

  leave() {
    this.#y = scrollY;
    this.#focused = document.activeElement;
  }

  /** Focus goes with the reader: a screen reader begins there. */
  arrive(title) {
    scrollTo(0, 0);
    title?.focus({ preventScroll: true });
  }

  /** `otherwise` has the focus where what had it is gone. */
  back(otherwise) {
    scrollTo(0, this.#y);
    (this.#focused?.isConnected ? this.#focused : otherwise).focus({ preventScroll: true });
  }
}
