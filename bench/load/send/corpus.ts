/** Reads recorded envelopes (`--corpus`), which are sent again under new ids. */
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { gunzipSync } from 'node:zlib';
import { ID_PLACEHOLDER } from '../../payloads.ts';
import type { Recorded } from '../../workload.ts';
import { UsageError } from '../command/values.ts';
import { KINDS_MAX } from '../recording.ts';

const GZIP_MAGIC = 0x1f8b;
const FILES_MAX = 10_000;
const HEX_ID = /^[0-9a-f]{32}$/i;

function objectOf(line: Buffer): Record<string, unknown> | undefined {
  try {
    const value: unknown = JSON.parse(line.toString());
    return typeof value === 'object' && value !== null && !Array.isArray(value)
      ? (value as Record<string, unknown>)
      : undefined;
  } catch {
    return undefined;
  }
}

function lineAt(bytes: Buffer, from: number): Buffer {
  const end = bytes.indexOf('\n', from);
  return bytes.subarray(from, end < 0 ? bytes.length : end);
}

/**
 * Replaces the old id by the new one everywhere. Both have the same length, so the lengths of items
 * stay correct.
 */
function replaceAll(bytes: Buffer, from: string, to: string): Buffer {
  const copy = Buffer.from(bytes);
  for (let at = copy.indexOf(from); at >= 0; at = copy.indexOf(from, at + 1)) copy.write(to, at, 'latin1');
  return copy;
}

/**
 * Prepares a recorded envelope: ID_PLACEHOLDER replaces its id, and the header loses its DSN,
 * because it is sent to another project.
 * @returns undefined when the bytes are no envelope with an item
 */
export function renewed(bytes: Buffer): Recorded | undefined {
  const first = lineAt(bytes, 0);
  const header = objectOf(first);
  const item = objectOf(lineAt(bytes, first.length + 1));
  if (!header || typeof item?.type !== 'string') return undefined;
  const { dsn: _, event_id: id, ...kept } = header;
  const rest = bytes.subarray(first.length);
  const isHex = typeof id === 'string' && HEX_ID.test(id);
  const head = Buffer.from(JSON.stringify({ event_id: ID_PLACEHOLDER, ...kept }));
  const envelope = Buffer.concat([head, isHex ? replaceAll(rest, id, ID_PLACEHOLDER) : rest]);
  return { kind: item.type, envelope };
}

/**
 * Reads every file of the folder, gzip or plain.
 * @throws UsageError naming the file that is no envelope
 */
export function readCorpus(dir: string): Recorded[] {
  let names: string[];
  try {
    names = readdirSync(dir, { withFileTypes: true })
      .filter((entry) => entry.isFile() && !entry.name.startsWith('.'))
      .map(({ name }) => name)
      .sort();
  } catch (error) {
    throw new UsageError(`--corpus: ${(error as Error).message}`);
  }
  if (names.length === 0) throw new UsageError(`--corpus: ${dir} has no files`);
  if (names.length > FILES_MAX) throw new UsageError(`--corpus: ${dir} has more than ${FILES_MAX} files`);
  const corpus = names.map((name) => {
    const found = readEnvelope(join(dir, name));
    if (!found) throw new UsageError(`--corpus: ${join(dir, name)} is no envelope`);
    return found;
  });
  if (new Set(corpus.map(({ kind }) => kind)).size > KINDS_MAX)
    throw new UsageError(`--corpus: ${dir} has items of more than ${KINDS_MAX} types`);
  return corpus;
}

function readEnvelope(path: string): Recorded | undefined {
  try {
    const bytes = readFileSync(path);
    const isGzip = bytes.length > 2 && bytes.readUInt16BE(0) === GZIP_MAGIC;
    return renewed(isGzip ? gunzipSync(bytes) : bytes);
  } catch {
    return undefined;
  }
}
