/** docs/operations.md, "Setup ran before the restore": a NATS that lost its disk, and came back empty, is set up and then restored. */
import { mkdirSync, rmSync } from 'node:fs';
import { createInbox, type NatsConnection } from '@nats-io/transport-node';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { type Ran, runCommand } from '../commands/run-command.ts';
import { operator } from '../ingest/limit/redis-cluster.ts';
import { errorEvent, eventId } from '../support/envelopes.ts';
import { type Project, System, until } from '../support/system.ts';

/** Those of the backup, in the document's order: the projects last, since with them requests count again. */
const BACKED_UP = [
  'KV_sluice_counters',
  'SLUICE_AUDIT',
  'SLUICE_DEAD_LETTERS',
  'KV_sluice_heartbeats',
  'KV_sluice_projects',
];

type Backup = { config: unknown; state: unknown; pieces: Uint8Array[] };

const asked = async (
  connection: NatsConnection,
  subject: string,
  body: object,
): Promise<Record<string, unknown>> =>
  (await connection.request(subject, JSON.stringify(body), { timeout: 10_000 })).json();

/** As `nats stream backup` does it. */
async function backUp(connection: NatsConnection, stream: string): Promise<Backup> {
  const inbox = createInbox();
  const coming = connection.subscribe(inbox);
  const { config, state } = await asked(connection, `$JS.API.STREAM.SNAPSHOT.${stream}`, {
    deliver_subject: inbox,
  });
  const pieces: Uint8Array[] = [];
  for await (const piece of coming) {
    if (piece.data.length === 0) break;
    pieces.push(piece.data);
    piece.respond();
  }
  return { config, state, pieces };
}

/** As `nats stream restore` does it. @returns the broker's error, if it refuses */
async function restore(
  connection: NatsConnection,
  stream: string,
  backup: Backup,
): Promise<string | undefined> {
  const { config, state, pieces } = backup;
  const answer = await asked(connection, `$JS.API.STREAM.RESTORE.${stream}`, { config, state });
  if (answer.error) return (answer.error as { description: string }).description;
  for (const piece of [...pieces, new Uint8Array()])
    await connection.request(`${answer.deliver_subject}`, piece, { timeout: 10_000 });
  return undefined;
}

describe('a NATS that lost its disk', () => {
  let system: System;
  let project: Project;
  let token: string;
  beforeAll(async () => {
    system = await System.start();
    project = await system.createProject();
    token = await system.createHeartbeat();
  });
  afterAll(() => system?.stop());

  const send = async (): Promise<number> => (await system.send(project, errorEvent(eventId()))).status;
  const ping = async (): Promise<number> =>
    (await fetch(`${system.url}/heartbeat/${token}`, { method: 'POST' })).status;
  const manager = () => system.link.manager();
  const setup = (...flags: string[]): Promise<Ran> => runCommand(['setup', ...flags], system.env);
  const json = async (...args: string[]): Promise<unknown> => {
    const { status, out, err } = await runCommand([...args, '--json'], system.env);
    expect(status, err).toBe(0);
    return JSON.parse(out);
  };

  it('is restored after setup has made empty streams, and refuses nobody from then on', async () => {
    for (let n = 0; n < 20; n++) expect(await send()).toBe(200);
    const bad = `${JSON.stringify({ event_id: eventId() })}\n{"type":"event"}\n{not json\n`;
    expect((await system.send(project, bad)).status).toBe(200);
    const letters = () => json('dead-letters', 'list') as Promise<object[]>;
    await until(async () => (await letters()).length === 1);
    const figures = async (): Promise<number> =>
      ((await json('usage', project.id)) as { current: number }).current;
    // The checkpoint is there.
    await until(async () => {
      const kept = await (await manager()).streams.getMessage('KV_sluice_counters', {
        last_by_subj: '$KV.sluice_counters.checkpoints.>',
      });
      return kept?.json<{ counts: number[] }>().counts.includes(21) === true;
    });
    const history = await json('project', 'history', project.id);
    const backups = new Map<string, Backup>();
    for (const stream of BACKED_UP) backups.set(stream, await backUp(system.link.connection, stream));
    const before = await letters();

    await system.processor?.stop();
    await system.nats.stop();
    rmSync(system.nats.dir, { recursive: true });
    mkdirSync(system.nats.dir);
    await operator(system.redis.port, 'FLUSHALL');
    await system.restartNats();
    await until(() => system.link.connected);
    // On an empty server setup cannot know that there were projects.
    expect(await setup()).toMatchObject({ status: 0 });
    system.processor = system.startProcessor();
    // A ping is not counted.
    await until(async () => (await ping().catch(() => 0)) === 404);
    await until(async () => (await send().catch(() => 0)) === 401);

    // What the document says: the processor away, then one stream after the other.
    await system.processor.stop();
    const { connection } = system.link;
    for (const [stream, backup] of backups) {
      expect(await restore(connection, stream, backup)).toMatch(/already/);
      await (await manager()).streams.delete(stream);
      if (stream === 'KV_sluice_projects')
        expect(await setup()).toMatchObject({
          status: 1,
          err: expect.stringContaining('sluice_projects is missing'),
        });
      expect(await restore(connection, stream, backup)).toBeUndefined();
    }
    expect((await setup('--json')).out).toContain('"changes": []');
    system.processor = system.startProcessor();

    await until(async () => (await send()) === 200);
    await until(async () => (await ping()) === 200);
    expect(await figures()).toBe(22);
    expect(await json('project', 'history', project.id)).toEqual(history);
    expect(await letters()).toEqual(before);
    const events = () => system.stored().filter(({ type }) => type === 'event').length;
    await until(() => events() >= 21);
    expect(events()).toBe(21);
  });
});
