/** A broker that does not know our credentials for a while. */
import { afterEach, describe, expect, it } from 'vitest';
import { errorEvent, eventId } from '../support/envelopes.ts';
import { lastingPort, natsServerInPlaceOf } from '../support/servers.ts';
import { System, until } from '../support/system.ts';

/** Of three clients: after two each the client library gives up by default. */
const REFUSALS = 15;

let system: System;
afterEach(() => system.stop());

const checks = async (port: number): Promise<Record<string, string>> => {
  const answer = await fetch(`http://127.0.0.1:${port}/readyz`);
  return ((await answer.json()) as { checks: Record<string, string> }).checks;
};

describe('a broker with other credentials on the same port', () => {
  it('is shown as away, and ingest and processor go on without a restart when the right one is back', async () => {
    system = await System.start();
    const project = await system.createProject();
    const { ingest, processor } = system;
    if (!processor) throw new Error('no processor');
    await system.nats.stop();
    const monitor = await lastingPort();
    const auth = 'authorization { user: other, password: one }';
    const stranger = await natsServerInPlaceOf(system.nats, auth, `http: 127.0.0.1:${monitor}`);
    await until(async () => {
      const figures = await (await fetch(`http://127.0.0.1:${monitor}/varz`)).json();
      return (figures as { total_connections: number }).total_connections >= REFUSALS;
    });
    for (const port of [system.adminPort, system.processorPort])
      await until(async () => (await checks(port)).nats === 'away');
    // Until the absence is no short one any more, a first event waits for its month's checkpoint, and may be 500.
    await until(async () => (await system.send(project, errorEvent(eventId()))).status === 503);
    await stranger.close();
    await system.restartNats();
    const id = eventId();
    await until(async () => (await system.send(project, errorEvent(id))).status === 200);
    expect(await system.storedOf(id)).toHaveLength(1);
    const added = await system.createProject();
    expect((await system.send(added, errorEvent(eventId()))).status).toBe(200);
    expect(await checks(system.adminPort)).toMatchObject({ nats: 'ok' });
    expect(await checks(system.processorPort)).toMatchObject({ nats: 'ok' });
    expect([ingest.child.exitCode, processor.child.exitCode]).toEqual([null, null]);
  });
});
