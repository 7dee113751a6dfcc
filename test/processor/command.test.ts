import { type ChildProcess, fork } from 'node:child_process';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { envelope, eventually, Harness, hexId, item } from './harness.ts';

const CLI = new URL('../../dist/cli.js', import.meta.url);
let harness: Harness;
beforeAll(async () => {
  harness = await Harness.start();
});
afterAll(() => harness.close());
const children: ChildProcess[] = [];
afterEach(() => {
  for (const child of children.splice(0)) child.kill('SIGKILL');
});

/** `sluice processor` under these settings. */
function run(settings: Record<string, string>) {
  const child = fork(CLI, ['processor'], {
    env: { ...process.env, ...settings },
    stdio: ['ignore', 'ignore', 'pipe', 'ipc'],
  });
  children.push(child);
  const state = { child, said: '', exited: Promise.resolve<number | null>(null) };
  child.stderr?.on('data', (data: Buffer) => {
    state.said += data.toString();
  });
  state.exited = new Promise((resolve) => child.once('close', (code) => resolve(code)));
  return state;
}

const ready = async (): Promise<boolean> => {
  const url = `http://127.0.0.1:${harness.adminPort}/readyz`;
  return fetch(url).then(
    (res) => res.ok,
    () => false,
  );
};

describe('sluice processor', () => {
  it.each(['SIGTERM', 'SIGINT'] as const)(
    'leaves with 0 on %s, after it stored what it had',
    async (signal) => {
      const { child, exited } = run(harness.environment());
      await eventually(ready);
      const eventId = hexId(Date.now());
      await harness.publish([envelope([item('event', '{}')], { eventId })]);
      await eventually(() => harness.stored().some((record) => record.event_id === eventId));
      child.kill(signal);
      expect(await exited).toBe(0);
      await harness.drained();
    },
  );

  it('leaves with 2 when no sink is named', async () => {
    const { SLUICE_SINK: _, ...settings } = harness.environment({ SLUICE_STREAM_SHARDS: '0' });
    const state = run(settings);
    expect(await state.exited).toBe(2);
    expect(state.said).toContain('SLUICE_SINK is required');
    expect(state.said).toContain('SLUICE_STREAM_SHARDS must be');
  });

  it('leaves with 1 when another processor has the folder', async () => {
    const first = run(harness.environment());
    await eventually(ready);
    const state = run(harness.environment());
    expect(await state.exited).toBe(1);
    expect(state.said).toContain('another processor writes to');
    first.child.kill('SIGTERM');
    expect(await first.exited).toBe(0);
  });

  it('waits for a broker that is not up yet, answers health meanwhile, and leaves when told to', async () => {
    const state = run(harness.environment({ SLUICE_NATS_URL: 'nats://127.0.0.1:1' }));
    const url = `http://127.0.0.1:${harness.adminPort}`;
    await eventually(() =>
      fetch(`${url}/healthz`).then(
        (res) => res.ok,
        () => false,
      ),
    );
    const page = await fetch(`${url}/readyz`);
    expect([page.status, await page.json()]).toEqual([
      503,
      { status: 'not ready', checks: { nats: 'away', streams: 'ok', sink: 'ok', dead_letters: 'ok' } },
    ]);
    state.child.kill('SIGTERM');
    expect(await state.exited).toBe(0);
  });
});
