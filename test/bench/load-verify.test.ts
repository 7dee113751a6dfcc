/** `--verify` finds what is wrong in a sink: each kind of fault once. */
import { appendFileSync, mkdirSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { Connection } from '../../bench/load/connection.ts';
import { Ledger } from '../../bench/load/verify/ledger.ts';
import type { StoredReader } from '../../bench/load/verify/stored.ts';
import { type Verification, Verifier } from '../../bench/load/verify/verify.ts';
import { openStored } from '../../src/commands/load/stored.ts';
import { temporaryFolder } from '../support/servers.ts';

const PREFIX = '0123456789abcdef01234567';
const ACCEPTED = Buffer.from('HTTP/1.1 200 OK\r\nX-Service-Usage: 1/unlimited\r\n\r\n{"id":"x"}');
const EMPTY = Buffer.from('HTTP/1.1 200 OK\r\n\r\n{"id":"x"}');
const idOf = (number: number): string => PREFIX + number.toString(16).padStart(8, '0');
const record = (id: string, index = 0): string =>
  `{"project_id":"7","event_id":"${id}","item_index":${index},"type":"event","payload":{}}\n`;

let dir: string;
let ledger: Ledger;
let tally: Map<string, number>;
beforeEach(() => {
  dir = temporaryFolder('verify');
  mkdirSync(join(dir, 'SLUICE_EVENTS'));
  ledger = new Ledger(PREFIX, 0);
  tally = new Map();
});
afterEach(() => rmSync(dir, { recursive: true }));

const connection = (id: number, isMinted = false): Connection => {
  const endpoint = { host: 'h', port: 1, tls: false };
  const events = { onAnswer: () => undefined, onFailure: () => undefined };
  const made = new Connection({ endpoint, keepAlive: true, events, requestBytes: 0 });
  made.id = id;
  made.isMinted = isMinted;
  return made;
};
const store = (text: string): void => appendFileSync(join(dir, 'SLUICE_EVENTS', '1.ndjson'), text);

/** Of a ledger that was told something and a sink that holds something. */
async function verify(
  tallied: number,
  { usage = tallied, waitMs = 0, ...parts }: Partial<StoredReader> & { usage?: number; waitMs?: number } = {},
): Promise<Verification> {
  const files = await openStored(`ndjson:${dir}`);
  const reader: StoredReader = { ...files, tally: async () => tally, ...parts };
  let asked = 0;
  const verifier = await Verifier.start({
    reader,
    ledger,
    waitMs,
    lateMs: 0,
    usage: async () => new Map([['7', asked++ === 0 ? 100 : 100 + usage]]),
    targets: ['7'],
    say: () => undefined,
  });
  tally = new Map([['7', tallied]]);
  return verifier.finish();
}

describe('what was told and what is stored', () => {
  beforeEach(() => {
    ledger.answered(connection(0), 200, ACCEPTED);
    ledger.answered(connection(1), 200, ACCEPTED);
    ledger.answered(connection(2), 200, EMPTY);
    ledger.answered(connection(3), 429, EMPTY);
    ledger.unanswered(connection(4));
    store(record(idOf(0)) + record(idOf(0), 1));
  });

  it('agree', async () => {
    store(record(idOf(1)) + record(idOf(4)) + record('f'.repeat(32)));
    expect(await verify(3)).toMatchObject({
      accepted: 2,
      empty: 1,
      refused: 1,
      unknown: 1,
      stored: 2,
      unknownStored: 1,
      lost: 0,
      double: 0,
      refusedStored: 0,
      emptyStored: 0,
      tallied: 3,
      usage: 3,
      problems: [],
    });
  });

  it('differ by a lost envelope, which is named', async () => {
    const found = await verify(2);
    expect(found).toMatchObject({ lost: 1, lostIds: [idOf(1)] });
    expect(found.problems).toEqual([expect.stringMatching(/^1 of 2 envelopes .* not in the sink/)]);
  });

  it('differ by an item that is there twice', async () => {
    store(record(idOf(1)) + record(idOf(0), 1));
    expect((await verify(2)).problems).toEqual(['1 items are in the sink more than once']);
  });

  it('differ by an item far behind in its envelope that is there twice', async () => {
    store(record(idOf(1)) + record(idOf(0), 31) + record(idOf(0), 40) + record(idOf(0), 40));
    expect((await verify(2)).problems).toEqual(['1 items are in the sink more than once']);
  });

  it('differ by a refused envelope', async () => {
    store(record(idOf(1)) + record(idOf(3)));
    expect((await verify(2)).problems).toEqual(['1 envelopes that were refused are in the sink']);
  });

  it.each([
    [1, 1, /tally grew by 1, though 2/],
    [4, 4, /tally grew by 4, though at most 3/],
  ])('differ by a tally of %i', async (tallied, usage, said) => {
    store(record(idOf(1)));
    expect((await verify(tallied, { usage: Math.max(usage, 2) })).problems).toEqual([
      expect.stringMatching(said),
    ]);
  });

  it('differ by usage that lacks one', async () => {
    store(record(idOf(1)));
    expect((await verify(2, { usage: 1 })).problems).toEqual([
      'the usage grew by 1, though 2 envelopes were accepted',
    ]);
  });

  it('agree late', async () => {
    const writing = setTimeout(() => {
      store(record(idOf(1)));
      tally = new Map([['7', 2]]);
    }, 700);
    const found = await verify(1, { usage: 2, waitMs: 30_000 });
    clearTimeout(writing);
    expect(found).toMatchObject({ late: 1, lost: 0, problems: [] });
  });
});

describe('a read of the sink that fails', () => {
  beforeEach(() => {
    ledger.answered(connection(0), 200, ACCEPTED);
    store(record(idOf(0)) + record(idOf(0), 1));
  });

  /** The folder's reader, which ends in the middle of its first `times` looks. */
  async function cutOff(times: number): Promise<Partial<StoredReader>> {
    const files = await openStored(`ndjson:${dir}`);
    const scan: StoredReader['scan'] = async (since, onItem) => {
      await files.scan(since, onItem);
      if (times-- > 0) throw new Error('cut off');
    };
    return { scan };
  }

  it('is made again, and what it had told is not double', async () => {
    const found = await verify(1, { waitMs: 60_000, ...(await cutOff(2)) });
    expect(found).toMatchObject({ stored: 1, lost: 0, double: 0, problems: [] });
  });

  it('is made again also where a reader tells an item once', async () => {
    const files = await openStored(`ndjson:${dir}`);
    const told = new Set<string>();
    let isCut = false;
    const scan: StoredReader['scan'] = async (since, onItem) => {
      await files.scan(since, (item) => {
        const name = `${item.eventId}:${item.index}`;
        if (!told.has(name)) onItem(item);
        told.add(name);
      });
      isCut = !isCut;
      if (isCut) throw new Error('cut off');
    };
    const found = await verify(1, { waitMs: 60_000, scan, tellsOnce: true });
    expect(found).toMatchObject({ stored: 1, lost: 0, double: 0, problems: [] });
  });

  it('is told when its time is over', async () => {
    await expect(verify(1, await cutOff(1_000))).rejects.toThrow('cut off');
  });
});

it('a file that is taken away while the folder is read is left out', async () => {
  const paths = ['1', '2', '3'].map((name) => join(dir, 'SLUICE_EVENTS', `${name}.ndjson`));
  for (const [n, path] of paths.entries()) appendFileSync(path, record(idOf(n)));
  const files = await openStored(`ndjson:${dir}`);
  const found = new Set<string>();
  await files.scan(new Date(0), ({ eventId }) => {
    found.add(eventId);
    // The names are known by now.
    for (const [n, path] of paths.entries()) if (idOf(n) !== eventId) rmSync(path, { force: true });
  });
  expect(found.size).toBe(1);
});

it('looks up the ids that the server made', async () => {
  const answer = (id: string): Buffer =>
    Buffer.from(`HTTP/1.1 200 OK\r\nX-Service-Usage: 1/9\r\n\r\n{"id":"${id}"}`);
  const [here, gone] = ['a'.repeat(32), 'b'.repeat(32)];
  ledger.answered(connection(0, true), 200, answer(here));
  ledger.answered(connection(1, true), 200, answer(gone));
  store(record(here));
  expect(await verify(2)).toMatchObject({ accepted: 2, stored: 1, lost: 1, lostIds: [gone] });
});

it.each([
  [undefined, '--verify'],
  ['kafka://h/db', '--sink'],
  ['ndjson:/a postgres://h/db', '--sink'],
  ['s3://KEY:SECRET@bucket?colour=blue', '--sink: s3://'],
  ['clickhouse://h/db?colour=blue', '--sink: clickhouse://'],
])('a sink %s that cannot be looked into is named', async (sink, named) => {
  await expect(openStored(sink)).rejects.toThrow(named);
});
