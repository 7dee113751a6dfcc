/** The keys of a record: which are in force, what commands make of them, and what builds before and after read. */
import { describe, expect, it } from 'vitest';
import { addKey, changeKey, firstKey, replaceKey, rotateKeys } from '../../src/projects/keys.ts';
import { keyId, keysOf, type Project, parseEntry, projectText } from '../../src/projects/project.ts';
import { ProjectState } from '../../src/projects/project-state.ts';

const NOW = Date.parse('2026-11-23T12:00:00.000Z');
const DAY_MS = 86_400_000;
/** As `sluice project create --plan Pro --key old` of the build before this wrote it. */
const BEFORE =
  '{"plan":"Pro","overage":false,"filters":["browser-extension","localhost","crawler"],"allowedOrigins":[],"id":"9","key":"old"}';
const project = (): Project => {
  const parsed = parseEntry('9', BEFORE);
  if (parsed.kind !== 'project') throw new Error('not read');
  return parsed.project;
};
const at = (now: number) => ({ now: () => now });
const accepted = (of: Project, now: number, keys: readonly string[]): string[] => {
  const state = new ProjectState(of, 1, 1_000);
  return keys.filter((key) => state.authenticate(key, at(now)));
};
const ids = (of: Project): string[] => keysOf(of).map(({ key }) => key);

describe('a record with a single key, as an earlier build wrote it', () => {
  it('is read as a project with one key, and written again as it was', () => {
    expect(keysOf(project())).toEqual([{ key: 'old', enabled: true }]);
    expect(projectText(project())).toBe(
      '{"id":"9","key":"old","plan":"Pro","overage":false,"filters":["browser-extension","localhost","crawler"],"allowedOrigins":[]}',
    );
    expect(accepted(project(), NOW, ['old', 'other', 'ol', 'old '])).toEqual(['old']);
  });

  it('keeps its form, which that build reads, when its key is replaced, rotated, or another came and went', () => {
    const fresh = rotateKeys(project(), 'new', { now: NOW, overlapMs: undefined });
    const came = addKey(project(), { key: 'guest', enabled: true, expires: '2027-01-01T00:00:00.000Z' }, NOW);
    const went = changeKey(came, keyId('guest'), { now: NOW, change: () => undefined });
    for (const one of [fresh, replaceKey(project(), 'new', NOW), went])
      expect(one).not.toHaveProperty('keys');
    expect([fresh.key, replaceKey(project(), 'new', NOW).key, went.key]).toEqual(['new', 'new', 'old']);
  });
});

describe('a record with several keys', () => {
  const both = rotateKeys(project(), 'new', { now: NOW, overlapMs: 30 * DAY_MS });

  it('is written and read with all of them; key is the first valid one', () => {
    expect(parseEntry('9', projectText(both))).toEqual({ kind: 'project', project: both });
    expect(both.key).toBe('new');
    expect(both.keys).toEqual([
      { key: 'new', enabled: true },
      { key: 'old', enabled: true, expires: '2026-12-23T12:00:00.000Z' },
    ]);
  });

  it('lets an overlap only shorten what a key has left, and drops keys that expired before it', () => {
    const soon = addKey(both, { key: 'soon', enabled: true, expires: '2026-11-24T00:00:00.000Z' }, NOW);
    const third = rotateKeys(soon, 'third', { now: NOW + DAY_MS, overlapMs: DAY_MS });
    expect(ids(third)).toEqual(['third', 'new', 'old']);
    expect(keysOf(third).map(({ expires }) => expires)).toEqual([
      undefined,
      '2026-11-25T12:00:00.000Z',
      '2026-11-25T12:00:00.000Z',
    ]);
    const fourth = rotateKeys(third, 'fourth', { now: NOW + 2 * DAY_MS, overlapMs: 100 * DAY_MS });
    expect(keysOf(fourth).map(({ key, expires }) => `${key} ${expires}`)).toEqual([
      'fourth undefined',
      'third 2027-03-05T12:00:00.000Z',
    ]);
  });

  it('refuses a disabled key, and gives the label and limit of the first valid one to the one after it', () => {
    const labelled = addKey(project(), { key: 'ios', enabled: true, label: 'iOS', rateLimit: 7 }, NOW);
    const off = changeKey(labelled, keyId('old'), {
      now: NOW,
      change: (key) => ({ ...key, enabled: false }),
    });
    expect(accepted(off, NOW, ['old', 'ios'])).toEqual(['ios']);
    expect([off.key, firstKey(off, NOW)?.key]).toEqual(['ios', 'ios']);
    expect(rotateKeys(off, 'new', { now: NOW, overlapMs: undefined }).keys).toEqual([
      { key: 'new', enabled: true, label: 'iOS', rateLimit: 7 },
    ]);
  });

  it('has each key once, and at least one', () => {
    expect(() => addKey(project(), { key: 'old', enabled: true }, NOW)).toThrow('has this key already');
    const remove = () => changeKey(project(), keyId('old'), { now: NOW, change: () => undefined });
    expect(remove).toThrow('keeps at least one key');
    expect(() => changeKey(project(), '00000000', { now: NOW, change: () => undefined })).toThrow(
      'no key 00000000',
    );
    const twice = JSON.stringify({ ...both, keys: [...(both.keys ?? []), { key: 'old', enabled: true }] });
    expect(parseEntry('9', twice)).toMatchObject({
      kind: 'broken',
      reason: expect.stringContaining('twice'),
    });
  });
});
