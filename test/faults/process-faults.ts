/** Our own processes die, stand still, crawl, are restarted, or think that it is later than it is. */
import { existsSync } from 'node:fs';
import { setTimeout as pause } from 'node:timers/promises';
import { until } from '../support/system.ts';
import { anyIngest, anyProcessor, anyWorker, type Fault, frozen, killed, nothing } from './fault.ts';

const HOUR_MS = 3_600_000;

export const WORKER_KILLED: Fault = {
  name: 'worker: kill -9',
  holdMs: 0,
  cuts: true,
  strike: async (scene) => {
    process.kill(anyWorker(scene), 'SIGKILL');
    return nothing;
  },
};

const workerStalled: Fault = {
  name: 'worker: SIGSTOP for good, until the primary kills it',
  holdMs: 0,
  cuts: true,
  strike: async (scene) => {
    const pid = anyWorker(scene);
    process.kill(pid, 'SIGSTOP');
    // Nobody but its primary kills it, or what supervises them both: a primary that dies first leaves it.
    await until(() => !existsSync(`/proc/${pid}`));
    return nothing;
  },
};

export const PRIMARY_FROZEN = frozen('primary: SIGSTOP 7 s', 7_000, (scene) => anyIngest(scene).pid);
export const PRIMARY_KILLED = killed('primary: kill -9', anyIngest);
export const PROCESSOR_KILLED = killed('processor: kill -9', anyProcessor);

export const ROLLING: Fault = {
  name: 'rolling SIGTERM of primaries and processors',
  holdMs: 0,
  strike: async ({ stand }) => {
    for (const part of stand.parts) {
      const status = await part.endOnce();
      if (status !== 0) throw new Error(`ended with ${status} on SIGTERM`);
      await pause(500);
      await stand.ready();
    }
    return nothing;
  },
};

/** Runs for a tenth of the time. */
const processorsSlow: Fault = {
  name: 'processors slowed to a tenth',
  holdMs: 6_000,
  strike: async ({ stand }) => {
    const pids = stand.processors.map(({ pid }) => pid);
    let running = true;
    const turns = (async () => {
      while (running) {
        for (const pid of pids) process.kill(pid, 'SIGSTOP');
        await pause(450);
        for (const pid of pids) process.kill(pid, 'SIGCONT');
        await pause(50);
      }
    })();
    return async () => {
      running = false;
      await turns;
    };
  },
};

const ingestClock = (name: string, ms: number): Fault => ({
  name,
  holdMs: 5_000,
  needs: 'clocks',
  strike: async ({ stand: { backing } }) => {
    backing.clock('ingest')?.step(ms);
    return async () => backing.clock('ingest')?.step(-ms);
  },
});

/** The one that is killed leaves frames that it has stored and not acknowledged: they come again to a clock that is far from theirs. */
const processorClock = (name: string, ms: number): Fault => ({
  name,
  holdMs: 2_000,
  needs: 'clocks',
  strike: async (scene) => {
    scene.stand.backing.clock('processor')?.step(ms);
    await pause(1_500);
    anyProcessor(scene).signal('SIGKILL');
    return nothing;
  },
});

/** It shares the store with the others, and leaves again as a deployment that is scaled down. */
const anotherProcessor: Fault = {
  name: 'another processor for 5 s',
  holdMs: 5_000,
  needs: 'store',
  strike: async ({ stand }) => {
    const another = await stand.anotherProcessor();
    return async () => {
      const status = await another.stop();
      const isYoung = status === null && another.log === ''; // on a busy machine it may not be up yet
      if (status !== 0 && !isYoung) throw new Error(`ended with ${status} on SIGTERM`);
    };
  },
};

export const PROCESS_FAULTS: readonly Fault[] = [
  WORKER_KILLED,
  frozen('worker: SIGSTOP 3 s', 3_000, anyWorker),
  workerStalled,
  PRIMARY_KILLED,
  PRIMARY_FROZEN,
  ROLLING,
  PROCESSOR_KILLED,
  frozen('processor: SIGSTOP 8 s, beyond the ack wait', 8_000, (scene) => anyProcessor(scene).pid),
  processorsSlow,
  anotherProcessor,
  ingestClock('clock of one primary and its workers: an hour forward for 5 s', HOUR_MS),
  ingestClock('clock of one primary and its workers: an hour back for 5 s', -HOUR_MS),
  processorClock('clock of the processors: an hour forward, then kill -9', HOUR_MS),
  processorClock('clock of the processors: an hour back, then kill -9', -HOUR_MS),
];
