import { describe, expect, it } from 'vitest';
import { printJson, printLine, record, table } from '../../src/commands/print.ts';

/** What `print` writes, piece by piece. */
function piecesOf(print: () => void): string[] {
  const pieces: string[] = [];
  const { write } = process.stdout;
  process.stdout.write = (text: string | Uint8Array) => {
    pieces.push(`${text}`);
    return true;
  };
  try {
    print();
  } finally {
    process.stdout.write = write;
  }
  return pieces;
}

describe('a table', () => {
  it('has columns as wide as their widest cell, figures to the right', () => {
    const rows = [
      ['a', '1', 'x'],
      ['long', '100', ''],
    ];
    expect(table(['ID', 'N', 'WHAT'], rows, ['N'])).toBe(
      ['ID      N  WHAT', 'a       1  x', 'long  100'].join('\n'),
    );
  });

  it('may have very many rows', () => {
    const many = 200_000;
    const rows = Array.from({ length: many }, (_, n) => [`${n}`, 'x']);
    const lines = table(['ID', 'WHAT'], rows).split('\n');
    expect(lines).toHaveLength(1 + many);
    expect(lines[0]).toBe('ID      WHAT');
    expect(lines.at(-1)).toBe('199999  x');
  });
});

describe('a record', () => {
  it('has its names aligned', () => {
    const pairs = [['id', '1'] as const, ['project', ''] as const, ['month', '2'] as const];
    expect(record(pairs)).toBe(['id       1', 'project', 'month    2'].join('\n'));
  });
});

describe('JSON', () => {
  const letter = (n: number) => ({ id: `${n}`, reason: 'a "b"\n]', nested: [{ n }, []], none: undefined });

  it.each([0, 1, 999, 1_000, 1_001, 2_000, 2_001])('of %i elements is what JSON.stringify says', (count) => {
    const value = Array.from({ length: count }, (_, n) => (n % 7 === 6 ? undefined : letter(n)));
    expect(piecesOf(() => printJson(value)).join('')).toBe(`${JSON.stringify(value, null, 2)}\n`);
  });

  it('of one thing is that', () => {
    expect(piecesOf(() => printJson({ a: [1] }))).toEqual(['{\n  "a": [\n    1\n  ]\n}\n']);
  });

  it('of very many elements goes out in pieces, so that no string holds them all', () => {
    const value = Array.from({ length: 20_000 }, (_, n) => letter(n));
    const whole = JSON.stringify(value, null, 2);
    const pieces = piecesOf(() => printJson(value));
    expect(Math.max(...pieces.map(({ length }) => length))).toBeLessThan(whole.length / 10);
    expect(pieces.join('') === `${whole}\n`).toBe(true);
  });
});

describe('text that somebody else wrote', () => {
  const CONTROLS = Array.from({ length: 0xa0 }, (_, code) => String.fromCharCode(code)).filter((char) =>
    /\p{Cc}/u.test(char),
  );
  const BIDI = [
    ...'\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\u2028\u2029\ufeff',
  ];
  const EVIL = [...CONTROLS, ...BIDI, '\u{e0041}', '\ud800'].join('x');
  const printed = (print: () => void): string => piecesOf(print).join('');
  const steering = /[^\P{Cc}\n\t]|[^\P{Cf}\u200c\u200d]|[\u2028\u2029]|\p{Cs}/u;

  it('steers no terminal, and adds no line to a table or a record', () => {
    const lines = printed(() =>
      printLine(`${table(['ID', 'LABEL'], [['1', EVIL]])}\n${record([['label', EVIL]])}`),
    ).split('\n');
    expect(lines).toHaveLength(4);
    for (const line of lines) expect(line).not.toMatch(/[\p{Cc}\u2028\u2029\u202e\u2066]/u);
    expect(lines[1]).toContain(String.raw`\u001bx`);
    expect(lines[1]).toContain(String.raw`\nx`);
    expect(lines[1]).toContain(String.raw`\u202ex`);
  });

  it('steers none in free text either, whose lines and tabs stay', () => {
    const text = printed(() => printLine(`a\n\tb${EVIL}`));
    expect(text).not.toMatch(steering);
    expect(text).toMatch(/^a\n\tb/);
  });

  it('is the same value in JSON', () => {
    const text = printed(() => printJson({ label: EVIL.replace('\ud800', '') }));
    expect(text).not.toMatch(steering);
    expect(JSON.parse(text)).toEqual({ label: EVIL.replace('\ud800', '') });
  });

  it('keeps letters of all writings, and joined ones', () => {
    const text = 'Grüße, 東京, שלום, می\u200cخواهم, 👩\u200d🚀';
    expect(printed(() => printLine(text))).toBe(`${text}\n`);
  });
});
