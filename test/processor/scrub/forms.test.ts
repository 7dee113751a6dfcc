/** The forms in which applications send secrets: by kind, each with every name and value that it may have. */
import { describe, expect, it } from 'vitest';
import { scrubbed } from '../../../src/processor/scrub/scrubber.ts';
import { SCRUBS } from '../../../src/stream/frame.ts';

const clean = (value: unknown): string =>
  Buffer.from(scrubbed(Buffer.from(JSON.stringify(value)), { scrub: SCRUBS, names: ['pin'] })).toString();

const NAMES = [
  'password',
  'pass',
  'auth',
  'tokens',
  'api_keys',
  'passwordhash',
  'x-api-key',
  'Authorization',
  'Cookie',
  'pin',
];
const SECRET = 'hunter2Zq';
const encoded = (name: string): string =>
  name.replace(/[a-z]/i, (letter) => `%${letter.charCodeAt(0).toString(16)}`);

const FORMS: readonly (readonly [string, (name: string) => unknown])[] = [
  ['a member', (name) => ({ [name]: SECRET })],
  ['a member with an object', (name) => ({ [name]: { a: [SECRET] } })],
  ['a pair', (name) => [[name, SECRET]]],
  ['a pair with a list', (name) => [[name, [`sid=${SECRET}`, 'b']]]],
  ['a pair with an object', (name) => [[name, { sid: SECRET }]]],
  ['a name and its value', (name) => ({ name, value: SECRET })],
  ['a value and its name', (name) => [{ a: 1, value: SECRET, name }]],
  ['a value and its key', (name) => ({ value: SECRET, key: name, b: 1 })],
  ['a name and its values', (name) => [{ a: 1, name, values: [SECRET] }]],
  ['a key and an object', (name) => ({ key: name, value: { a: { b: SECRET } } })],
  ['an attribute', (name) => ({ attributes: { [name]: { value: SECRET, type: 'string' } } })],
  ['a query', (name) => `/a?b=1&${name}=${SECRET}&c=2`],
  ['an encoded name in a query', (name) => `/a?b=1&${encoded(name)}=${SECRET}&c=2`],
  ['cookies', (name) => `a=b; ${name}=${SECRET}; c=d`],
  ['JSON in a string', (name) => JSON.stringify([{ [name]: SECRET }])],
  ['JSON that was cut off', (name) => `{"${name}":"${SECRET}","a":"..`],
  ...['url.full', 'url.query', 'http.query'].map(
    (attribute) =>
      [
        `the attribute ${attribute}`,
        (name: string) => ({
          attributes: { [attribute]: { value: `?a=1&${name}=${SECRET}`, type: 'string' } },
        }),
      ] as const,
  ),
];

describe.each(FORMS)('%s', (_form, of) => {
  it.each(NAMES)('%s is removed', (name) => {
    const text = clean(of(name));
    expect(text).not.toContain(SECRET);
    expect(text).toContain('[Filtered]');
    expect(clean(JSON.parse(text))).toBe(text);
  });
});

it.each([
  ...['http', 'https', 'postgres', 'redis', 'amqp'].map((scheme) => [
    `${scheme}://bob:${SECRET}@db/path`,
    `${scheme}://bob:[Filtered]@db/path`,
  ]),
  [`at redis://:${SECRET}@10-0-0-1:6379 failed`, 'at redis://:[Filtered]@10-0-0-1:6379 failed'],
  [`x://u:${SECRET}@${SECRET}@h`, 'x://u:[Filtered]@h'],
  ...['Bearer', 'Basic', 'Token', 'Digest'].flatMap((scheme) =>
    ['', ' ', '  '].map((gap) => [
      `authorization:${gap}${scheme} ${SECRET}`,
      `authorization:${gap}[Filtered]`,
    ]),
  ),
  ...['.', '\u00a0', '\u2009', '\u202f', '  ', ' ', '-', ''].flatMap((gap) => [
    [`card ${['4242', '4242', '4242', '4242'].join(gap)}!`, 'card [Filtered]!'],
    [`card ${['3782', '822463', '10005'].join(gap)}!`, 'card [Filtered]!'],
  ]),
])('%j becomes %j', (text, expected) => {
  expect(JSON.parse(clean(text))).toBe(expected);
});

it.each([
  { name: 'GET /users', value: 'x' },
  { key: 'region', value: { a: 1 } },
  { value: 'x', type: 'string' },
  [['Accept', ['text/html']]],
  'https://example.com:8080/a@b',
  '4.2424242424242',
  '4242.4242.4242.4241',
  'tests: pass 12',
  { max_tokens: 5, pass_rate: 1, auth_type: 'oauth' },
])('%j stays', (value) => {
  expect(clean(value)).toBe(JSON.stringify(value));
});
