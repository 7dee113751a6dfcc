import { describe, expect, it } from 'vitest';
import { printJson, record, table } from '../../src/commands/print.ts';

const MANY = 200_000;

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
    const rows = Array.from({ length: MANY }, (_, n) => [`${n}`, 'x']);
    const lines = table(['ID', 'WHAT'], rows).split('\n');
    expect(lines).toHaveLength(1 + MANY);
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
    const value = Array.from({ length: MANY }, (_, n) => letter(n));
    const pieces = piecesOf(() => printJson(value));
    expect(Math.max(...pieces.map(({ length }) => length))).toBeLessThan(1024 * 1024);
    expect(JSON.parse(pieces.join(''))).toEqual(JSON.parse(JSON.stringify(value)));
  });
});
