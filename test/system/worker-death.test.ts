/** A worker dies beside one that serves: its open requests go with it, and nobody else notices. */
import { request } from 'node:http';
import { setTimeout as pause } from 'node:timers/promises';
import { expect, it } from 'vitest';
import { childrenOf } from '../../bench/processes.ts';
import { errorEvent, eventId } from '../support/envelopes.ts';
import { System, until } from '../support/system.ts';

const CLIENTS = 8;
/** A worker has loaded its registry by then. */
const STARTED_MS = 2_000;

/** On a connection of its own. @returns the status, or how the connection ended */
function post(url: string): Promise<number | string> {
  return new Promise((resolve) => {
    const req = request(url, { agent: false, method: 'POST' }, (res) => {
      res.resume();
      res.once('end', () => resolve(res.statusCode ?? 0));
      res.once('error', () => resolve('cut'));
    });
    req.once('error', (error: NodeJS.ErrnoException) => resolve(error.code ?? error.message));
    req.end(errorEvent(eventId()));
  });
}

it.runIf(process.platform === 'linux')(
  'no request comes to its successor before that can serve',
  async () => {
    const system = await System.start({ workers: 2, processor: false });
    const url = system.endpoint(await system.createProject());
    const workers = (): number[] => childrenOf(system.ingest.child.pid ?? 0);
    const told: (number | string)[] = [];
    let stopped = false;
    const client = async (): Promise<void> => {
      while (!stopped) told.push(await post(url));
    };
    const clients = Array.from({ length: CLIENTS }, client);
    await until(() => told.length > 100);
    const [first = 0, second = 0] = workers();
    expect(Math.min(first, second)).toBeGreaterThan(0);
    process.kill(first, 'SIGKILL');
    await until(() => workers().length === 2 && !workers().includes(first));
    await pause(STARTED_MS);
    stopped = true;
    await Promise.all(clients);
    expect(told).not.toContain(503);
    const unanswered = told.filter((status) => typeof status === 'string');
    expect(unanswered.length, unanswered.join()).toBeLessThanOrEqual(CLIENTS);
    // The successor does serve: nobody else can, for some hundred milliseconds.
    process.kill(second, 'SIGKILL');
    await until(() => !workers().includes(second));
    expect(await post(url)).toBe(200);
    expect(await system.ingest.stop()).toBe(0);
    await system.stop();
  },
);
