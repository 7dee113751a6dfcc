import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import {
  compileFilters,
  type FilterSettings,
  filterItems,
  filterSpooled,
  needsPayload,
  type RequestFacts,
} from '../../../src/ingest/filter/inbound.ts';
import { PICKED_BYTES_MAX } from '../../../src/limits.ts';
import { verdictOn, verdictOnItem, verdictOnText } from './encodings.ts';

const GOOGLEBOT = 'Mozilla/5.0 (compatible; Googlebot/2.1; +http://www.google.com/bot.html)';
const CHROME =
  'Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/140.0.0.0 Safari/537.36';
const NO_FACTS: RequestFacts = { origin: '', referer: '', 'user-agent': '' };

/** Matches all three filters of payloads. */
const UNWANTED = {
  exception: { values: [{ type: 'Error', value: 'top.GLOBALS is undefined' }] },
  request: { url: 'http://localhost:3000/', headers: { 'User-Agent': GOOGLEBOT } },
};

const verdict = (settings: Partial<FilterSettings>, payload: unknown, request: Partial<RequestFacts> = {}) =>
  verdictOnItem(
    compileFilters({ filters: [], allowedOrigins: [], ...settings }),
    { ...NO_FACTS, ...request },
    { type: 'event', payload: new TextEncoder().encode(JSON.stringify(payload)) },
  );

describe('inbound filters', () => {
  it('read a megabyte of fields of one envelope; the payloads behind them pass', () => {
    const filters = compileFilters({ filters: ['localhost'], allowedOrigins: [] });
    const headers = Object.fromEntries(Array.from({ length: 200 }, (_, n) => [`k${n}`, 'v'.repeat(500)]));
    const text = JSON.stringify({ request: { url: 'http://localhost/', headers } });
    const items = Array.from({ length: 20 }, () => ({ type: 'event', payload: Buffer.from(text) }));
    const removed = Math.floor(PICKED_BYTES_MAX / text.length);
    expect(filterItems(filters, NO_FACTS, items)).toEqual(items.slice(removed));
  });

  it('name the first that matches: origin, browser-extension, localhost, crawler', () => {
    const foreign = { origin: 'https://evil.example' };
    const allowedOrigins = ['https://a.com'];
    const every = ['crawler', 'localhost', 'browser-extension'] as const;
    expect(verdict({ filters: every, allowedOrigins }, UNWANTED, foreign)).toBe('origin');
    expect(verdict({ filters: every }, UNWANTED, foreign)).toBe('browser-extension');
    expect(verdict({ filters: ['crawler', 'localhost'] }, UNWANTED)).toBe('localhost');
    expect(verdict({ filters: ['crawler'] }, UNWANTED)).toBe('crawler');
  });

  it('only match when they are on', () => {
    expect(verdict({}, UNWANTED)).toBeUndefined();
    expect(verdict({ filters: ['browser-extension'] }, { request: UNWANTED.request })).toBeUndefined();
    expect(verdict({ filters: ['localhost'] }, { exception: UNWANTED.exception })).toBeUndefined();
    expect(verdict({ filters: ['browser-extension', 'localhost'] }, {}, { 'user-agent': GOOGLEBOT })).toBe(
      undefined,
    );
  });

  it('need the payload only when one of them looks at it, and there is an event or a transaction', () => {
    const needs = (settings: FilterSettings, ...types: string[]) =>
      needsPayload(
        compileFilters(settings),
        types.map((type) => ({ type })),
      );
    expect(needs({ filters: [], allowedOrigins: ['*'] }, 'log', 'event')).toBe(false);
    for (const filter of ['browser-extension', 'localhost', 'crawler'] as const) {
      expect(needs({ filters: [filter], allowedOrigins: [] }, 'log', 'event')).toBe(true);
      expect(needs({ filters: [filter], allowedOrigins: [] }, 'log', 'span')).toBe(false);
    }
  });

  it('let an ordinary browser event pass in every encoding', () => {
    const ordinary = {
      exception: {
        values: [{ value: "Cannot read 'x'", stacktrace: { frames: [{ abs_path: 'https://a.com/x.js' }] } }],
      },
      request: { url: 'https://a.com/robots?q=both', headers: { 'User-Agent': CHROME } },
      user: { ip_address: '203.0.113.7' },
    };
    expect(verdictOn(ordinary, { 'user-agent': CHROME })).toBeUndefined();
  });

  it.each([
    '',
    'not json',
    'top.GLOBALS',
    '{"exception":{"values":[{"value":"top.GLOBALS"}]}',
    '{"exception":{"values":[{"value":"top.GLOBALS"}]}} trailing',
    '"Googlebot"',
    '["Googlebot","localhost"]',
    'null',
    '17',
    '\u0000localhost',
  ])('never match a payload that is no JSON object: %j', (text) => {
    expect(verdictOnText(text, { 'user-agent': GOOGLEBOT })).toBeUndefined();
  });

  it('read JSON whose strings hold invalid UTF-8', () => {
    const payload = Buffer.concat([
      Buffer.from('{"message":"'),
      Buffer.from([0xff, 0xc3]),
      Buffer.from('","request":{"url":"http://localhost/"}}'),
    ]);
    const filters = compileFilters({ filters: ['localhost'], allowedOrigins: [] });
    expect(verdictOnItem(filters, NO_FACTS, { type: 'event', payload })).toBe('localhost');
  });

  it('take no field from a prototype', () => {
    const inherited = (json: string) =>
      `{"__proto__":${json},"constructor":{"prototype":${json}},"message":"localhost Googlebot/ top.GLOBALS"}`;
    expect(verdictOnText(inherited(JSON.stringify(UNWANTED)))).toBeUndefined();
    expect(({} as Record<string, unknown>).request).toBeUndefined();
    expect(verdictOnText('{"request":{"headers":{"__proto__":"Googlebot/2.1","x":"localhost"}}}')).toBe(
      undefined,
    );
  });

  it('are not misled by what other code hung on Object.prototype', () => {
    Object.assign(Object.prototype, { user: { ip_address: '127.0.0.1' } });
    try {
      expect(verdictOnText('{"message":"localhost"}')).toBeUndefined();
    } finally {
      Reflect.deleteProperty(Object.prototype, 'user');
    }
  });

  it('never throw, whatever stands where an object, a list or a text is expected', () => {
    const odd = fc.oneof(
      fc.constantFrom(null, true, 0, 7, '', 'localhost', 'Googlebot/2.1', 'chrome-extension://x', [], {}, [
        [],
      ]),
      fc.constantFrom([['User-Agent']], [[null, 'localhost']], [['Host', null]], { length: 3 }, [{}, 1]),
    );
    const maybe = (deeper: fc.Arbitrary<unknown>) => fc.oneof({ weight: 3, arbitrary: deeper }, odd);
    const frames = maybe(fc.array(maybe(fc.record({ abs_path: odd, filename: odd }))));
    const exception = maybe(fc.record({ value: odd, stacktrace: maybe(fc.record({ frames })) }));
    const payloads = fc.record({
      exception: maybe(fc.record({ values: maybe(fc.array(exception)) })),
      user: maybe(fc.record({ ip_address: odd })),
      request: maybe(
        fc.record({
          url: odd,
          headers: maybe(fc.record({ Host: odd, 'User-Agent': odd, 'X-Forwarded-For': odd })),
        }),
      ),
    });
    fc.assert(
      fc.property(payloads, (payload) => {
        const found = verdictOn(payload, { 'user-agent': CHROME });
        // In every encoding the same: the scan overlooks nothing that the filters would have found.
        expect([undefined, 'browser-extension', 'localhost', 'crawler']).toContain(found);
      }),
      { numRuns: 500 },
    );
  });

  it('end on long hostile texts', () => {
    const long = (text: string) => text.repeat(200_000);
    for (const text of [
      long('bot '),
      `[${long('0:')}`,
      long('['),
      long('//127.'),
      long('cu'),
      long('http://'),
    ]) {
      const payload = {
        exception: { values: [{ value: text, stacktrace: { frames: [{ abs_path: text }] } }] },
        request: {
          url: `http://${text}`,
          headers: { 'User-Agent': text, Host: text, 'X-Forwarded-For': text },
        },
        message: 'localhost',
      };
      expect(verdict({ filters: ['browser-extension', 'localhost', 'crawler'] }, payload)).toBe(
        text.startsWith('bot') ? 'crawler' : undefined,
      );
    }
    const deep = `${'['.repeat(100_000)}${']'.repeat(100_000)}`;
    expect(verdictOnText(`{"x":${deep},"request":{"url":"http://localhost/"}}`)).toBe('localhost');
  });
});

const PAGE = { url: 'https://a.com/' };
const payloads = {
  fine: { message: 'fine', request: PAGE },
  extension: { exception: { values: [{ value: 'top.GLOBALS' }] } },
  local: { request: { url: 'http://localhost/' } },
  person: { request: { ...PAGE, headers: { 'User-Agent': CHROME } } },
  bot: { request: { ...PAGE, headers: { 'User-Agent': GOOGLEBOT } } },
  none: 17,
} as const;
/** Items as `type:payload`, with blanks between. */
const itemsOf = (written: string) =>
  written.split(' ').map((text) => {
    const [type = '', name = 'fine'] = text.split(':') as [string, keyof typeof payloads];
    return { text, type, payload: Buffer.from(JSON.stringify(payloads[name])) };
  });

describe('of an envelope with several items', () => {
  const filters = compileFilters({
    filters: ['browser-extension', 'localhost', 'crawler'],
    allowedOrigins: ['https://a.com'],
  });
  const BROWSER = { 'user-agent': CHROME };
  const BOT = { 'user-agent': GOOGLEBOT };
  const EVIL = { origin: 'https://evil.example' };
  /** What is kept, or the filter that leaves nothing. */
  type Case = [title: string, items: string, expected: string, request?: Partial<RequestFacts>];
  it.each<Case>([
    ['all are kept', 'event:fine log:fine event:person', 'event:fine log:fine event:person'],
    ['events of extensions go', 'event:extension event:fine', 'event:fine'],
    ['transactions from extensions stay', 'transaction:extension log:fine', 'transaction:extension log:fine'],
    ['local events and transactions go', 'event:local transaction:local event:fine', 'event:fine'],
    ['the rest stays in order', 'log:fine event:local log:local event:fine', 'log:fine log:local event:fine'],
    ['what is not judged stays alone', 'event:local log:fine', 'log:fine'],
    ['nothing is left: the first match names the filter', 'event:local event:extension', 'localhost'],
    [
      'nothing is left: by extension and crawler',
      'event:extension event:extension',
      'browser-extension',
      BOT,
    ],
    ['origin judges the request', 'log:fine event:local', 'origin', EVIL],
    ['origin judges a log alone', 'log:fine', 'origin', EVIL],
    ['the first agent is a crawler', 'event:fine event:bot event:person log:fine', 'crawler'],
    ['the first agent is a person', 'event:person event:bot', 'event:person event:bot'],
    ['an agent in an item that goes counts', 'event:local event:bot log:fine', 'crawler'],
    ['a person in the payload beats the request', 'event:fine event:person', 'event:fine event:person', BOT],
    ['no agent in any payload: the request itself', 'event:fine log:fine event:fine', 'crawler', BOT],
    ['no agent in any payload, and a person', 'event:fine event:fine', 'event:fine event:fine', BROWSER],
    ['a log names no agent', 'log:bot log:fine', 'log:bot log:fine', BOT],
    ['payloads that are no object match nothing', 'event:none event:none', 'event:none event:none', BOT],
  ])('%s', async (_title, written, expected, request = {}) => {
    const facts = { ...NO_FACTS, ...request };
    const items = itemsOf(written);
    const shown = (kept: { text: string }[] | string) =>
      typeof kept === 'string' ? kept : kept.map(({ text }) => text).join(' ');
    const kept = filterItems(filters, facts, items);
    expect(shown(kept)).toEqual(expected);
    const spooled = items.map(({ text, type }) => ({ text, type, payload: Buffer.alloc(0) }));
    const read = (item: (typeof spooled)[number]): Promise<Uint8Array> =>
      Promise.resolve(items[spooled.indexOf(item)]?.payload ?? new Uint8Array());
    expect(shown(await filterSpooled(filters, facts, { items: spooled, read }))).toEqual(expected);
    if (expected === written) expect(kept).toBe(items);
  });
});
