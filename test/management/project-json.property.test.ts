import fc from 'fast-check';
import { expect, it } from 'vitest';
import {
  fieldProblems,
  inOurWords,
  keyPatchSchema,
  newKeySchema,
  newProjectSchema,
  patchSchema,
} from '../../src/management/project-json.ts';
import { rounds } from '../support/rounds.ts';

/** Words of zod, the validator, as `Invalid input: expected string, received number`. */
const FOREIGN =
  /Invalid|xpected|received|Too (big|small)|nrecognized|must match|pattern|NaN|undefined|schema/;
const RUNS = rounds(2_000, 150);
const SCHEMAS = { newProjectSchema, patchSchema, newKeySchema, keyPatchSchema };

it.each(Object.entries(SCHEMAS))('%s says what is wrong in words of the product', (_name, schema) => {
  const names = Object.keys(schema.shape);
  const text = fc.oneof(fc.string(), fc.constantFrom('', 'x'.repeat(500), '2027-02-31', '1e3', '-1', 'none'));
  const number = fc.oneof(fc.double(), fc.integer(), fc.constantFrom(1e300, -0, 1.5));
  const simple = fc.oneof(text, number, fc.boolean(), fc.constant(null));
  const value = fc.oneof(
    simple,
    fc.array(simple, { maxLength: 150, size: 'max' }),
    fc.dictionary(
      fc.oneof(fc.constantFrom('key', 'label', 'expires', 'rateLimit', 'logs', 'colour'), text),
      simple,
    ),
    fc.array(fc.dictionary(fc.constantFrom('key', 'label', 'expires', 'rateLimit', 'colour'), simple)),
  );
  const body = fc.oneof(simple, fc.dictionary(fc.constantFrom('colour', ...names), value));
  let wrong = 0;
  fc.assert(
    fc.property(body, (given) => {
      const parsed = schema.safeParse(given, { error: inOurWords });
      if (parsed.success) return;
      for (const { detail } of fieldProblems(parsed.error)) expect(detail).not.toMatch(FOREIGN);
      wrong++;
    }),
    { numRuns: RUNS },
  );
  expect(wrong).toBeGreaterThan(RUNS / 2);
});
