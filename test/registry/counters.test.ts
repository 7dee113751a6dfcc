import { Kvm } from '@nats-io/kv';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { CounterBucket } from '../../src/registry/counters.ts';
import { readOutcomes } from '../../src/registry/outcome-day.ts';
import { OutcomeLedger } from '../../src/registry/outcome-ledger.ts';
import type { NatsLink } from '../../src/stream/nats.ts';
import { COUNTERS_BUCKET } from '../../src/stream/topology.ts';
import { natsServer, type TestServer } from '../support/servers.ts';
import { link as connect, log, makeBuckets } from './broker.ts';

let server: TestServer;
let link: NatsLink;
beforeAll(async () => {
  server = await natsServer();
  link = await connect(server.url);
  await makeBuckets(link);
});
afterAll(async () => {
  await link?.close();
  await server?.close();
});

describe('CounterBucket', () => {
  const read = async (id: string): Promise<number | undefined> =>
    new CounterBucket({ link, log }).read(id, '2026-07');
  const settled = async (id: string, count: number): Promise<void> => {
    await expect.poll(() => read(id), { timeout: 3_000 }).toBe(count);
  };

  it('reads nothing where nothing was written', async () => {
    expect(await read('404')).toBeUndefined();
  });

  it('keeps the larger figure, whichever worker writes last', async () => {
    const [one, two] = [new CounterBucket({ link, log }), new CounterBucket({ link, log })];
    one.write('1', '2026-07', 50);
    await settled('1', 50);
    two.write('1', '2026-07', 40);
    two.write('1', '2026-07', 60);
    one.write('1', '2026-07', 55);
    await settled('1', 60);
    await new Promise((resolve) => setTimeout(resolve, 100));
    expect(await read('1')).toBe(60);
  });

  it('ends at the largest of many figures written at once', async () => {
    const workers = Array.from({ length: 4 }, () => new CounterBucket({ link, log }));
    for (let n = 1; n <= 200; n++) workers[n % 4]?.write('2', '2026-07', n);
    await settled('2', 200);
  });

  it('asks once for each write while it is alone with a project, and looks first when it is not', async () => {
    const own = await connect(server.url); // nobody else's requests
    const [one, two] = [new CounterBucket({ link: own, log }), new CounterBucket({ link: own, log })];
    const requestsOf = async (worker: CounterBucket, count: number): Promise<number> => {
      const before = own.connection.stats().outMsgs;
      await worker.write('8', '2026-07', count);
      return own.connection.stats().outMsgs - before;
    };
    expect(await requestsOf(one, 1)).toBe(2); // look, write
    expect(await requestsOf(one, 2)).toBe(1);
    expect(await requestsOf(one, 3)).toBe(1);
    expect(await requestsOf(two, 4)).toBe(2);
    expect(await requestsOf(one, 5)).toBe(3); // what it remembered is out of date
    expect(await requestsOf(one, 6)).toBe(2);
    expect(await read('8')).toBe(6);
    await own.close();
  });

  it('goes on from a figure that a reconciliation set back', async () => {
    const counters = new CounterBucket({ link, log });
    await counters.write('9', '2026-07', 50);
    await new CounterBucket({ link, log }).replace('9', '2026-07', 10);
    await counters.write('9', '2026-07', 11);
    expect(await read('9')).toBe(11);
  });

  it('keeps months apart', async () => {
    const counters = new CounterBucket({ link, log });
    counters.write('3', '2026-06', 9);
    counters.write('3', '2026-07', 1);
    await settled('3', 1);
    expect(await counters.read('3', '2026-06')).toBe(9);
  });

  it('sets any figure for a reconciliation', async () => {
    const counters = new CounterBucket({ link, log });
    await counters.replace('4', '2026-07', 10);
    await counters.replace('4', '2026-07', 7);
    expect(await counters.read('4', '2026-07')).toBe(7);
  });

  it('takes a spoiled figure for none, and writes over it', async () => {
    await (await new Kvm(link.js).open(COUNTERS_BUCKET)).put('5.2026-07', 'many');
    expect(await read('5')).toBeUndefined();
    new CounterBucket({ link, log }).write('5', '2026-07', 3);
    await settled('5', 3);
  });
});

describe('OutcomeLedger', () => {
  const clockAt = (iso: string) => ({ now: () => Date.parse(iso), monotonic: () => 0 });

  it('sums what several workers note, by hour and outcome', async () => {
    const clock = clockAt('2026-07-01T13:20:00Z');
    const workers = Array.from({ length: 4 }, () => new OutcomeLedger({ link, log, clock }));
    for (let round = 0; round < 3; round++) {
      for (const worker of workers) {
        for (let n = 0; n < 5; n++) worker.note('10', 'accepted');
        worker.note('10', 'rate_limited');
        worker.note('11', 'accepted');
      }
      await Promise.all(workers.map((worker) => worker.flush()));
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
    const counts = async (): Promise<(number | undefined)[]> =>
      Promise.all(
        ['20', '21', '22'].map(
          async (id) => (await readOutcomes(link, id, { now, hours: 1 }))[0]?.outcomes.accepted,
        ),
      );
    for (const id of ['20', '21', '22']) ledger.note(id, 'accepted');
    await ledger.flush(2);
    expect(await counts()).toEqual([1, 1, undefined]);
    for (const id of ['20', '21', '22']) ledger.note(id, 'accepted');
    await ledger.flush(2);
    expect(await counts()).toEqual([2, 1, 2]);
    await ledger.flush();
    expect(await counts()).toEqual([2, 2, 2]);
  });

  it('shows the last hours over midnight, oldest first, and none before', async () => {
    for (const time of ['2026-07-01T21:59:00Z', '2026-07-01T22:01:00Z', '2026-07-02T00:30:00Z']) {
      const ledger = new OutcomeLedger({ link, log, clock: clockAt(time) });
      ledger.note('12', 'filtered');
      await ledger.flush();
    }
    const hours = await readOutcomes(link, '12', { now: Date.parse('2026-07-02T00:45:00Z'), hours: 3 });
    expect(hours.map(({ hour }) => hour)).toEqual(['2026-07-01T22:00Z', '2026-07-02T00:00Z']);
  });

  it('removes days that are too old when a new day begins, and leaves no marker', async () => {
    const note = async (id: string, day: string): Promise<void> => {
      const ledger = new OutcomeLedger({ link, log, clock: clockAt(`${day}T12:00:00Z`) });
      ledger.note(id, 'accepted');
      await ledger.flush();
    };
    await note('14', '2026-05-01');
    await note('15', '2026-05-01');
    await note('14', '2026-06-10');
    await note('14', '2026-07-10');
    const kv = await new Kvm(link.js).open(COUNTERS_BUCKET);
    expect(await kv.get('outcomes.14.2026-05-01')).toBeNull();
    expect(await kv.get('outcomes.14.2026-06-10')).not.toBeNull();
    expect(await kv.get('outcomes.14.2026-07-10')).not.toBeNull();
    expect(await kv.get('outcomes.15.2026-05-01')).not.toBeNull();
  });

  it('keeps what it cannot write for the next flush', async () => {
    const clock = clockAt('2026-07-03T10:00:00Z');
    const ledger = new OutcomeLedger({ link, log, clock });
    await (await new Kvm(link.js).open(COUNTERS_BUCKET)).destroy();
    ledger.note('13', 'accepted');
    await ledger.flush();
    await makeBuckets(link);
    ledger.note('13', 'accepted');
    await ledger.flush();
    expect(await readOutcomes(link, '13', { now: clock.now(), hours: 1 })).toEqual([
      { hour: '2026-07-03T10:00Z', outcomes: { accepted: 2 } },
    ]);
  });
});
