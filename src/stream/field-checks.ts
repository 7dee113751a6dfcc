/**
 * Shapes of decoded MessagePack values, field by field; each complaint names the field and what was
 * found. Pure.
 */

/**
 * Bytes that are not a frame of this version, or not an entry. `message` says what was expected and
 * what was found.
 */
export class FrameError extends Error {
  override name = 'FrameError';
}

/** Returns the value as a T, or throws FrameError with `what`. */
export type Checked<T> = (value: unknown, what: string) => T;

export function fail(what: string, value: unknown): never {
  const found = value === null ? 'nil' : Array.isArray(value) ? `array of ${value.length}` : typeof value;
  throw new FrameError(`${what} expected, found ${found}`);
}

export const text: Checked<string> = (value, what) => (typeof value === 'string' ? value : fail(what, value));
export const bytes: Checked<Uint8Array> = (value, what) =>
  value instanceof Uint8Array ? value : fail(what, value);
export const count: Checked<number> = (value, what) =>
  Number.isSafeInteger(value) && (value as number) >= 0 ? (value as number) : fail(what, value);

export function tuple(value: unknown, length: number, what: string): readonly unknown[] {
  return Array.isArray(value) && value.length === length ? value : fail(`${what}: array of ${length}`, value);
}

export function list<T>(value: unknown, one: Checked<T>, what: string): T[] {
  return Array.isArray(value) ? value.map((each) => one(each, what)) : fail(`${what}: array`, value);
}
