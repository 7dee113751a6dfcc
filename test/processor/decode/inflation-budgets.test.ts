import { beforeEach, expect, it } from 'vitest';
import {
  INFLATION_BUDGET_BYTES as BUDGET,
  INFLATION_FREE_BYTES as FREE,
  INFLATION_BUDGET_BYTES_PER_SEC as PER_SEC,
} from '../../../src/limits.ts';
import { InflationBudgets } from '../../../src/processor/decode/inflation-budgets.ts';

let ms = 0;
let budgets: InflationBudgets;
beforeEach(() => {
  ms = 5_000;
  budgets = new InflationBudgets(() => ms);
});
/** A recording of 1 KiB that inflates to these bytes, in two pieces. */
function inflates(projectId: string, bytes: number): boolean {
  const mayInflate = budgets.draft(projectId, 1024);
  return mayInflate(bytes / 2) && mayInflate(bytes);
}

it('leaves alone what swells to a MiB, or to 16 times its bytes', () => {
  for (let n = 0; n < 1_000; n++) {
    expect(inflates('7', FREE)).toBe(true);
    expect(budgets.draft('7', BUDGET)(16 * BUDGET)).toBe(true);
  }
  expect(inflates('7', BUDGET)).toBe(true);
});

it('gives a project all of its budget at once, and then what comes back by the second', () => {
  expect(inflates('7', BUDGET)).toBe(true);
  expect(inflates('7', 2 * FREE)).toBe(false);
  ms += 2_000;
  expect(inflates('7', 2 * PER_SEC)).toBe(true);
  ms += 1_000;
  expect(inflates('7', 2 * PER_SEC)).toBe(false);
  ms += 3_600_000;
  expect(inflates('7', BUDGET + 2)).toBe(false);
  ms += 3_600_000;
  expect([inflates('7', BUDGET), inflates('7', 2 * FREE)]).toEqual([true, false]);
});

it('keeps what a recording took that did not fit', () => {
  expect(inflates('7', BUDGET + 2)).toBe(false);
  expect(inflates('7', 2 * FREE)).toBe(false);
});

it('is one for each project, also among many', () => {
  for (let project = 0; project < 5_000; project++) expect(inflates(`${project}`, BUDGET)).toBe(true);
  for (let project = 0; project < 5_000; project++) expect(inflates(`${project}`, BUDGET)).toBe(false);
});
