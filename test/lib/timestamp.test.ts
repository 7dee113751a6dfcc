import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { moment, rfc3339 } from '../../src/lib/timestamp.ts';

/**
 * What the language makes of a text that says where it ends, of a day that the month has. Date also takes 24:00:00, the end of a day, which
 * RFC 3339 has not.
 */
const byDate = (text: string): { ms: number; text: string } | undefined => {
  const ms = text.slice(11, 13) === '24' ? Number.NaN : Date.parse(text);
  const startOfDay = Date.parse(`${text.slice(0, 10)}T00:00:00.000Z`);
  if (Number.isNaN(ms) || rfc3339(startOfDay).slice(0, 10) !== text.slice(0, 10)) return undefined;
  return { ms, text: rfc3339(ms) };
};

describe("a client's timestamp", () => {
  it.each([
    ['2026-01-02T03:04:05.678Z', '2026-01-02T03:04:05.678Z'],
    ['2026-01-02T03:04:05.1+02:00', '2026-01-02T01:04:05.100Z'],
    ['2026-01-02 03:04:05', '2026-01-02T03:04:05.000Z'],
    ['1767323045.5', '2026-01-02T03:04:05.500Z'],
    ['2024-02-29T00:00:00.000Z', '2024-02-29T00:00:00.000Z'],
    ['0099-12-31T23:59:59.999Z', '0099-12-31T23:59:59.999Z'],
  ])('%s is %s', (text, expected) => {
    expect(moment(text)).toEqual({ ms: Date.parse(expected), text: expected });
  });

  it.each([
    '',
    'yesterday',
    '2026-13-01T00:00:00.000Z',
    '2026-00-01T00:00:00.000Z',
    '2026-01-01T00:60:00.000Z',
    '2026-01-01T24:00:00.000Z',
    '2026-01-01T24:00:00Z',
    '2026-02-30T00:00:00.000Z',
    '2026-02-29T00:00:00.000Z',
    '2026-02-30T00:00:00Z',
    '2026-02-30 00:00:00',
    '2026-04-31T00:00:00+02:00',
    '2026-06-00T00:00:00Z',
  ])('%j is no moment', (text) => {
    expect(moment(text)).toBeUndefined();
  });

  it('is what Date makes of it, whatever its fields say', () => {
    const field = (length: number, max: number) =>
      fc.integer({ min: 0, max }).map((value) => `${value}`.padStart(length, '0'));
    const fields = fc.tuple(
      field(4, 9999),
      field(2, 14),
      field(2, 33),
      field(2, 25),
      field(2, 61),
      field(2, 61),
    );
    fc.assert(
      fc.property(fields, field(3, 999), ([year, month, day, hour, minute, second], ms) => {
        const text = `${year}-${month}-${day}T${hour}:${minute}:${second}.${ms}Z`;
        expect(moment(text), text).toEqual(byDate(text));
      }),
      { numRuns: 20_000 },
    );
  });
});
