import { Kvm } from '@nats-io/kv';
import { beforeEach, describe, expect, it } from 'vitest';
import {
  ConflictError,
  Names,
  RegistryError,
  RevisionError,
  UnreadableError,
} from '../../src/projects/names.ts';
import { projectText } from '../../src/projects/project.ts';
import { KeptList, type NewProject, ProjectStore } from '../../src/projects/project-store.ts';
import { makeAudit, type NatsLink, useBroker } from './broker.ts';

const CLAIM_MS = 300;
const CUID = 'cjld2cjxh0000qzrmn831i7rn';
const OTHER_CUID = 'cjld2cyuq0000t3rmniod1foy';
const plain: NewProject = { plan: 'Pro', overage: false, filters: [], allowedOrigins: [] };

describe('ProjectStore', () => {
  let link: NatsLink;
  let store: ProjectStore;
  const kv = () => new Kvm(link.js).open('sluice_projects');

  useBroker((to) => {
    link = to;
  }, makeAudit);
  beforeEach(async () => {
    await new Kvm(link.js).create('sluice_projects');
    await (await kv()).destroy();
    await new Kvm(link.js).create('sluice_projects');
    store = await ProjectStore.open(link, { claimMs: CLAIM_MS });
  });

  it('mints a numeric id and a key of 32 hex digits', async () => {
    const project = await store.create(plain);
    expect(project.id).toMatch(/^[1-9]\d{8,9}$/);
    expect(project.key).toMatch(/^[0-9a-f]{32}$/);
    expect(project.alias).toBeUndefined();
    expect(await store.get(project.id)).toEqual(project);
  });

  it('reads a kept list anew after each change of any store, and at no other time', async () => {
    const kept = new KeptList();
    const ids = async (): Promise<string[]> =>
      (await store.listStored(kept)).map(
        ({ project, revision }) => `${project.id} ${project.plan} ${revision}`,
      );
    await store.create({ ...plain, id: '7' });
    const other = await ProjectStore.open(link, { claimMs: CLAIM_MS });
    const first = await store.listStored(kept);
    expect(await other.listStored(kept)).toBe(first);
    await other.create({ ...plain, id: '8' });
    expect(await ids()).toEqual(['7 Pro 1', '8 Pro 2']);
    await other.set('7', (project) => ({ ...project, plan: 'Free' }));
    expect(await ids()).toEqual(['7 Free 3', '8 Pro 2']);
    await other.delete('8');
    expect(await ids()).toEqual(['7 Free 3']);
    await (await kv()).put('9', 'no record');
    await expect(store.listStored(kept)).rejects.toThrow(UnreadableError);
    await (await kv()).destroy();
    await new Kvm(link.js).create('sluice_projects');
    await store.create({ ...plain, id: '7' });
    expect(await ids()).toEqual(['7 Pro 1']);
  });

  it('gives an id to exactly one of many that want it at once', async () => {
    const wishes = Array.from({ length: 12 }, (_, n) => store.create({ ...plain, id: '7', key: `k${n}` }));
    const results = await Promise.allSettled(wishes);
    const won = results.filter((result) => result.status === 'fulfilled');
    expect(won).toHaveLength(1);
    expect(await store.get('7')).toEqual(won[0]?.value);
    for (const result of results)
      if (result.status === 'rejected') expect(result.reason).toBeInstanceOf(RegistryError);
  });

  it('gives an alias to exactly one of many projects that want it at once', async () => {
    const ids = Array.from({ length: 8 }, (_, n) => `cjld2cjxh0000qzrmn831i7r${n}`);
    const results = await Promise.allSettled(ids.map((id) => store.create({ ...plain, id, alias: '42' })));
    const won = results.filter((result) => result.status === 'fulfilled');
    expect(won).toHaveLength(1);
    expect((await store.get('42')).id).toBe(won[0]?.value.id);
    expect(await store.list()).toHaveLength(1);
  });

  it('leaves the alias in place when twins create the same project at once', async () => {
    const results = await Promise.allSettled(
      Array.from({ length: 6 }, () => store.create({ ...plain, id: CUID, alias: '42' })),
    );
    expect(results.filter((result) => result.status === 'fulfilled')).toHaveLength(1);
    expect((await store.get('42')).id).toBe(CUID);
  });

  it('keeps ids and aliases in one space', async () => {
    await store.create({ ...plain, id: '5' });
    await store.create({ ...plain, id: CUID, alias: '6' });
    await expect(store.create({ ...plain, id: OTHER_CUID, alias: '5' })).rejects.toThrow(
      '5 is already in use',
    );
    await expect(store.create({ ...plain, id: '6' })).rejects.toThrow('6 is already in use');
    expect((await store.list()).map((project) => project.id)).toEqual(['5', CUID]);
  });

  it('takes over a claim that a crash left without its record', async () => {
    await (await kv()).create('42', JSON.stringify({ aliasOf: CUID }));
    await expect(store.get('42')).rejects.toThrow('There is no project 42.');
    const project = await store.create({ ...plain, id: OTHER_CUID, alias: '42' });
    expect(await store.get('42')).toEqual(project);
  });

  it('takes over such a claim for an id too, and at once for the project that made it', async () => {
    await (await kv()).create('42', JSON.stringify({ aliasOf: CUID }));
    await (await kv()).create('43', JSON.stringify({ aliasOf: OTHER_CUID }));
    expect((await store.create({ ...plain, id: '42' })).id).toBe('42');
    expect((await store.create({ ...plain, id: OTHER_CUID, alias: '43' })).alias).toBe('43');
    expect((await store.get('42')).alias).toBeUndefined();
  });

  it('changes an alias and lets go of the old one', async () => {
    await store.create({ ...plain, id: CUID, alias: '42' });
    await store.set(CUID, (project) => ({ ...project, alias: '43' }));
    expect((await store.get('43')).id).toBe(CUID);
    await expect(store.get('42')).rejects.toThrow(RegistryError);
    expect((await store.create({ ...plain, id: '42' })).id).toBe('42');
  });

  it('refuses an alias in use and leaves the record as it was', async () => {
    const before = await store.create({ ...plain, id: CUID, alias: '42' });
    await store.create({ ...plain, id: '43' });
    await expect(store.set(CUID, (project) => ({ ...project, alias: '43' }))).rejects.toThrow(
      '43 is already in use',
    );
    expect(await store.get('42')).toEqual(before);
  });

  it('loses none of many changes made at once', async () => {
    await store.create({ ...plain, id: '9', quota: 0 });
    const raise = () => store.set('9', (project) => ({ ...project, quota: (project.quota ?? 0) + 1 }));
    await Promise.all(Array.from({ length: 10 }, raise));
    expect((await store.get('9')).quota).toBe(10);
  });

  it('gives up a change that others are faster than each time, and says so', async () => {
    const { id } = await store.create({ ...plain, id: '9', quota: 0 });
    const bucket = await kv();
    let tries = 0;
    const change = store.set(id, (project) => {
      void bucket.put(id, projectText({ ...project, quota: ++tries }));
      return { ...project, plan: 'Free' };
    });
    await expect(change).rejects.toThrow(ConflictError);
    await expect(change).rejects.toThrow('Others change project 9 all the time; try again.');
    expect(await store.get(id)).toMatchObject({ plan: 'Pro', quota: tries });
  });

  it('changes and deletes nothing where a revision is wanted and the record is gone', async () => {
    await expect(store.set('9', (project) => project, 3)).rejects.toThrow(RevisionError);
    await expect(store.delete('9', 3)).rejects.toThrow('There is no project 9.');
  });

  it('lists none when a record cannot be read, and names that one', async () => {
    const readable = await store.create({ ...plain, id: CUID, alias: '42' });
    const bucket = await kv();
    for (let id = 10; id < 22; id++) await bucket.put(`${id}`, 'spoiled');
    const refused = store.list();
    await expect(refused).rejects.toThrow(UnreadableError);
    await expect(refused).rejects.toThrow(
      /^Records of projects cannot be read: 10 \(not JSON\), .* and 2 more/,
    );
    await expect(refused).rejects.toMatchObject({ readable: [{ project: readable }] });
  });

  it('rotates a key and changes nothing else', async () => {
    const before = await store.create({ ...plain, id: '9', quota: 3, rateLimit: 4 });
    const after = await store.rotateKey('9');
    expect(after.key).not.toBe(before.key);
    expect({ ...after, key: before.key }).toEqual(before);
  });

  describe('keeps an alias that comes back while another command lets go of it', () => {
    const before = { ...plain, id: CUID, key: 'k', alias: '43' };
    const after = { ...before, alias: '42' };
    /** That command has looked at claim and record. What comes `meanwhile` is before its write. */
    const release = async (meanwhile: () => Promise<unknown>): Promise<void> => {
      const bucket = await kv();
      const remove = bucket.delete.bind(bucket);
      bucket.delete = async (...args) => {
        await meanwhile();
        await remove(...args);
      };
      await new Names(bucket, CLAIM_MS).release('42', CUID);
    };
    beforeEach(async () => {
      await store.create(before);
      await (await kv()).create('42', JSON.stringify({ aliasOf: CUID }));
    });

    it('where it has looked before the name is claimed', async () => {
      await release(() => store.set(CUID, () => after));
      expect(await store.get('42')).toEqual(after);
    });

    it('where it has looked between the claim and the record', async () => {
      const bucket = await kv();
      const names = new Names(bucket, CLAIM_MS);
      await names.claim('42', CUID);
      await release(async () => {
        await bucket.put(CUID, projectText(after));
        expect(await names.holds(after)).toBe(true);
      });
      expect(await store.get('42')).toEqual(after);
    });
  });

  it('deletes a project with its alias, after which both names are free', async () => {
    await store.create({ ...plain, id: CUID, alias: '42' });
    expect((await store.delete('42')).id).toBe(CUID);
    expect(await store.list()).toEqual([]);
    await expect(store.delete(CUID)).rejects.toThrow(`There is no project ${CUID}.`);
    await store.create({ ...plain, id: OTHER_CUID, alias: '42' });
    await store.create({ ...plain, id: CUID });
  });

  it('answers a name that is no legal key like any unknown one', async () => {
    await expect(store.get('no such > thing')).rejects.toThrow('There is no project no such > thing.');
  });
});
