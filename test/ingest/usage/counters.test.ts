import { type KV, Kvm } from '@nats-io/kv';
import { beforeEach, describe, expect, it, vi } from 'vitest';
import { OutcomeLedger } from '../../../src/ingest/usage/outcomes.ts';
import { OldDays } from '../../../src/processor/old-days.ts';
import { CheckpointBucket } from '../../../src/projects/usage/checkpoint-bucket.ts';
import { readOutcomes } from '../../../src/projects/usage/outcome-day.ts';
import { link as connect, log, makeBuckets, type NatsLink, useBroker } from '../../projects/broker.ts';
import { projectOf } from '../limit/limit-fixture.ts';

let link: NatsLink;
let url: string;
useBroker((to, at) => {
  [link, url] = [to, at];
});

describe('CheckpointBucket', () => {
  const make = (): CheckpointBucket => new CheckpointBucket({ link, log });
  const read = (id: string, month = '2026-07'): Promise<number | undefined> => make().read(id, month);
  const write = (
    counters: CheckpointBucket,
    figures: Record<string, number>,
    month = '2026-07',
  ): Promise<void> => {
    const [id = ''] = Object.keys(figures);
    return counters.write(counters.groupOf(id), month, new Map(Object.entries(figures)));
  };

  let nextId = 10_000;
  /** Ids of one group that no other test has. */
  const sameGroup = (count: number): string[] => {
    const ids: string[] = [];
    for (const counters = make(); ids.length < count; nextId++)
      if (ids.length === 0 || counters.groupOf(`${nextId}`) === counters.groupOf(ids[0] ?? ''))
        ids.push(`${nextId}`);
    return ids;
  };

  it('keeps the larger figure, whichever worker writes last', async () => {
    const [one, two] = [make(), make()];
    await write(one, { '1': 50 });
    await write(two, { '1': 40 });
    expect(await read('1')).toBe(50);
    await write(two, { '1': 60 });
    await write(one, { '1': 55 });
    expect(await read('1')).toBe(60);
  });

  it('asks once for all who read one group within half a second, and again after a failure', async () => {
    const own = await connect(url); // nobody else's requests
    const counters = new CheckpointBucket({ link: own, log });
    const figures = Object.fromEntries(sameGroup(20).map((id, n) => [id, n + 1]));
    await write(counters, figures);
    const before = own.connection.stats().outMsgs;
    const read = await Promise.all(Object.keys(figures).map((id) => counters.read(id, '2026-07')));
    expect(read).toEqual(Object.values(figures));
    expect(own.connection.stats().outMsgs - before).toBe(1);
    await write(make(), Object.fromEntries(Object.keys(figures).map((id) => [id, 99])));
    const [id = ''] = Object.keys(figures);
    await expect.poll(() => counters.read(id, '2026-07')).toBe(99);
    await own.close();
    await expect.poll(() => counters.read(id, '2026-07').catch(() => 'failed')).toBe('failed');
    await expect(counters.read(id, '2026-07')).rejects.toThrow();
  });

  it('ends at the largest figures when two dozen workers write the same record at once', async () => {
    const ids = sameGroup(24);
    await Promise.all(
      ids.map((mine, n) => write(make(), Object.fromEntries(ids.map((id) => [id, id === mine ? 1_000 : n])))),
    );
    expect(await Promise.all(ids.map((id) => read(id)))).toEqual(ids.map(() => 1_000));
  });

  it('keeps projects of one group apart, whoever writes them', async () => {
    const [one, two] = [make(), make()];
    const [id = '', other = ''] = sameGroup(2);
    await Promise.all([write(one, { [id]: 1 }), write(two, { [other]: 2 })]);
    await write(one, { [id]: 3, [other]: 1 });
    expect([await read(id), await read(other)]).toEqual([3, 2]);
  });

  it('has all groups between its bounds, and uses them evenly', () => {
    const counters = make();
    const projects = new Array<number>(counters.groups).fill(0);
    for (let n = 0; n < 100 * counters.groups; n++)
      projects[counters.groupOf(`${4_507_310_002_000_000 + n * 65_536}`)]!++;
    expect(projects).toHaveLength(counters.groups);
    expect(Math.max(...projects)).toBeLessThan(200);
  });

  it('goes on from a figure that a reconciliation set back', async () => {
    await write(make(), { '9': 50 });
    await make().replace('9', '2026-07', 10);
    await write(make(), { '9': 11 });
    expect(await read('9')).toBe(11);
  });

  it('keeps months apart', async () => {
    await write(make(), { '3': 9 }, '2026-06');
    await write(make(), { '3': 1 });
    expect([await read('3'), await read('3', '2026-06')]).toEqual([1, 9]);
  });

  it('reads a record of an earlier build, by name, and keeps what stands there', async () => {
    const [id = '', other = ''] = sameGroup(2);
    const key = `checkpoints.2026-07.${make().groupOf(id)}`;
    await (await new Kvm(link.js).open('sluice_counters')).put(key, JSON.stringify({ [id]: 990 }));
    expect(await read(id)).toBe(990);
    await write(make(), { [other]: 1 });
    expect([await read(id), await read(other)]).toEqual([990, 1]);
  });

  it('says that it cannot write', async () => {
    const own = await connect(url);
    const counters = new CheckpointBucket({ link: own, log });
    await own.close();
    await expect(write(counters, { '7': 1 })).rejects.toThrow('not connected to NATS');
  });

  it.each([
    'many',
    '[]',
    'null',
    '{"5":"many"}',
    '{"5":-1}',
    '{"ids":["5"]}',
    '{"ids":["5"],"counts":[]}',
    '{"ids":["5"],"counts":["many"]}',
    '{"ids":["5"],"counts":[-1]}',
  ])('takes %s for none, and writes over it', async (text) => {
    const key = `checkpoints.2026-07.${make().groupOf('5')}`;
    await (await new Kvm(link.js).open('sluice_counters')).put(key, text);
    expect(await read('5')).toBeUndefined();
    await write(make(), { '5': 3 });
    expect(await read('5')).toBe(3);
  });
});

describe('OutcomeLedger', () => {
  const clockAt = (iso: string) => ({ now: () => Date.parse(iso), monotonic: () => 0 });

  it('sums what several workers note, by hour and outcome', async () => {
    const clock = clockAt('2026-07-01T13:20:00Z');
    const workers = Array.from({ length: 4 }, () => ({
      ledger: new OutcomeLedger({ link, log, clock }),
      project: projectOf({ id: '10' }),
      other: projectOf({ id: '11' }),
    }));
    for (let round = 0; round < 3; round++) {
      for (const { ledger, project, other } of workers) {
        for (let n = 0; n < 5; n++) ledger.note(project, 'accepted');
        // The same project, deleted and made again, and another one.
        ledger.note(projectOf({ id: '10' }), 'rate_limited');
        ledger.note(other, 'accepted');
      }
      await Promise.all(workers.map(({ ledger }) => ledger.flush()));
    }
    const span = { now: clock.now(), hours: 24 };
    expect(await readOutcomes(link, '10', span)).toEqual([
      { hour: '2026-07-01T13:00Z', outcomes: { accepted: 60, rate_limited: 12 } },
    ]);
    expect(await readOutcomes(link, '11', span)).toEqual([
      { hour: '2026-07-01T13:00Z', outcomes: { accepted: 12 } },
    ]);
  });

  it('writes those that wait longest first when not all may be written', async () => {
    const now = Date.parse('2026-07-04T10:00:00Z');
    const ledger = new OutcomeLedger({ link, log, clock: clockAt('2026-07-04T10:00:00Z') });
    const projects = ['20', '21', '22'].map((id) => projectOf({ id }));
    const counts = async (): Promise<(number | undefined)[]> =>
      Promise.all(
        projects.map(
          async ({ id }) => (await readOutcomes(link, id, { now, hours: 1 }))[0]?.outcomes.accepted,
        ),
      );
    for (const project of projects) ledger.note(project, 'accepted');
    await ledger.flush(2);
    expect(await counts()).toEqual([1, 1, undefined]);
    for (const project of projects) ledger.note(project, 'accepted');
    await ledger.flush(2);
    expect(await counts()).toEqual([2, 1, 2]);
    await ledger.flush();
    expect(await counts()).toEqual([2, 2, 2]);
  });

  it('shows the last hours over midnight, oldest first, and none before', async () => {
    for (const time of ['2026-07-01T21:59:00Z', '2026-07-01T22:01:00Z', '2026-07-02T00:30:00Z']) {
      const ledger = new OutcomeLedger({ link, log, clock: clockAt(time) });
      ledger.note(projectOf({ id: '12' }), 'filtered');
      await ledger.flush();
    }
    const hours = await readOutcomes(link, '12', { now: Date.parse('2026-07-02T00:45:00Z'), hours: 3 });
    expect(hours.map(({ hour }) => hour)).toEqual(['2026-07-01T22:00Z', '2026-07-02T00:00Z']);
  });

  describe('days that are too old', () => {
    const OLDEST = 'outcomes.oldest';
    const bucket = (): Promise<KV> => new Kvm(link.js).open('sluice_counters');
    const daysAt = (day: string): OldDays => new OldDays({ link, log, clock: clockAt(`${day}T12:00:00Z`) });
    const put = async (id: string, ...days: string[]): Promise<void> => {
      for (const day of days) await (await bucket()).put(`outcomes.${id}.${day}`, '{}');
    };
    const oldest = async (): Promise<string | undefined> => (await (await bucket()).get(OLDEST))?.string();
    const daysOf = async (id: string): Promise<string[]> => {
      const subjects_filter = `$KV.sluice_counters.outcomes.${id}.*`;
      const { state } = await (await link.manager()).streams.info('KV_sluice_counters', {
        subjects_filter,
      });
      return Object.keys(state.subjects ?? {})
        .map((subject) => subject.slice(-'YYYY-MM-DD'.length))
        .sort();
    };
    beforeEach(async () => {
      const filter = `$KV.sluice_counters.outcomes.>`;
      await (await link.manager()).streams.purge('KV_sluice_counters', { filter });
    });

    it('are removed from all projects, also where an earlier build left no word of what is there', async () => {
      await put('14', '2026-01-01', '2026-05-01', '2026-06-10');
      await put('15', '2026-06-07', '2026-06-08');
      await daysAt('2026-07-10').remove();
      expect([await daysOf('14'), await daysOf('15')]).toEqual([['2026-06-10'], ['2026-06-08']]);
      expect(await oldest()).toBe('2026-06-08');
      await daysAt('2026-07-11').remove();
      expect([await daysOf('14'), await daysOf('15')]).toEqual([['2026-06-10'], []]);
      expect(await oldest()).toBe('2026-06-09');
    });

    it('are removed by one processor, and looked at by the others with one request', async () => {
      await put('14', '2026-06-08', '2026-06-10');
      await daysAt('2026-07-10').remove();
      const requestsOf = async (days: OldDays): Promise<number> => {
        await days.remove(); // opens the bucket
        const before = link.connection.stats().outMsgs;
        await days.remove();
        return link.connection.stats().outMsgs - before;
      };
      expect(await requestsOf(daysAt('2026-07-10'))).toBe(1);
      await Promise.all(Array.from({ length: 8 }, () => daysAt('2026-07-12').remove()));
      expect(await daysOf('14')).toEqual(['2026-06-10']);
      expect(await oldest()).toBe('2026-06-10');
    });

    it('are found by the next look when their removal failed', async () => {
      await put('14', '2026-06-08', '2026-06-10');
      await daysAt('2026-07-10').remove();
      const away = await connect(url);
      const cut = new OldDays({ link: away, log, clock: clockAt('2026-07-12T00:00:00Z') });
      await away.close();
      await cut.remove();
      expect([await daysOf('14'), await oldest()]).toEqual([['2026-06-08', '2026-06-10'], '2026-06-08']);
      const leaving = daysAt('2026-07-12');
      leaving.stop();
      await leaving.remove();
      expect([await daysOf('14'), await oldest()]).toEqual([['2026-06-08', '2026-06-10'], '2026-06-08']);
      await daysAt('2026-07-12').remove();
      expect([await daysOf('14'), await oldest()]).toEqual([['2026-06-10'], '2026-06-10']);
    });

    it('are looked for from time to time', async () => {
      await put('14', '2026-06-07', '2026-06-08');
      vi.useFakeTimers({ toFake: ['setInterval', 'clearInterval'] });
      const days = daysAt('2026-07-10');
      vi.advanceTimersByTime(900_000);
      vi.useRealTimers();
      await expect.poll(() => daysOf('14')).toEqual(['2026-06-08']);
      days.stop();
    });

    it('are looked for where an earlier build has noted the year 0, not each date since', async () => {
      await put('14', '2026-06-07', '2026-06-08');
      const kv = await bucket();
      await kv.put(OLDEST, '0000-11-30');
      const before = link.connection.stats().outMsgs;
      await daysAt('2026-07-10').remove();
      expect(link.connection.stats().outMsgs - before).toBeLessThan(20);
      expect([await daysOf('14'), await oldest()]).toEqual([['2026-06-08'], '2026-06-08']);
    });

    it('are none in a bucket that never held anything', async () => {
      const { streams } = await link.manager();
      const { config } = await streams.info('KV_sluice_counters');
      await streams.delete('KV_sluice_counters');
      await streams.add(config);
      await daysAt('2026-07-10').remove();
      expect(await oldest()).toBeUndefined();
    });

    it('are not those that only a clock of ours takes for old', async () => {
      const today = new Date().toISOString().slice(0, 10);
      await put('14', '2026-01-01', today);
      await daysAt('2099-01-01').remove();
      expect(await daysOf('14')).toEqual([today]);
    });
  });

  it('keeps what it cannot write for the next flush', async () => {
    const clock = clockAt('2026-07-03T10:00:00Z');
    const ledger = new OutcomeLedger({ link, log, clock });
    const project = projectOf({ id: '13' });
    await (await new Kvm(link.js).open('sluice_counters')).destroy();
    ledger.note(project, 'accepted');
    await ledger.flush();
    await makeBuckets(link);
    ledger.note(project, 'accepted');
    await ledger.flush();
    expect(await readOutcomes(link, '13', { now: clock.now(), hours: 1 })).toEqual([
      { hour: '2026-07-03T10:00Z', outcomes: { accepted: 2 } },
    ]);
  });
});
