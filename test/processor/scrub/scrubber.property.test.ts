/** Whatever is planted, wherever, nothing of it is in what a sink is given, and everything else is as it was. */
import { gzipSync } from 'node:zlib';
import fc from 'fast-check';
import { expect, it } from 'vitest';
import { ITEM_TYPES, type ItemType } from '../../../src/lib/item-types.ts';
import { Slices } from '../../../src/lib/slices.ts';
import { EnvelopeDecoder, type WholeItem } from '../../../src/processor/decode/decode.ts';
import { partsOf } from '../../../src/processor/decode/otlp/request.ts';
import { SECRET_NAMES } from '../../../src/processor/scrub/names.ts';
import { scrubbed } from '../../../src/processor/scrub/scrubber.ts';
import { toSend } from '../../../src/sink/containers.ts';
import type { SinkRecord } from '../../../src/sink/sink.ts';
import { type Privacy, SCRUBS } from '../../../src/stream/frame.ts';
import type { OtlpJson } from '../../support/otlp-reference.ts';
import { logsOf, SPAN, tracesOf } from '../decode/otlp/requests.ts';
import { envelope, item } from '../harness.ts';

const PRIVACY: Privacy = { scrub: SCRUBS, names: ['birth_date'] };
const FILTERED = '[Filtered]';

/** A value as it is sent and as it is to be stored, and the texts that must be gone. */
type Planted = { given: unknown; clean: unknown; gone: readonly string[] };

const kept = (value: unknown): Planted => ({ given: value, clean: value, gone: [] });
const pick = <T>(...values: T[]): fc.Arbitrary<T> => fc.constantFrom(...values);

// ---- What is private ----

const email = fc
  .tuple(
    fc.stringMatching(/^[a-z0-9][a-z0-9._+-]{0,9}[a-z0-9]$/),
    fc.stringMatching(/^[a-z0-9]{2,9}$/),
    pick('io', 'com', 'co.uk'),
  )
  .map(([local, domain, top]) => `${local}@${domain}.${top}`);

function withCheckDigit(digits: string): string {
  for (let last = 0; last < 10; last++) {
    const whole = `${digits}${last}`;
    const sum = [...whole].reverse().reduce((total, char, at) => {
      const digit = Number(char) * (at % 2 === 1 ? 2 : 1);
      return total + (digit > 9 ? digit - 9 : digit);
    }, 0);
    if (sum % 10 === 0) return whole;
  }
  throw new Error('no check digit');
}
const card = fc
  .tuple(fc.stringMatching(/^[2-6]\d{11,17}$/), pick('', ' ', '-'))
  .map(([digits, gap]) => withCheckDigit(digits).replace(/\d{4}(?=\d)/g, `$&${gap}`));
const ipv4 = fc.ipV4().filter((text) => !text.endsWith('.0.0.0'));
const ipv6 = fc.ipV6().filter((text) => /\d/.test(text));
const secretText = fc.stringMatching(/^[A-Za-z0-9]{8,20}$/).map((text) => `Zq${text}`);
const secretName = fc
  .tuple(pick(...SECRET_NAMES, 'birth_date'), pick('', 'x-', 'user_', 'app.'), pick('', '_2', '-value'))
  .chain(([name, before, after]) => {
    // These three count at the end of a name, or alone.
    if (['pass', 'auth', 'tokens'].includes(name)) return pick(name, name.toUpperCase());
    return pick(`${before}${name}${after}`, `${before}${name}${after}`.toUpperCase());
  });

// ---- What is not ----

/** Without hexadecimal digits, so that no chance makes an address of it. */
const word = fc.stringMatching(/^[g-z]{1,9}$/).filter((text) => text !== 'jwt');
const benign = fc.oneof(
  word,
  // Four of these in a row have twelve digits, and a card has thirteen.
  fc.integer({ min: 0, max: 999 }).map(String),
  pick('ü', '\u{1f600}', '"', '\\', '\n', '{x', 'a: b', '100%', 'x = y', 'Chrome/140.0.0.0', '12:30:59'),
);
const benignValue = fc.oneof(
  fc.integer(),
  fc.boolean(),
  fc.constant(null),
  fc.double({ noNaN: true, noDefaultInfinity: true }),
  fc.array(benign, { maxLength: 4 }).map((words) => words.join(' ')),
);

const plantedText: fc.Arbitrary<Planted> = fc
  .array(
    fc.oneof(
      benign.map((text) => [text, false] as const),
      fc.oneof(email, card, ipv4, ipv6).map((text) => [text, true] as const),
    ),
    { minLength: 1, maxLength: 4 },
  )
  .map((parts) => ({
    given: parts.map(([text]) => text).join(', '),
    clean: parts.map(([text, isPrivate]) => (isPrivate ? FILTERED : text)).join(', '),
    gone: parts.filter(([, isPrivate]) => isPrivate).map(([text]) => text),
  }));
const query: fc.Arbitrary<Planted> = fc
  .tuple(word, pick('token', 'password', 'api_key', 'birth_date'), secretText)
  .map(([path, name, value]) => ({
    given: `https://${path}.io/?q=1&${name}=${value}&z=2`,
    clean: `https://${path}.io/?q=1&${name}=${FILTERED}&z=2`,
    gone: [value],
  }));
const cutJson: fc.Arbitrary<Planted> = fc
  .tuple(pick('token', 'userPassword'), secretText)
  .map(([name, value]) => ({
    given: `{"${name}":"${value}","rest":"...`,
    clean: `{"${name}":"${FILTERED}","rest":"...`,
    gone: [value],
  }));
const pair: fc.Arbitrary<Planted> = fc.tuple(secretName, secretText).map(([name, value]) => ({
  given: [name, value],
  clean: [name, FILTERED],
  gone: [value],
}));
const user: fc.Arbitrary<Planted> = fc.tuple(fc.oneof(ipv4, ipv6), word).map(([address, id]) => ({
  given: { ip_address: address, id },
  clean: { ip_address: null, id },
  gone: [address],
}));

const goneOf = (values: readonly Planted[]): string[] => values.flatMap(({ gone }) => gone);

const { tree } = fc.letrec<{
  tree: Planted;
  list: Planted;
  object: Planted;
  inside: Planted;
  secret: Planted;
}>((tie) => ({
  tree: fc.oneof(
    { maxDepth: 4, withCrossShrink: true },
    benignValue.map(kept),
    plantedText,
    query,
    cutJson,
    pair,
    user,
    tie('list'),
    tie('object'),
    tie('inside'),
    tie('secret'),
  ),
  list: fc.array(tie('tree'), { maxLength: 4 }).map((values) => ({
    // A list of two texts is a pair, whose first may be a name.
    given: [0, ...values.map(({ given }) => given)],
    clean: [0, ...values.map(({ clean }) => clean)],
    gone: goneOf(values),
  })),
  object: fc.dictionary(word, tie('tree'), { maxKeys: 4 }).map((members) => ({
    given: Object.fromEntries(Object.entries(members).map(([name, { given }]) => [name, given])),
    clean: Object.fromEntries(Object.entries(members).map(([name, { clean }]) => [name, clean])),
    gone: goneOf(Object.values(members)),
  })),
  inside: fc.oneof(tie('list'), tie('object')).map(({ given, clean, gone }) => ({
    given: JSON.stringify(given),
    clean: JSON.stringify(clean),
    gone,
  })),
  secret: fc
    .tuple(secretName, fc.oneof(secretText, fc.array(secretText), fc.record({ x: secretText })))
    .map(([name, value]) => ({
      given: { [name]: value },
      clean: { [name]: FILTERED },
      gone: typeof value === 'string' ? [value] : Object.values(value),
    })),
}));

/** Other ways to write the same: blanks between tokens, characters as `\u0040`. */
const writing = fc.record({ indent: pick(0, 1), escapes: fc.boolean() });
function written(value: unknown, { indent, escapes }: { indent: number; escapes: boolean }): string {
  const text = JSON.stringify(value, null, indent);
  const escaped = (char: string): string => `\\u${char.charCodeAt(0).toString(16).padStart(4, '0')}`;
  return escapes
    ? text.replace(/[@.=%]/g, (char, at: number) => (isInString(text, at) ? escaped(char) : char))
    : text;
}
/** Quotes before it, but for those that are escaped, are odd. */
const isInString = (text: string, at: number): boolean =>
  (text.slice(0, at).replace(/\\./gs, '').match(/"/g)?.length ?? 0) % 2 === 1;

const OPTIONS = { numRuns: 300 } as const;

it('removes what is planted, and nothing else', () => {
  fc.assert(
    fc.property(tree, writing, ({ given, clean, gone }, how) => {
      const stored = Buffer.from(scrubbed(Buffer.from(written(given, how)), PRIVACY)).toString();
      expect(JSON.parse(stored)).toEqual(JSON.parse(JSON.stringify(clean)));
      for (const text of gone) expect(stored).not.toContain(text);
    }),
    OPTIONS,
  );
});

it('leaves a payload without anything private byte for byte', () => {
  fc.assert(
    fc.property(tree, writing, ({ clean }, how) => {
      const json = Buffer.from(written(clean, how));
      expect(Buffer.from(scrubbed(json, PRIVACY)).equals(json)).toBe(true);
    }),
    OPTIONS,
  );
});

/** Beyond the length at which strings are read, cleaned and written in steps. */
const LARGE_CHARS = 150_000;
const longText: fc.Arbitrary<Planted> = fc
  .array(fc.oneof(plantedText, query, fc.constant(kept('\u{1f600}é "\\n" \\'))), {
    minLength: 1,
    maxLength: 9,
  })
  .map((parts) => {
    const [given, clean] = [parts.map((part) => part.given), parts.map((part) => part.clean)];
    const times = Math.ceil(LARGE_CHARS / given.join(', ').length);
    const long = (texts: unknown[]): string => Array(times).fill(texts.join(', ')).join(', ');
    return { given: long(given), clean: long(clean), gone: goneOf(parts) };
  });

it('removes it from strings of any length, in values, names and JSON in a string', () => {
  const places: ((text: unknown) => unknown)[] = [
    (text) => ({ a: text, b: 1 }),
    (text) => ({ [text as string]: null }),
    (text) => [0, JSON.stringify([0, { a: text }])],
  ];
  fc.assert(
    fc.property(longText, pick(...places), pick('@', '\\u0040'), ({ given, clean }, place, at) => {
      const text = JSON.stringify(place(given)).replaceAll('@', at);
      const stored = Buffer.from(scrubbed(Buffer.from(text), PRIVACY)).toString();
      // Not by toEqual: it would print texts of this length.
      expect(JSON.stringify(JSON.parse(stored)) === JSON.stringify(place(clean))).toBe(true);
    }),
    { numRuns: 20 },
  );
});

it('removes e-mail addresses with signs that are rare', () => {
  fc.assert(
    // A sign that also ends a name in a URL may not be the last of the name.
    fc.property(
      fc.emailAddress().filter((address) => /[\w.~+%!$*^-]@/.test(address)),
      word,
      (address, other) => {
        const json = Buffer.from(JSON.stringify({ [other]: `${other} <${address}>` }));
        expect(Buffer.from(scrubbed(json, PRIVACY)).toString()).not.toContain(address);
      },
    ),
    OPTIONS,
  );
});

/** Every text that a sink writes of an item: the line of `ndjson`, the columns of `postgres`. */
async function writtenBy(type: ItemType, payload: string): Promise<string[]> {
  const bytes =
    type === 'replay_recording'
      ? Buffer.concat([Buffer.from('{"segment_id":0}\n'), gzipSync(payload, { level: 1 })])
      : Buffer.from(payload);
  const header = `{"type":"${type}","content_type":"application/json"}`;
  const entry = envelope([item(type, bytes, { header })], { privacy: PRIVACY });
  const [first] = entry.items;
  const texts: string[] = [];
  for await (const part of partsOf({ ...first, payload: bytes } as WholeItem, new Slices())) {
    const decoded = await new EnvelopeDecoder(entry).decode(part.item);
    if (!decoded.ok || part.fault !== undefined) throw new Error('it is decoded');
    texts.push(...textsOf(decoded.record));
  }
  return texts;
}

function textsOf(record: SinkRecord): string[] {
  const { split, fields, resend } = toSend(record);
  const isBase64 = 'isBase64' in fields;
  const text = isBase64 ? Buffer.from(`${JSON.parse(record.json.toString())}`, 'base64') : record.json;
  const parts = [text, ...(split?.elements ?? []), split?.rest ?? Buffer.from('')];
  return [
    record.head,
    JSON.stringify([fields, resend]),
    ...parts.map((part) => Buffer.from(part).toString()),
  ];
}

/** A request that has each of these in an attribute, and the first also elsewhere. */
function requestOf(type: 'otlp_traces' | 'otlp_logs', given: readonly unknown[]): object {
  const attributes = given.map((one, n) => ({ key: `a${n}`, value: anyValue(one) }));
  const resource = { attributes };
  const scope = { attributes };
  if (type === 'otlp_logs') return logsOf([{ body: anyValue(given[0]), attributes }], { resource, scope });
  return tracesOf([{ ...SPAN, attributes, events: [{ attributes }], links: [{ attributes }] }], {
    resource,
    scope,
  });
}

function anyValue(value: unknown): OtlpJson {
  if (typeof value === 'string') return { stringValue: value };
  if (Array.isArray(value)) return { arrayValue: { values: value.map(anyValue) } };
  if (typeof value !== 'object' || value === null) return { doubleValue: Number(value) };
  const values = Object.entries(value).map(([key, of]) => ({ key, value: anyValue(of) }));
  return { kvlistValue: { values } };
}

it.each(ITEM_TYPES)('leaves nothing of it in any row or column of %s', async (type) => {
  await fc.assert(
    fc.asyncProperty(fc.array(tree, { minLength: 1, maxLength: 5 }), tree, async (values, rest) => {
      const list = values.map(({ given }) => ({ given }));
      const payload =
        type === 'otlp_traces' || type === 'otlp_logs'
          ? requestOf(
              type,
              [...values, rest].map(({ given }) => given),
            )
          : type === 'replay_recording'
            ? list
            : { items: list, rest: rest.given };
      const texts = await writtenBy(type, JSON.stringify(payload));
      const gone = goneOf(type === 'replay_recording' ? values : [...values, rest]);
      for (const text of gone) expect(texts.filter((one) => one.includes(text))).toEqual([]);
    }),
    { numRuns: 25 },
  );
});
