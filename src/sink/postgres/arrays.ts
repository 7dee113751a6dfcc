/**
 * Makes an array of a column's values, as a parameter in PostgreSQL's binary form. In the text
 * form, the driver would quote every payload character by character.
 *
 * The binary form begins with the number of dimensions, whether there are nulls, the elements'
 * type, their number and the lower bound. Then come the length and the bytes of each element.
 */

const BYTEA_OID = 17;
const TEXT_OID = 25;
const FLOAT8_OID = 701;
const HEAD_BYTES = 20;
/** Matches NUL, which no column of type text can hold. Only texts that are not JSON have it. */
const NUL = /\0/g;

function header(
  out: Buffer,
  type: number,
  { count, hasNulls }: { count: number; hasNulls: boolean },
): number {
  let at = 0;
  for (const number of [1, hasNulls ? 1 : 0, type, count, 1]) at = out.writeInt32BE(number, at);
  return at;
}

function bytesArray(type: number, elements: readonly (Uint8Array | undefined)[]): Buffer {
  const bytes = elements.reduce((sum, element) => sum + 4 + (element?.length ?? 0), HEAD_BYTES);
  const out = Buffer.allocUnsafe(bytes);
  let at = header(out, type, { count: elements.length, hasNulls: elements.includes(undefined) });
  for (const element of elements) {
    at = out.writeInt32BE(element?.length ?? -1, at);
    if (!element) continue;
    out.set(element, at);
    at += element.length;
  }
  return out;
}

/** Makes a parameter for `$n::text[]`. Values that are bytes must be UTF-8 without NUL. */
export const textArray = (values: readonly (string | Uint8Array | undefined)[]): Buffer =>
  bytesArray(
    TEXT_OID,
    values.map((value) => (typeof value === 'string' ? Buffer.from(value.replace(NUL, '\ufffd')) : value)),
  );

/** Makes a parameter for `$n::bytea[]`. */
export const keyArray = (keys: readonly Uint8Array[]): Buffer => bytesArray(BYTEA_OID, keys);

/** Makes a parameter for `$n::float8[]`, which holds safe integers exactly. */
export function numberArray(values: readonly (number | undefined)[]): Buffer {
  const count = values.length;
  const hasNulls = values.includes(undefined);
  const out = Buffer.allocUnsafe(HEAD_BYTES + count * 12);
  let at = header(out, FLOAT8_OID, { count, hasNulls });
  for (const value of values) {
    at = out.writeInt32BE(value === undefined ? -1 : 8, at);
    if (value !== undefined) at = out.writeDoubleBE(value, at);
  }
  return out.subarray(0, at);
}
