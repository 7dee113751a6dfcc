/** Changes that commands make to the keys of a project's record. Pure. */
import { PROJECT_KEYS_MAX } from '../limits.ts';
import { ConflictError, UnknownNameError } from './names.ts';
import { expiresAt, keyId, keysOf, type Project, type ProjectKey, validUntil } from './project.ts';

/**
 * Returns the first key that is enabled and not expired; undefined when there is none.
 * @param now Unix ms
 */
export const firstKey = (project: Project, now: number): ProjectKey | undefined =>
  keysOf(project).find((key) => now < validUntil(key));

/**
 * Returns the project with these keys. When there is one plain key (enabled, without label, expiry
 * or limit), the record has no `keys`. So earlier versions, which know only the field `key`, can
 * read it.
 * @throws ConflictError when there are no keys or too many
 */
export function withKeys(project: Project, keys: readonly ProjectKey[], now: number): Project {
  const { keys: _, ...rest } = project;
  const [only] = keys;
  if (only === undefined) throw new ConflictError('A project keeps at least one key: disable it instead.');
  if (keys.length > PROJECT_KEYS_MAX)
    throw new ConflictError(`A project has at most ${PROJECT_KEYS_MAX} keys: remove one first.`);
  const { key } = keys.find((one) => now < validUntil(one)) ?? only;
  const isPlain = keys.length === 1 && Object.keys(only).length === 2 && only.enabled;
  return { ...rest, key, ...(!isPlain && { keys: [...keys] }) };
}

export function addKey(project: Project, added: ProjectKey, now: number): Project {
  const keys = keysOf(project);
  if (keys.some(({ key }) => keyId(key) === keyId(added.key)))
    throw new ConflictError(`Project ${project.id} has this key already.`);
  return withKeys(project, [...keys, added], now);
}

/**
 * Changes or removes one key.
 * @param change returns the new key, or undefined to remove it
 * @throws UnknownNameError, ConflictError
 */
export function changeKey(
  project: Project,
  id: string,
  { now, change }: { now: number; change(key: ProjectKey): ProjectKey | undefined },
): Project {
  const keys = keysOf(project);
  if (!keys.some(({ key }) => keyId(key) === id))
    throw new UnknownNameError(`Project ${project.id} has no key ${id}.`);
  const changed = keys.flatMap((key) => (keyId(key.key) === id ? (change(key) ?? []) : key));
  return withKeys(project, changed, now);
}

/**
 * Replaces the text of the first valid key, which keeps its label, expiry and limit.
 * @throws ConflictError when another key has this text
 */
export function replaceKey(project: Project, text: string, now: number): Project {
  const { key: before } = firstKey(project, now) ?? project;
  if (text !== before && keysOf(project).some(({ key }) => key === text))
    throw new ConflictError(
      `Project ${project.id} has this key already, as ${keyId(text)}: it cannot take the place of another one.`,
    );
  const keys = keysOf(project).map((key) => (key.key === before ? { ...key, key: text } : key));
  return withKeys(project, keys, now);
}

/**
 * Puts a new key in the first place, with the label and limit of the first valid key. The other
 * keys stay valid for `overlapMs`, unless they expire earlier. Without `overlapMs` they are
 * removed. Expired keys are removed in any case.
 */
export function rotateKeys(
  project: Project,
  fresh: string,
  { now, overlapMs }: { now: number; overlapMs: number | undefined },
): Project {
  const { label, rateLimit } = firstKey(project, now) ?? {};
  const first: ProjectKey = {
    key: fresh,
    enabled: true,
    ...(label !== undefined && { label }),
    ...(rateLimit !== undefined && { rateLimit }),
  };
  const kept = overlapMs === undefined ? [] : keysOf(project).filter((key) => now < expiresAt(key));
  const end = now + (overlapMs ?? 0);
  return withKeys(project, [first, ...kept.map((key) => endingAt(key, end))], now);
}

const endingAt = (key: ProjectKey, end: number): ProjectKey =>
  expiresAt(key) <= end ? key : { ...key, expires: new Date(end).toISOString() };
