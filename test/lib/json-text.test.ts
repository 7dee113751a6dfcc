import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { jsonText } from '../../src/lib/json-text.ts';

const bytes = (text: string): Uint8Array => new Uint8Array(Buffer.from(text));

function lineOf(text: Uint8Array): Uint8Array {
  const found = jsonText(text);
  if (!found.ok) throw new Error(found.reason);
  return found.line;
}

function parses(text: string): boolean {
  try {
    JSON.parse(text);
    return true;
  } catch {
    return false;
  }
}

describe('a JSON text', () => {
  it.each([
    ['{}', 'object'],
    [' \t\r\n[ ] ', 'array'],
    ['[[],[[]],{"a":{"b":[]}}]', 'array'],
    ['{"a":1,"a":2,"":null}', 'object'],
    ['"\\u00e9\\n\\/ \u2028"', 'scalar'],
    ['"\\ud800"', 'scalar'],
    ['-0', 'scalar'],
    ['123456789012345678901234567890.5e-400', 'scalar'],
    ['1E+2', 'scalar'],
    ['true', 'scalar'],
    ['null', 'scalar'],
  ])('%j is one, of kind %s', (text, kind) => {
    expect(jsonText(bytes(text))).toMatchObject({ ok: true, kind });
  });

  it.each([
    '',
    ' ',
    '{',
    '}',
    '[',
    ']',
    '[1,]',
    '[,1]',
    '[1 2]',
    '{"a"}',
    '{"a":}',
    '{"a":1,}',
    '{a:1}',
    '{"a":1]',
    '[1}',
    '01',
    '-',
    '1.',
    '.5',
    '1e',
    '1e+',
    '+1',
    '0x1',
    'NaN',
    'Infinity',
    'tru',
    'truex',
    'nullnull',
    '"',
    '"\\"',
    '"\\x"',
    '"\\u12g4"',
    '"\\u12',
    '"\n"',
    '"\t"',
    "'a'",
    '{} {}',
    '[]]',
    '1 2',
    '/*c*/1',
    '\ufeff{}',
    '\u00a01',
  ])('%j is none', (text) => {
    expect(jsonText(bytes(text)).ok).toBe(false);
  });

  it('is never bytes that are no UTF-8, such as a lone surrogate or an overlong form', () => {
    for (const broken of [[0xff], [0xed, 0xa0, 0x80], [0xc0, 0xaf], [0xe2, 0x82]])
      expect(jsonText(Uint8Array.of(0x22, ...broken, 0x22))).toEqual({
        ok: false,
        reason: 'not valid UTF-8',
      });
  });

  it('is what JSON.parse takes: for values with random whitespace', () => {
    fc.assert(
      fc.property(fc.json({ maxDepth: 6 }), fc.integer({ min: 0, max: 4 }), (json, indent) => {
        const text = JSON.stringify(JSON.parse(json), null, indent);
        const line = Buffer.from(lineOf(bytes(text))).toString();
        expect(line).not.toContain('\n');
        expect(JSON.parse(line)).toEqual(JSON.parse(json));
      }),
      { numRuns: 300 },
    );
  });

  it('is what JSON.parse takes: for valid texts with one character put in, taken out or replaced', () => {
    const alphabet = fc.constantFrom(...'{}[]",:0123456789.eE+-truefalsn\\ \n\tu/bx\u0001é');
    const change = fc.tuple(fc.nat(), fc.constantFrom('insert', 'remove', 'replace'), alphabet);
    fc.assert(
      fc.property(fc.json({ maxDepth: 3 }), change, (json, [where, how, char]) => {
        const at = where % (json.length + 1);
        const text =
          json.slice(0, at) + (how === 'remove' ? '' : char) + json.slice(how === 'insert' ? at : at + 1);
        const sent = bytes(text);
        const arrived = Buffer.from(sent).toString(); // half a surrogate pair does not survive
        expect(jsonText(sent).ok, JSON.stringify(text)).toBe(parses(arrived));
      }),
      { numRuns: 5_000 },
    );
  });

  it('is what JSON.parse takes: for random texts of its alphabet', () => {
    const text = fc.string({ unit: fc.constantFrom(...'{}[]",:01.e-tn\\ '), maxLength: 8 });
    fc.assert(
      fc.property(text, (some) => {
        expect(jsonText(bytes(some)).ok, JSON.stringify(some)).toBe(parses(some));
      }),
      { numRuns: 20_000 },
    );
  });

  it('may be nested as deep as it is long', () => {
    const depth = 1_000_000;
    expect(jsonText(bytes('['.repeat(depth) + ']'.repeat(depth)))).toMatchObject({ ok: true, kind: 'array' });
    expect(jsonText(bytes('['.repeat(depth))).ok).toBe(false);
  });
});

describe('on one line', () => {
  it('a text without line breaks is not copied', () => {
    const text = bytes('{"a": "\\n",\t"b":[ ]} ');
    expect(lineOf(text)).toBe(text);
  });

  it.each([
    ['[\r\n1,\n2]', '[  1, 2]'],
    ['[1,\r2]', '[1, 2]'],
    ['\n1', ' 1'],
    ['1\n', '1 '],
    ['{\r"a"\n:1}', '{ "a" :1}'],
    ['{ "a":\n1\r,"b":[\n]}', '{ "a": 1 ,"b":[ ]}'],
  ])('%j becomes %j', (text, line) => {
    expect(Buffer.from(lineOf(bytes(text))).toString()).toBe(line);
  });
});
