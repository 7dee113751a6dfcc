/** SLUICE_STORE_TYPES: which further items are stored, and what a client is told of the others. */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { runCommand } from '../commands/run-command.ts';
import { eventId } from '../support/envelopes.ts';
import { type Project, System } from '../support/system.ts';

let system: System;
let project: Project;

beforeAll(async () => {
  system = await System.start({ env: { SLUICE_STORE_TYPES: 'attachment,profile_chunk,session' } });
  project = await system.createProject({ quota: 1_000 });
});
afterAll(async () => {
  expect(system.ingest.errors).toEqual([]);
  await system.stop();
});

const hintOf = (response: Response): string | null => response.headers.get('x-sentry-rate-limits');
const skipped = (type: string): Promise<number> =>
  system.metric('sluice_items_skipped_total', `{type="${type}"}`);

describe('of further item types', () => {
  it('those that are named are stored as they are, wherever they stand', async () => {
    const [beside, alone] = [eventId(), eventId()];
    const binary = Buffer.from([0, 1, 10, 0xff]);
    const body = Buffer.concat([
      Buffer.from(`{"event_id":"${beside}"}\n{"type":"event"}\n{"message":"x"}\n{"type":"feedback"}\n{}\n`),
      Buffer.from('{"type":"attachment","length":4,"filename":"a.bin"}\n'),
      binary,
    ]);
    expect((await system.send(project, body)).status).toBe(200);
    const [event, attachment] = await system.storedOf(beside, 2);
    expect(event).toMatchObject({ type: 'event', item_index: 0 });
    expect(attachment).toMatchObject({
      type: 'attachment',
      item_index: 2,
      item_header: { type: 'attachment', length: 4, filename: 'a.bin' },
      payload_base64: binary.toString('base64'),
    });
    const session = await system.send(project, `{"event_id":"${alone}"}\n{"type":"session"}\n{"sid":"s"}`);
    expect(session.headers.get('x-service-usage')).toMatch(/^\d+\/1000$/);
    const [record] = await system.storedOf(alone);
    expect(record).toMatchObject({ type: 'session', payload: { sid: 's' } });
    expect(await system.metric('sluice_publishes_total', '{stream="SLUICE_EXTRAS"}')).toBe(1);
  });

  it('the others are counted, and hinted on every 200 that skipped one', async () => {
    const before = [await skipped('client_report'), await skipped('other')];
    const accepted = await system.send(
      project,
      '{}\n{"type":"event"}\n{}\n{"type":"client_report"}\n{}\n{"type":"made_up"}\n{}\n{"type":"client_report"}\n{}',
    );
    expect([accepted.status, accepted.headers.get('x-service-usage')]).toEqual([200, expect.any(String)]);
    expect(hintOf(accepted)).toBe('86400:internal:organization:unsupported');
    const empty = await system.send(project, '{}\n{"type":"client_report"}\n{}');
    expect([hintOf(empty), empty.headers.get('x-service-usage')]).toEqual([hintOf(accepted), null]);
    await expect
      .poll(async () => [await skipped('client_report'), await skipped('other')])
      .toEqual([(before[0] ?? 0) + 3, (before[1] ?? 0) + 1]);
  });

  it('no hint silences a type that is stored', async () => {
    for (const type of ['profile', 'sessions', 'made_up'])
      expect(
        hintOf(await system.send(project, `{}\n{"type":"event"}\n{}\n{"type":"${type}"}\n{}`)),
      ).toBeNull();
    expect(hintOf(await system.send(project, '{}\n{"type":"event"}\n{}'))).toBeNull();
  });

  it('doctor looks at their stream too', async () => {
    const { out } = await runCommand(['doctor'], system.env);
    expect(out).toContain('SLUICE_EXTRAS');
  });
});
