import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { FieldPicker } from '../../../src/ingest/filter/pick-fields.ts';
import {
  PICKED_BYTES_MAX,
  PICKED_DEPTH_MAX,
  PICKED_STRING_BYTES_MAX,
  PICKED_STRUCTURE_BYTES_MAX,
} from '../../../src/limits.ts';

/** @param size of the pieces it is fed in; what it was fed is overwritten, as a borrowed chunk is */
function pickedText(text: string, size = 1 << 30): string {
  const picker = new FieldPicker();
  const bytes = Buffer.from(text);
  for (let at = 0; at < bytes.length; at += size) {
    const piece = Buffer.from(bytes.subarray(at, at + size));
    picker.feed(piece);
    piece.fill(0xee);
  }
  return picker.end().toString();
}
const picked = (text: string, size?: number): unknown => JSON.parse(pickedText(text, size));

const FIELDS = ['exception', 'user', 'request'];
const fieldsOf = (payload: object): object =>
  Object.fromEntries(Object.entries(payload).filter(([name]) => FIELDS.includes(name)));

describe('the fields that filters look at', () => {
  it.each([
    ['an object without them', '{"a":1,"b":{"user":2}}', {}],
    [
      'all three',
      '{"user":{"a":1},"x":[1,2],"request":{"url":"u"},"exception":null}',
      { user: { a: 1 }, request: { url: 'u' }, exception: null },
    ],
    ['white space', ' {\n "user" :\t[ 1 , "b" ] , "a" : 1 } ', { user: [1, 'b'] }],
    ['quotes and brackets in strings', '{"a":"\\"}],{","user":"x\\"}\\\\","b":"\\\\"}', { user: 'x"}\\' }],
    ['a name in escapes', '{"\\u0075ser":1,"us\\u0065rs":2}', { user: 1 }],
    ['a name that is a value', '{"a":"user","b":"request"}', {}],
    ['a name twice', '{"user":1,"user":{"b":2}}', { user: { b: 2 } }],
    [
      'a value of each kind',
      '{"user":true,"request":-1.5e3,"exception":"s"}',
      { user: true, request: -1500, exception: 's' },
    ],
    ['no object', '["user",{"user":1}]', {}],
    ['nothing', '', {}],
  ])('are found in %s, whole and byte by byte', (_name, text, expected) => {
    expect(picked(text)).toEqual(expected);
    expect(picked(text, 1)).toEqual(expected);
  });

  it('are those that JSON.parse finds, whatever the payload and the pieces', () => {
    const payload = fc.dictionary(fc.constantFrom(...FIELDS, 'a', 'users', '"', '\\', 'é\n'), fc.jsonValue());
    fc.assert(
      fc.property(payload, fc.integer({ min: 1, max: 50 }), fc.boolean(), (value, size, spaced) => {
        const text = spaced ? JSON.stringify(value, null, 2) : JSON.stringify(value);
        expect(picked(text, size)).toEqual(JSON.parse(JSON.stringify(fieldsOf(value))));
      }),
    );
  });

  it('are found by their names alone, however these are spelled', () => {
    const spelled = fc.constantFrom(...FIELDS).chain((name) => {
      const pieces = [...name].map((char) => {
        const code = char.charCodeAt(0).toString(16).padStart(4, '0');
        const odd = ['', 'x', '\\n', `\\u${code.slice(1)}g`, `\\u0x${code.slice(2)}`, `\\U${code}`];
        const right = [char, `\\u${code}`, `\\u${code.toUpperCase()}`];
        return fc.oneof({ weight: 30, arbitrary: fc.constantFrom(...right) }, fc.constantFrom(...odd));
      });
      return fc.tuple(...pieces).map((parts) => parts.join(''));
    });
    fc.assert(
      fc.property(
        spelled,
        fc.constantFrom('', 'x', '\\'),
        fc.integer({ min: 1, max: 50 }),
        (name, end, size) => {
          const text = `{"a":1,"${name}${end}":2}`;
          let payload = {};
          try {
            payload = JSON.parse(text);
          } catch {
            // No name of ours.
          }
          expect(picked(text, size)).toEqual(fieldsOf(payload));
        },
      ),
      { numRuns: 2000 },
    );
  });

  it('never throw, whatever the bytes', () => {
    const bytes = fc.string({
      unit: fc.constantFrom('{', '}', '[', ']', '"', '\\', ':', ',', 'user', 'u', '1'),
    });
    fc.assert(fc.property(bytes, (text) => pickedText(text, 3).startsWith('{')));
  });
});

describe('the bounds of what is kept', () => {
  it('of a long string the beginning, with its escapes whole', () => {
    const text = 'aé\\u00e9\\n"'.slice(0, -1).repeat(20_000);
    for (const size of [1000, 4097, 1 << 30]) {
      const { user, request } = picked(`{"user":{"a":"${text}","b":1},"request":2}`, size) as {
        user: { a: string; b: number };
        request: number;
      };
      expect([user.b, request]).toEqual([1, 2]);
      const kept = Buffer.byteLength(user.a);
      expect(kept).toBeGreaterThan(PICKED_STRING_BYTES_MAX / 4);
      expect(kept).toBeLessThanOrEqual(PICKED_STRING_BYTES_MAX);
      expect((JSON.parse(`"${text}"`) as string).startsWith(user.a.slice(0, -1))).toBe(true);
    }
  });

  it('nothing of a field that is nested too deep, and the others all the same', () => {
    const nested = (depth: number): string => `${'['.repeat(depth)}${']'.repeat(depth)}`;
    expect(Object.keys(picked(`{"user":${nested(PICKED_DEPTH_MAX - 1)},"request":1}`) as object)).toEqual([
      'user',
      'request',
    ]);
    expect(picked(`{"user":${nested(PICKED_DEPTH_MAX)},"request":1}`)).toEqual({ request: 1 });
  });

  it('nothing of a field with too much between its strings', () => {
    const many = `[${'[],'.repeat((PICKED_STRUCTURE_BYTES_MAX + 6000) / 3)}1]`;
    expect(picked(`{"user":${many},"request":1}`, 5000)).toEqual({ request: 1 });
  });

  it('nothing of a field with too many strings', () => {
    const string = `"${'x'.repeat(PICKED_STRING_BYTES_MAX - 10)}",`;
    const many = `[${string.repeat(PICKED_BYTES_MAX / PICKED_STRING_BYTES_MAX + 1)}1]`;
    expect(picked(`{"user":${many},"request":1}`, 5000)).toEqual({ request: 1 });
  });

  it('nothing behind a hundred fields of ours, which is the same few again and again', () => {
    const users = Array.from({ length: 150 }, (_, n) => `"user":${n + 1}`);
    expect(picked(`{${users},"request":2}`)).toEqual({ user: 100 });
  });

  it('an earlier field of the name does not come back when a later one is over a bound', () => {
    expect(picked(`{"user":1,"user":${'['.repeat(100)}${']'.repeat(100)}}`)).toEqual({});
  });
});
