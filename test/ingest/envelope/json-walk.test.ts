import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { JsonWalk } from '../../../src/ingest/envelope/json-walk.ts';
import { JSON_DEPTH_MAX } from '../../../src/limits.ts';
import { bytesOf, cutAtRandom, seeded, singleBytes } from './bodies.ts';

const RUNS = { numRuns: 300, seed: 20_261_127 };

/** What a walk tells, with places counted from the beginning of the text; or why it is no JSON. */
function walk(chunks: readonly Uint8Array[]): string {
  const told: string[] = [];
  let before = 0;
  const tell =
    (what: string) =>
    (depth: number, at: number): void =>
      void told.push(`${what}${depth}@${before + at}`);
  const names = (what: string) => (at: number) => tell(what)(1, at);
  const walked = new JsonWalk({
    valueBegin: tell('<'),
    valueEnd: tell('>'),
    nameBegin: names('('),
    nameEnd: names(')'),
  });
  for (const chunk of chunks) {
    if (walked.feed(chunk)) break;
    before += chunk.length;
  }
  return walked.end() ?? told.join(' ');
}

/** Whether JSON.parse takes a text of ASCII. */
function isJson(text: string): boolean {
  try {
    JSON.parse(text);
    return true;
  } catch {
    return false;
  }
}

const nested = (depth: number): string => `${'['.repeat(depth)}${']'.repeat(depth)}`;

describe('a walk', () => {
  test.each([
    ['{"a":[1,{"b":2}],"c":-0.5e+3}', '<0@0 (1@1 )1@4 <1@5 >1@16 (1@17 )1@20 <1@21 >1@28 >0@29'],
    [' [true , null]\n', '<0@1 <1@2 >1@6 <1@9 >1@13 >0@14'],
    ['12', '<0@0 >0@2'],
    ['"\\u00e9\\n"', '<0@0 >0@10'],
    ['{}', '<0@0 >0@2'],
  ])('of %s tells where values and names are, however the text is cut', (text, told) => {
    const bytes = bytesOf(text);
    expect(walk([bytes])).toBe(told);
    expect(walk(singleBytes(bytes))).toBe(told);
  });

  test.each(
    '|{|[|{}}|[1,]|[,1]|{"a"}|{"a":}|{"a":1,}|{a:1}|{"a" 1}|[1 2]|01|-|1.|.5|1e|1e+|+1|tru|truth|nul|NaN|Infinity|"|"\\x"|"\\u12g4"|"\t"|{"a":1]|[1}|{} {}|\'a\'|1 2'.split(
      '|',
    ),
  )('of %j finds no JSON, however it is cut', (text) => {
    expect(isJson(text)).toBe(false);
    expect(walk([bytesOf(text)])).toBe('no JSON');
    expect(walk(singleBytes(bytesOf(text)))).toBe('no JSON');
  });

  test.each([
    [[0xc3, 0xa9], true],
    [[0xe2, 0x82, 0xac, 0xf0, 0x9f, 0x9a, 0xb0], true],
    [[0xe9], false],
    [[0xc3, 0x28], false],
    [[0x80], false],
    [[0xf0, 0x9f, 0x9a], false],
    [[0xc0, 0x80], false],
    [[0xed, 0xa0, 0x80], false],
    [[0xff], false],
  ])('of a string with the bytes %j finds UTF-8: %s', (bytes, isUtf8) => {
    const text = Buffer.from([0x22, ...bytes, 0x22]);
    const told = isUtf8 ? `<0@0 >0@${text.length}` : 'no JSON';
    expect(walk([text])).toBe(told);
    expect(walk(singleBytes(text))).toBe(told);
    for (let cut = 1; cut < text.length; cut++)
      expect(walk([text.subarray(0, cut), text.subarray(cut)])).toBe(told);
  });

  test('bears as many open brackets as its bound, and no more', () => {
    expect(walk([bytesOf(nested(JSON_DEPTH_MAX))])).toContain('>0');
    expect(walk([bytesOf(nested(JSON_DEPTH_MAX + 1))])).toBe('too deep');
    expect(walk(singleBytes(bytesOf('[{"a":'.repeat(JSON_DEPTH_MAX))))).toBe('too deep');
  });
});

describe('any text', () => {
  test('is JSON to a walk when JSON.parse takes it, and is told alike however it is cut', () => {
    const text = fc
      .tuple(fc.json(), fc.nat(), fc.constantFrom(...' {}[],:"\\0159-.eEtrufalsn\n\t'))
      .chain(([json, at, char]) => {
        const place = at % (json.length + 1);
        return fc.constantFrom(
          json,
          json.slice(0, place),
          json.slice(0, place) + char + json.slice(place),
          json.slice(0, place) + char + json.slice(place + 1),
        );
      });
    fc.assert(
      fc.property(text, fc.nat(), (json, seed) => {
        const bytes = bytesOf(json);
        const whole = walk([bytes]);
        expect(whole !== 'no JSON').toBe(isJson(json));
        expect(walk(singleBytes(bytes))).toBe(whole);
        expect(walk(cutAtRandom(bytes, seeded(seed)))).toBe(whole);
      }),
      RUNS,
    );
  });
});
