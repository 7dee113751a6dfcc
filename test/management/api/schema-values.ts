/** Values that a JSON schema allows, and such that it does not. */
import fc from 'fast-check';
import { matches, type Schema } from '../../deploy/openapi-document.ts';

type ObjectSchema = { properties: Record<string, Schema>; required?: string[] };

/**
 * Values for what docs/openapi-admin.yaml uses in bodies. `isWide`: beside the examples also what only its
 * description forbids, such as a date that no month has.
 */
export function allowed(schema: Schema, isWide = false): fc.Arbitrary<unknown> {
  const { type, pattern, minimum, maximum, items, minItems, anyOf } = schema;
  const inner = (one: Schema): fc.Arbitrary<unknown> => allowed(one, isWide);
  if (schema.enum) return fc.constantFrom(...(schema.enum as unknown[]));
  if (schema.examples && !isWide) return fc.constantFrom(...(schema.examples as unknown[]));
  if (anyOf) return fc.oneof(...(anyOf as Schema[]).map(inner));
  if (type === 'null') return fc.constant(null);
  if (type === 'boolean') return fc.boolean();
  if (type === 'integer') return fc.integer({ min: Number(minimum), max: Number(maximum) });
  if (type === 'string') return pattern ? fc.stringMatching(new RegExp(`${pattern}`)) : fc.string();
  if (type === 'array')
    return fc.uniqueArray(inner(items as Schema), { minLength: Number(minItems ?? 0), maxLength: 3 });
  const { properties, required = [] } = schema as ObjectSchema;
  const fields = Object.entries(properties).map(([name, one]) => [name, inner(one)] as const);
  return fc.record(Object.fromEntries(fields), { requiredKeys: required as never[] });
}

const CANDIDATES = [-1, 0, 7, 1.5, 1e300, '', 'nonsense', 'ü', '007', true, null, [], [7], ['nonsense'], {}];

/** Values that the schema does not allow; there are some for each type. */
export const forbidden = (schema: Schema): unknown[] => CANDIDATES.filter((value) => !matches(schema, value));

/** As text of a query. */
export function forbiddenTexts(schema: Schema): string[] {
  const texts = ['', '-1', '1.5', '1e3', 'nonsense', '99999999999999999999'];
  const isWrong = (text: string): boolean =>
    schema.type === 'integer'
      ? !/^\d+$/.test(text) || !matches(schema, Number(text))
      : !matches(schema, text);
  return texts.filter(isWrong);
}
