/** Who changed what: the stores of projects and tokens write it, over a real broker. */
import { hostname, userInfo } from 'node:os';
import { expect, it } from 'vitest';
import { fingerprint } from '../../src/projects/audit-change.ts';
import { readHistory, UnrecordedError } from '../../src/projects/audit-log.ts';
import { isMissingBucket } from '../../src/projects/bucket.ts';
import { HeartbeatStore } from '../../src/projects/heartbeat-store.ts';
import { type NewProject, ProjectStore } from '../../src/projects/project-store.ts';
import { RECORD_BYTES } from '../../src/stream/record-size.ts';
import { storedMessages } from '../../src/stream/stored-messages.ts';
import { makeAudit, type NatsLink, useBroker } from './broker.ts';

const plain: NewProject = { plan: 'Pro', overage: false, filters: [], allowedOrigins: [] };
let link: NatsLink;
useBroker((to) => {
  link = to;
});

async function records(): Promise<string[]> {
  const texts: string[] = [];
  for await (const message of storedMessages(link, 'SLUICE_AUDIT', {})) texts.push(message.string());
  return texts;
}

it('has every change of a project: who, when, from what to what', async () => {
  const store = await ProjectStore.open(link, { by: 'deployment' });
  const began = Date.now();
  const created = await store.create({ ...plain, id: '7', key: 'first_key_of_7', quota: 5 });
  await store.set('7', (project) => ({ ...project, plan: 'Scale', quota: undefined }));
  await (await ProjectStore.open(link)).delete('7');
  const history = await readHistory(link, '7');
  const { key, ...rest } = created;
  const mine = `${userInfo().username}@${hostname()}`;
  expect(history.map(({ at: _at, sequence: _sequence, ...change }) => change)).toEqual([
    { by: 'deployment', action: 'create', project: '7', to: { ...rest, key: fingerprint(key) } },
    {
      by: 'deployment',
      action: 'change',
      project: '7',
      from: { plan: 'Pro', quota: 5 },
      to: { plan: 'Scale' },
    },
    {
      by: mine,
      action: 'delete',
      project: '7',
      from: { ...rest, plan: 'Scale', quota: undefined, key: fingerprint(key) },
    },
  ]);
  for (const { at } of history) expect(Date.parse(at)).toBeGreaterThanOrEqual(began);
  expect(await readHistory(link, '7', { after: history[0]?.sequence ?? 0, limit: 1 })).toEqual([history[1]]);
});

it('has records of whole quanta, so that a full stream refuses the next and keeps the oldest', async () => {
  const store = await ProjectStore.open(link, { by: 'deployment' });
  const { id } = await store.create(plain);
  for (let quota = 1; quota < 10_000; quota *= 9) await store.set(id, (project) => ({ ...project, quota }));
  const { state } = await (await link.manager()).streams.info('SLUICE_AUDIT');
  expect(state.messages).toBeGreaterThan(4);
  expect(state.bytes % RECORD_BYTES).toBe(0);
});

it('has no key and no token', async () => {
  const store = await ProjectStore.open(link);
  const { id, key } = await store.create(plain);
  const rotated = await store.rotateKey(id);
  const tokens = await HeartbeatStore.open(link, 'deployment');
  const { token } = await tokens.create(new Date());
  await tokens.delete(token);
  const texts = await records();
  for (const secret of [key, rotated.key, token]) expect(texts.join('\n')).not.toContain(secret);
  const [, change] = await readHistory(link, id);
  expect(change).toMatchObject({ from: { key: fingerprint(key) }, to: { key: fingerprint(rotated.key) } });
  const ofToken = texts.filter((text) => text.includes(fingerprint(token)));
  expect(ofToken.map((text) => JSON.parse(text))).toEqual([
    expect.objectContaining({ action: 'create', by: 'deployment' }),
    expect.objectContaining({ action: 'delete', by: 'deployment' }),
  ]);
});

it('has nothing of a change that changes nothing, which is not written either', async () => {
  const store = await ProjectStore.open(link);
  const { id } = await store.create(plain);
  const { revision } = await store.find(id);
  await store.set(id, (project) => ({ ...project, plan: 'Pro', quota: undefined }));
  expect(await readHistory(link, id)).toHaveLength(1);
  expect((await store.find(id)).revision).toBe(revision);
});

it('keeps a broker without the stream from being changed unseen', async () => {
  const streams = (await link.manager()).streams;
  await streams.delete('SLUICE_AUDIT');
  const store = await ProjectStore.open(link);
  const tokens = await HeartbeatStore.open(link);
  const errors = await Promise.all(
    [store.create({ ...plain, id: '8' }), tokens.create(new Date())].map((made) => made.catch(String)),
  );
  expect(errors).toEqual([expect.stringContaining('stream not found'), expect.stringContaining('not found')]);
  await expect(store.create({ ...plain, id: '8' })).rejects.toSatisfy(isMissingBucket);
  expect((await store.list()).map(({ id }) => id)).not.toContain('8');
  expect(await tokens.list()).toEqual([]);
  await makeAudit(link);
});

it('says that a change was made whose record the broker does not take', async () => {
  const streams = (await link.manager()).streams;
  const store = await ProjectStore.open(link);
  await store.create({ ...plain, id: '9' });
  await streams.update('SLUICE_AUDIT', { max_msg_size: 1 });
  const failure = await store.set('9', (project) => ({ ...project, plan: 'Free' })).catch((error) => error);
  await streams.update('SLUICE_AUDIT', { max_msg_size: -1, subjects: ['sluice.audit.>'] });
  expect(failure).toBeInstanceOf(UnrecordedError);
  expect(failure.message).toBe('The change is made (change project 9), but SLUICE_AUDIT has no record of it');
  expect((await store.get('9')).plan).toBe('Free');
});
