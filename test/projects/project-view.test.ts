import { describe, expect, it } from 'vitest';
import { Slot } from '../../src/lib/slots.ts';
import type { BucketEntry } from '../../src/projects/bucket-copy.ts';
import type { Project } from '../../src/projects/project.ts';
import type { ProjectState } from '../../src/projects/project-state.ts';
import { ProjectView } from '../../src/projects/project-view.ts';
import { log, replace } from './broker.ts';

const CUID = 'cjld2cjxh0000qzrmn831i7rn';
const project = (id: string, more: Partial<Project> = {}): Project => ({
  id,
  key: 'k',
  plan: 'Pro',
  overage: false,
  filters: [],
  allowedOrigins: [],
  ...more,
});
const record = (of: Project, revision: number): BucketEntry => ({
  key: of.id,
  text: JSON.stringify(of),
  revision,
});
const claim = (alias: string, aliasOf: string, revision: number): BucketEntry => ({
  key: alias,
  text: JSON.stringify({ aliasOf }),
  revision,
});

const newView = (): ProjectView => new ProjectView({ planLimits: 'table', log });

describe('ProjectView', () => {
  it('finds a project by id and alias, in whichever order claim and record come', () => {
    const entries = [claim('42', CUID, 1), record(project(CUID, { alias: '42' }), 2)];
    for (const order of [entries, [...entries].reverse()]) {
      const view = newView();
      for (const entry of order) view.copy.put(entry);
      expect(view.find('42')?.id).toBe(CUID);
      expect(view.find('42')).toBe(view.find(CUID));
    }
  });

  it('lets an alias lead nowhere while claim and record disagree', () => {
    const view = newView();
    replace(
      view,
      [claim('42', 'cjld2cyuq0000t3rmniod1foy', 1), record(project(CUID, { alias: '42' }), 2)],
      1,
    );
    expect(view.find('42')).toBeUndefined();
    expect(view.find(CUID)).toBeDefined();
    view.copy.put(claim('42', CUID, 3));
    expect(view.find('42')?.id).toBe(CUID);
    view.copy.put(record(project(CUID, { alias: '43' }), 4));
    expect(view.find('42')).toBeUndefined();
  });

  it('puts a changed record into the same object, by a change as by a fresh snapshot', () => {
    const view = newView();
    replace(view, [record(project('1'), 5), record(project('2'), 6)], 1000);
    const [first, second] = [view.find('1'), view.find('2')];
    expect(first).toMatchObject({ revision: 1005, limit: 1_000, quotaCap: undefined });
    const changed = project('1', { quota: 3, rateLimit: 7 });
    view.copy.put(record(changed, 7));
    expect(view.find('1')).toBe(first);
    expect(first).toMatchObject({ record: changed, revision: 1007, limit: 7, quotaCap: 3 });
    replace(view, [record(changed, 7), record(project('2', { quota: 1, overage: true }), 8)], 1000);
    expect(view.find('1')).toBe(first);
    expect(view.find('2')).toBe(second);
    expect(second).toMatchObject({ record: { quota: 1 }, revision: 1008, quotaCap: undefined });
  });

  it('makes a project idle again that was not looked up between two sweeps', () => {
    const view = newView();
    const sweep = (): void => {
      for (const _ of view.sweep());
    };
    replace(
      view,
      [record(project('1'), 5), claim('42', CUID, 6), record(project(CUID, { alias: '42' }), 7)],
      1,
    );
    const [first, second] = [view.find('1'), view.find('42')];
    sweep();
    expect([view.find('1'), view.find(CUID)]).toEqual([first, second]);
    sweep();
    expect(view.find('1')).toBe(first);
    sweep();
    sweep();
    expect(view.find('1')).not.toBe(first);
    expect(view.find('1')?.record).toEqual(first?.record);
    expect(view.find(CUID)).not.toBe(second);
    expect(view.find('42')).toBe(view.find(CUID));
  });

  it('keeps a project that a stage has something of', () => {
    const view = newView();
    view.copy.put(record(project('1'), 5));
    const slot = new Slot(
      () => ({ isNeeded: true }),
      ({ isNeeded }) => isNeeded,
    );
    const state = view.find('1') as ProjectState;
    const kept = slot.of(state);
    for (let sweeps = 0; sweeps < 3; sweeps++) for (const _ of view.sweep());
    expect(view.find('1')).toBe(state);
    kept.isNeeded = false;
    for (let sweeps = 0; sweeps < 3; sweeps++) for (const _ of view.sweep());
    expect(view.find('1')).not.toBe(state);
  });

  it('does not follow claims in a circle, or to a claim', () => {
    const view = newView();
    replace(view, [claim('41', '42', 1), claim('42', '41', 2), claim('43', '43', 3)], 1);
    for (const name of ['41', '42', '43']) expect(view.find(name)).toBeUndefined();
  });

  it('lets revisions grow when the bucket was made anew', () => {
    const view = newView();
    replace(view, [record(project('1'), 900)], 1_000_000);
    const before = view.find('1')?.revision ?? Infinity;
    replace(view, [record(project('1', { rateLimit: 5 }), 1)], 1_060_000);
    expect(view.find('1')?.limit).toBe(5);
    expect(view.find('1')?.revision).toBeGreaterThan(before);
  });

  it('skips what cannot be read, and forgets what stood there before', () => {
    const view = newView();
    replace(view, [record(project('1'), 1), record(project('2'), 2)], 1);
    view.copy.put({ key: '1', text: '{"id":', revision: 3 });
    view.copy.put({ key: '3', text: JSON.stringify(project('4')), revision: 4 });
    expect(view.find('1')).toBeUndefined();
    expect(view.find('2')).toBeDefined();
    expect(view.find('3')).toBeUndefined();
    expect(view.find('4')).toBeUndefined();
  });
});
