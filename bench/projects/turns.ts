/** How long turns of this process's event loop take. */
import { readFileSync } from 'node:fs';

const LOOK_MS = 2;

/** CPU time of the main thread in ms. The rest of a long turn is time in which other programs had the core. */
function mainThreadMs(): number {
  const [ns] = readFileSync(`/proc/self/task/${process.pid}/schedstat`, 'utf8').split(' ');
  return Number(ns) / 1e6;
}

export type Turns = { wallMs: number; cpuMs: number };

export class TurnMeter {
  #longest: Turns = { wallMs: 0, cpuMs: 0 };
  #wall = performance.now();
  #cpu = mainThreadMs();
  readonly #timer = setInterval(() => this.#look(), LOOK_MS);

  #look(): void {
    const [wall, cpu] = [performance.now(), mainThreadMs()];
    this.#longest = {
      wallMs: Math.max(this.#longest.wallMs, wall - this.#wall - LOOK_MS),
      cpuMs: Math.max(this.#longest.cpuMs, cpu - this.#cpu),
    };
    [this.#wall, this.#cpu] = [wall, cpu];
  }

  /** The longest since the last call. */
  take(): Turns {
    this.#look();
    const longest = this.#longest;
    this.#longest = { wallMs: 0, cpuMs: 0 };
    return longest;
  }

  stop(): void {
    clearInterval(this.#timer);
  }
}
