/** A worker whose project is deleted, and made again, before it has written what it counted. Real broker, real bucket. */
import { beforeEach, describe, expect, it } from 'vitest';
import { Checkpoints } from '../../src/ingest/usage/checkpoints.ts';
import { OutcomeLedger } from '../../src/ingest/usage/outcomes.ts';
import { systemClock as clock } from '../../src/lib/clock.ts';
import type { BucketEntry } from '../../src/projects/bucket-copy.ts';
import type { ProjectState } from '../../src/projects/project-state.ts';
import { ProjectView } from '../../src/projects/project-view.ts';
import { CheckpointBucket } from '../../src/projects/usage/checkpoint-bucket.ts';
import { readOutcomes, removeOutcomes } from '../../src/projects/usage/outcome-day.ts';
import { log, type NatsLink, replace, useBroker } from './broker.ts';

const MONTH = '2026-02';
let link: NatsLink;
let view: ProjectView;
let checkpoints: Checkpoints;
let ledger: OutcomeLedger;
let ids = 0;
let id: string;
useBroker((to) => {
  link = to;
});
beforeEach(() => {
  id = `${++ids}`;
  view = new ProjectView({ planLimits: 'table', log });
  checkpoints = new Checkpoints({ store: new CheckpointBucket({ link, log }), clock, log });
  ledger = new OutcomeLedger({ link, log });
});

const record = (revision: number): BucketEntry => {
  const project = { id, key: 'k', plan: 'Pro', overage: false, filters: [], allowedOrigins: [] };
  return { key: id, text: JSON.stringify(project), revision };
};
const state = (): ProjectState => {
  const found = view.find(id);
  if (!found) throw new Error('no project');
  return found;
};
const count = (position: number): void => {
  checkpoints.note(state(), MONTH, position);
  ledger.note(state(), 'accepted');
};
async function written(): Promise<unknown> {
  await Promise.all([checkpoints.close(), ledger.close()]);
  const [hour] = await readOutcomes(link, id, { now: Date.now(), hours: 1 });
  const figure = await new CheckpointBucket({ link, log }).read(id, MONTH);
  return { figure, accepted: hour?.outcomes.accepted };
}

describe('what a worker has in hand of a deleted project', () => {
  it.each([
    ['a change', () => view.copy.put({ key: id, text: undefined, revision: 2 })],
    ['a fresh snapshot', () => replace(view, [], 1)],
  ])('that it learns from %s is not written for the next one of its id', async (_, remove) => {
    replace(view, [record(1)], 1);
    for (let position = 1; position <= 10; position++) count(position);
    remove();
    view.copy.put(record(3));
    count(1);
    expect(await written()).toEqual({ figure: 1, accepted: 1 });
  });

  it('is not written either when it has waited for a flush', async () => {
    replace(view, [record(1)], 1);
    count(1);
    await ledger.flush(0);
    view.copy.put({ key: id, text: undefined, revision: 2 });
    view.copy.put(record(3));
    count(1);
    expect(await written()).toEqual({ figure: 1, accepted: 1 });
  });

  it('leaves no record', async () => {
    replace(view, [record(1)], 1);
    count(1);
    view.copy.put({ key: id, text: undefined, revision: 2 });
    await written();
    expect(await removeOutcomes(link, id)).toBe(0);
  });

  it('is not written either when a request that was under way is counted afterwards', async () => {
    replace(view, [record(1)], 1);
    const before = state();
    count(41);
    view.copy.put({ key: id, text: undefined, revision: 2 });
    view.copy.put(record(3));
    checkpoints.note(before, MONTH, 42);
    ledger.note(before, 'accepted');
    count(1);
    expect(await written()).toEqual({ figure: 1, accepted: 1 });
  });

  it('is written when the record has only changed', async () => {
    replace(view, [record(1)], 1);
    for (let position = 1; position <= 10; position++) count(position);
    view.copy.put(record(2));
    expect(await written()).toEqual({ figure: 10, accepted: 10 });
  });
});
