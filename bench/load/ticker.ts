/**
 * Calls back every fraction of a millisecond without spinning: Node's timers tick in whole milliseconds, which is more than the
 * latency to be measured, and a loop that spins takes a core from the system under test. A thread sleeps on a futex instead.
 */
import { Worker } from 'node:worker_threads';

const SLEEPER = `
const { parentPort, workerData } = require('node:worker_threads');
const shared = new Int32Array(workerData.shared);
while (Atomics.load(shared, 0) === 0) {
  Atomics.wait(shared, 0, 0, workerData.everyMs);
  // One message at a time: a busy receiver is not buried.
  if (Atomics.compareExchange(shared, 1, 0, 1) === 0) parentPort.postMessage(0);
}`;

export class Ticker {
  readonly #shared = new Int32Array(new SharedArrayBuffer(8));

  constructor(everyMs: number, onTick: () => void) {
    const worker = new Worker(SLEEPER, { eval: true, workerData: { shared: this.#shared.buffer, everyMs } });
    worker.on('message', () => {
      Atomics.store(this.#shared, 1, 0);
      onTick();
    });
  }

  stop(): void {
    Atomics.store(this.#shared, 0, 1);
    Atomics.notify(this.#shared, 0);
  }
}
