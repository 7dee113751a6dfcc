import fc from 'fast-check';
import { expect, it } from 'vitest';
import { frameKey, KEY_BYTES, type RowPlace, rowKey } from '../../src/sink/item-key.ts';

const place = (numberMax: number): fc.Arbitrary<RowPlace> => {
  const number = fc.nat(numberMax);
  return fc.record({ entry: number, item: number, element: fc.option(number, { nil: undefined }) });
};

it('is the same for the same frame and place, and another for every other one', () => {
  const some = fc.tuple(fc.constantFrom('w1:1', 'w1:2', 'SLUICE_EVENTS:7'), place(3));
  const keyOf = ([frameId, of]: [string, RowPlace]): string => rowKey(frameKey(frameId), of).toString('hex');
  fc.assert(
    fc.property(some, some, (one, other) => {
      expect(keyOf(one) === keyOf(other)).toBe(JSON.stringify(one) === JSON.stringify(other));
    }),
  );
});

it('has 128 bits wherever the row is', () => {
  fc.assert(
    fc.property(place(200_000), (of) => {
      expect(rowKey(frameKey('f'), of)).toHaveLength(KEY_BYTES);
    }),
  );
  const far = [65_535, 65_536, 65_537].map((item) =>
    rowKey(frameKey('f'), { entry: 0, item }).toString('hex'),
  );
  expect(new Set(far).size).toBe(3);
});

it('never changes: stored rows would come twice', () => {
  expect(rowKey(frameKey('w1:1'), { entry: 2, item: 3, element: 4 }).toString('hex')).toBe(
    'dc19bfa3b2a4b36ed5d5000200030004',
  );
  expect(rowKey(frameKey('w1:1'), { entry: 2, item: 3 }).toString('hex')).toBe(
    'dc19bfa3b2a4b36ed5d500020003ffff',
  );
});
