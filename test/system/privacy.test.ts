/** What unmodified SDKs report of private data, through the whole system, with and without the project's wish to have it removed. */
import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import { gzipSync } from 'node:zlib';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { rawRequest } from '../support/raw-http.ts';
import { type NewProject, type Project, type StoredRecord, System, until } from '../support/system.ts';

const CLIENT = new URL('../support/clients/private.mjs', import.meta.url).pathname;
/** Those of the Node SDK: an event, a container of spans or a transaction, and logs. */
const ITEMS = 3;
let system: System;
beforeAll(async () => {
  system = await System.start({
    env: { SLUICE_TRUSTED_PROXIES: '127.0.0.1,10.0.0.0/8', SLUICE_STORE_TYPES: 'attachment' },
  });
});
afterAll(() => system?.stop());

async function storedOf(project: Project, count: number): Promise<StoredRecord[]> {
  const records = (): StoredRecord[] => system.stored().filter(({ project_id }) => project_id === project.id);
  await until(() => records().length >= count);
  return records();
}

async function report(wanted: Partial<NewProject>, env: Record<string, string> = {}) {
  const project = await system.createProject(wanted);
  const { stdout } = await promisify(execFile)(process.execPath, [CLIENT], {
    env: { ...process.env, DSN: system.dsn(project), ...env },
  });
  const sent = JSON.parse(stdout) as { flushed: boolean; private: string[] };
  expect(sent.flushed).toBe(true);
  const records = await storedOf(project, ITEMS);
  const texts = records.map((record) => JSON.stringify(record));
  const found = sent.private.filter((text) => texts.some((one) => one.includes(text)));
  return { records, found, all: sent.private };
}

const payloadOf = (records: readonly StoredRecord[], type: string): Record<string, unknown> =>
  records.find((record) => record.type === type)?.payload ?? {};

describe('the Node SDK', () => {
  it('has its private data stored where the project says nothing', async () => {
    const { found, all } = await report({});
    expect(found).toEqual(all);
  });

  it.each([
    ['spans', 'stream'],
    ['transactions', 'static'],
  ])(
    'has none of it stored where the project wants it removed, traces sent as %s',
    async (_what, lifecycle) => {
      const { records, found } = await report(
        { scrub: ['emails', 'cards', 'ips', 'user-ip', 'keys'] },
        { LIFECYCLE: lifecycle },
      );
      expect(found).toEqual([]);
      const event = payloadOf(records, 'event');
      expect(event).toMatchObject({
        user: { id: 'u-77', email: '[Filtered]', ip_address: null },
        exception: { values: [{ value: 'payment of [Filtered] from [Filtered] with [Filtered] failed' }] },
        contexts: { login: { password: '[Filtered]', attempts: 3 } },
        tags: { api_key: '[Filtered]' },
        request: {
          headers: { cookie: '[Filtered]', authorization: '[Filtered]', accept: 'text/html' },
          cookies: '[Filtered]',
          data: '{"user":"[Filtered]","password":"[Filtered]","cut":"...',
          query_string: 'access_token=[Filtered]&page=2',
        },
      });
      expect((event.extra as { form: string }).form).toBe(
        JSON.stringify({ password: '[Filtered]', note: 'card [Filtered]' }),
      );
      expect(JSON.stringify(payloadOf(records, 'log'))).toContain('"kept":{"value":"yes"');
      const trace = JSON.stringify(payloadOf(records, lifecycle === 'static' ? 'transaction' : 'span'));
      expect(trace).toContain(`SELECT * FROM users WHERE email = '[Filtered]'`);
    },
  );

  it('gets the address of its client filled in where it asks for it', async () => {
    const env = { USER_IP: '{{auto}}', FORWARDED: '2001:db8::7' };
    const { records } = await report({ fillIp: true }, env);
    expect(payloadOf(records, 'event')).toMatchObject({ user: { ip_address: '2001:db8::7' } });
    const { records: unfilled } = await report({}, env);
    expect(payloadOf(unfilled, 'event')).toMatchObject({ user: { ip_address: '{{auto}}' } });
  });
});

describe('an envelope', () => {
  const auto = '{}\n{"type":"event"}\n{"user":{"ip_address":"{{auto}}"}}';

  it('has the address that the trusted proxies name', async () => {
    const project = await system.createProject({ fillIp: true });
    const headers = { 'x-forwarded-for': '192.0.2.66, 198.51.100.7, 10.1.2.3' };
    expect((await system.send(project, auto, headers)).status).toBe(200);
    const [record] = await storedOf(project, 1);
    expect(record?.payload).toEqual({ user: { ip_address: '198.51.100.7' } });
  });

  it('has that address also where a proxy adds a line of its own behind that of the client', async () => {
    const project = await system.createProject({ fillIp: true });
    const path = `/api/${project.id}/envelope/?compat_key=${project.key}`;
    const lines = ['Host: sluice', 'X-Forwarded-For: 203.0.113.9', 'X-Forwarded-For: 198.51.100.7'];
    const head = [`POST ${path} HTTP/1.1`, ...lines, `Content-Length: ${auto.length}`].join('\r\n');
    expect((await rawRequest(system.port, `${head}\r\n\r\n${auto}`)).status).toBe(200);
    const [record] = await storedOf(project, 1);
    expect(record?.payload).toEqual({ user: { ip_address: '198.51.100.7' } });
  });

  it('has address and agent in the containers whose SDK asks for them', async () => {
    const settings = '"ingest_settings":{"infer_ip":"auto","infer_user_agent":"auto"}';
    const log = `{"version":2,${settings},"items":[{"body":"a","attributes":{"x":{"value":1,"type":"integer"}}}]}`;
    const span = '{"version":2,"items":[{"span_id":"1"}]}';
    const body = `{}\n{"type":"log"}\n${log}\n{"type":"span"}\n${span}`;
    const headers = { 'x-forwarded-for': '198.51.100.7', 'user-agent': 'Mozilla/5.0 "x"' };
    for (const fillIp of [true, false]) {
      const project = await system.createProject({ fillIp });
      expect((await system.send(project, body, headers)).status).toBe(200);
      const records = await storedOf(project, 2);
      const filled = {
        'client.address': { value: '198.51.100.7', type: 'string' },
        'user_agent.original': { value: 'Mozilla/5.0 "x"', type: 'string' },
      };
      const attributes = { ...(fillIp && filled), x: { value: 1, type: 'integer' } };
      expect(payloadOf(records, 'log').items).toEqual([{ body: 'a', attributes }]);
      expect(payloadOf(records, 'span')).toEqual(JSON.parse(span));
    }
  });

  it('with a replay and a large event has nothing private stored either', async () => {
    const project = await system.createProject({ scrub: ['emails', 'keys'] });
    const recording = gzipSync(
      JSON.stringify([{ type: 5, data: { payload: { message: 'bob@x.io', token: 'tok_1' } } }]),
    );
    const large = JSON.stringify({
      extra: { text: `${'lorem '.repeat(200_000)}bob@x.io`, password: 'tok_1' },
    });
    const head = Buffer.from('{"segment_id":0}\n');
    const body = Buffer.concat([
      Buffer.from(`{}\n{"type":"event","length":${large.length}}\n${large}\n`),
      Buffer.from(`{"type":"replay_recording","length":${head.length + recording.length}}\n`),
      head,
      recording,
    ]);
    expect((await system.send(project, body)).status).toBe(200);
    const records = await storedOf(project, 2);
    const text = JSON.stringify(records);
    expect(text).not.toMatch(/bob@x\.io|tok_1/);
    expect(payloadOf(records, 'replay_recording')).toEqual({
      segment_id: 0,
      recording: [{ type: 5, data: { payload: { message: '[Filtered]', token: '[Filtered]' } } }],
    });
    expect(payloadOf(records, 'event').extra).toMatchObject({ password: '[Filtered]' });
  });

  it('that cannot be read is a dead letter with its bytes, and never stored', async () => {
    const project = await system.createProject({ scrub: ['emails'] });
    const letters = async (): Promise<number> =>
      (await (await system.link.manager()).streams.info('SLUICE_DEAD_LETTERS')).state.messages;
    const before = await letters();
    const items = [
      '{"type":"event"}\n{"message":"bob@x.io"',
      '{"type":"attachment"}\nlog of bob@x.io',
      '{"type":"attachment"}\n{"of":"bob@x.io"}',
    ];
    expect((await system.send(project, `{}\n${items.join('\n')}`)).status).toBe(200);
    const scrubbed = Buffer.from('{"of":"[Filtered]"}').toString('base64');
    expect(await storedOf(project, 1)).toMatchObject([{ type: 'attachment', payload_base64: scrubbed }]);
    await until(async () => (await letters()) === before + 2);
    const manager = await system.link.manager();
    const { state } = await manager.streams.info('SLUICE_DEAD_LETTERS');
    const last = await manager.streams.getMessage('SLUICE_DEAD_LETTERS', { seq: state.last_seq });
    expect(last?.header.get('Sluice-Reason')).toBe('payload is not valid JSON: it cannot be scrubbed');
    expect(Buffer.from(last?.data ?? []).toString()).toContain('log of bob@x.io');
  });

  it('is stored by the settings that held when it was accepted', async () => {
    const project = await system.createProject({ scrub: ['emails'] });
    await system.processor?.stop();
    const body = (id: string): string =>
      `{"event_id":"${id.repeat(32)}"}\n{"type":"event"}\n{"message":"bob@x.io"}`;
    await system.send(project, body('a'));
    await system.changeProject(project, ({ scrub: _, ...rest }) => rest);
    await system.registryKnown();
    await system.send(project, body('b'));
    system.processor = system.startProcessor();
    const messageOf = async (id: string): Promise<unknown> =>
      (await storedOf(project, 2)).find(({ event_id }) => event_id === id.repeat(32))?.payload.message;
    await until(async () => (await messageOf('b')) !== undefined);
    expect(await messageOf('a')).toBe('[Filtered]');
    expect(await messageOf('b')).toBe('bob@x.io');
  });
});
