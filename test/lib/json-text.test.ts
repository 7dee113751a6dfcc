import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { jsonScan, jsonText, jsonTextInSteps } from '../../src/lib/json-text.ts';
import { atOnce } from '../../src/lib/slices.ts';
import { rounds } from '../support/rounds.ts';

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

  const NONE =
    '| |{|}|[|]|[1,]|[,1]|[1 2]|{"a"}|{"a":}|{"a":1,}|{a:1}|{"a":1]|[1}|01|-|1.|.5|1e|1e+|+1|0x1|NaN|' +
    'Infinity|tru|truex|nullnull|"|"\\"|"\\x"|"\\u12g4"|"\\u12|"\n"|"\t"|\'a\'|{} {}|[]]|1 2|/*c*/1|' +
    '\ufeff{}|\u00a01';
  it.each(NONE.split('|'))('%j is none', (text) => {
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
      { numRuns: rounds(5_000, 1_500) },
    );
  });

  it('is what JSON.parse takes: for random texts of its alphabet', () => {
    const text = fc.string({ unit: fc.constantFrom(...'{}[]",:01.e-tn\\ '), maxLength: 8 });
    fc.assert(
      fc.property(text, (some) => {
        expect(jsonText(bytes(some)).ok, JSON.stringify(some)).toBe(parses(some));
      }),
      { numRuns: rounds(20_000, 5_000) },
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

describe('read bit by bit', () => {
  const { ValueScan, skipValue } = jsonScan;
  const scanned = (text: Uint8Array, bytesAtATime: number): number => {
    const scan = new ValueScan(text, 0);
    while (!scan.run(scan.at + bytesAtATime));
    return scan.at;
  };

  it('is what it is when it is read at once, wherever the scan pauses', () => {
    const signs = fc.string({ unit: fc.constantFrom(...'{}[]",:01.e-tn\\ '), maxLength: 12 });
    const texts = fc.oneof(fc.json({ maxDepth: 6 }), signs);
    fc.assert(
      fc.property(texts, fc.nat(4), fc.integer({ min: 1, max: 5 }), (some, indent, bytesAtATime) => {
        const text = bytes(parses(some) ? JSON.stringify(JSON.parse(some), null, indent) : some);
        expect(scanned(text, bytesAtATime)).toBe(skipValue(text, 0));
      }),
      { numRuns: rounds(5_000, 1_500) },
    );
  });

  it('is known in many steps where it is large, with characters across their ends', () => {
    for (const unit of ['"€a", ', '[[[[1]]]],\n', '{"\u{1f600}é":[]},']) {
      const text = bytes(`[${unit.repeat(150_000)}1]`);
      const steps = jsonTextInSteps(text);
      let count = 0;
      while (!steps.next().done) count++;
      expect(count).toBeGreaterThan(4);
      const found = jsonText(text);
      expect(found).toMatchObject({ ok: true, kind: 'array' });
      expect(JSON.parse(Buffer.from(lineOf(text)).toString())).toHaveLength(150_001);
      expect(atOnce(jsonTextInSteps(text.subarray(0, -1)))).toEqual({ ok: false, reason: 'not valid JSON' });
    }
    const broken = Buffer.concat([bytes(`["${'a'.repeat(600_000)}`), Uint8Array.of(0xc3), bytes('"]')]);
    expect(jsonText(broken)).toEqual({ ok: false, reason: 'not valid UTF-8' });
  });
});
