/**
 * Lets many works run side by side, or one alone. A work that waits to be alone goes first: later
 * works wait behind it, so that it always gets its turn.
 */
export class Gate {
  #inside = 0;
  #alone = false;
  #waiting: { alone: boolean; enter: () => void }[] = [];

  /**
   * Runs the work at the same time as other shared work, but never during work that runs alone.
   */
  shared<T>(work: () => Promise<T>): Promise<T> {
    return this.#run(false, work);
  }

  /** Runs the work while no other work is inside. */
  alone<T>(work: () => Promise<T>): Promise<T> {
    return this.#run(true, work);
  }

  async #run<T>(alone: boolean, work: () => Promise<T>): Promise<T> {
    await new Promise<void>((enter) => {
      this.#waiting.push({ alone, enter });
      this.#admit();
    });
    try {
      return await work();
    } finally {
      this.#inside--;
      this.#alone = false;
      this.#admit();
    }
  }

  #admit(): void {
    for (let next = this.#waiting[0]; next; next = this.#waiting[0]) {
      if (this.#alone || (next.alone && this.#inside > 0)) return;
      this.#waiting.shift();
      this.#inside++;
      this.#alone = next.alone;
      next.enter();
    }
  }
}
