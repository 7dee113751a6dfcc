import fc from 'fast-check';
import { expect, it } from 'vitest';
import { Exchange } from '../../../src/ingest/http/exchange.ts';
import { OpenExchanges, type ReadingExchange } from '../../../src/ingest/http/open-exchanges.ts';
import { BODY_MS_MAX } from '../../../src/limits.ts';
import { PLAIN_HEAD } from './line.ts';

function setUp() {
  let now = 0;
  const shared = new OpenExchanges({ monotonic: () => now });
  const closed: number[] = [];
  const exchanges: ReadingExchange[] = [];
  const receive: ((chunk: ArrayBuffer, isLast: boolean) => void)[] = [];
  const abort: (() => void)[] = [];
  const open = (): void => {
    const id = exchanges.length;
    exchanges.push(
      new Exchange(
        {
          onAborted: (handler) => abort.push(handler),
          onData: (handler) => receive.push(handler),
          cork: () => undefined,
          getRemoteAddressAsText: () => new ArrayBuffer(0),
          writeStatus: () => undefined,
          writeHeader: () => undefined,
          end: () => undefined,
          endWithoutBody: () => undefined,
          pause: () => undefined,
          resume: () => undefined,
          close: () => closed.push(id),
        },
        shared,
        PLAIN_HEAD,
      ),
    );
  };
  const sweepAt = (ms: number): void => {
    now = ms;
    shared.sweep();
  };
  return { shared, open, exchanges, receive, abort, closed, sweepAt };
}

/** Whether an exchange's body arrives whole, its client leaves, or nothing happens; by its number. */
const endings = fc.array(fc.constantFrom('read', 'abort', 'stay'), { minLength: 1, maxLength: 40 });

it('knows who is still being read, in whatever order bodies arrive and clients leave, and cuts exactly these', () => {
  fc.assert(
    fc.property(endings, fc.infiniteStream(fc.nat()), (wanted, random) => {
      const { shared, open, exchanges, receive, abort, closed, sweepAt } = setUp();
      for (const _ of wanted) open();
      const order = wanted.map((ending, id) => ({ ending, id, rank: random.next().value as number }));
      order.sort((a, b) => a.rank - b.rank);
      for (const { ending, id } of order) {
        if (ending === 'read') receive[id]?.(new ArrayBuffer(1), true);
        else if (ending === 'abort') abort[id]?.();
      }
      const staying = wanted.flatMap((ending, id) => (ending === 'stay' ? [id] : []));
      const reading = shared.reading.map((exchange) => exchanges.indexOf(exchange));
      expect(reading.sort((a, b) => a - b)).toEqual(staying);
      expect(shared.inFlight).toBe(wanted.filter((ending) => ending !== 'abort').length);
      sweepAt(BODY_MS_MAX + 1);
      expect(closed.sort((a, b) => a - b)).toEqual(staying);
      expect(shared.reading).toEqual([]);
    }),
  );
});
