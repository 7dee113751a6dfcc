import { expect, it } from 'vitest';
import { Debts } from '../../src/lib/debts.ts';
import { DEBTS_SWEPT_MIN } from '../../src/limits.ts';

it('debts that are paid are forgotten', () => {
  const debts = new Debts();
  for (let number = 0; number < 3 * DEBTS_SWEPT_MIN; number++) debts.add(`${number}`, 1, number);
  expect(debts.size).toBeLessThanOrEqual(DEBTS_SWEPT_MIN + 1);
});
