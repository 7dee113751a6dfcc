/** Reads what the s3 sink has stored. */
import * as zlib from 'node:zlib';
import { ZstdFrames } from '../../ingest/envelope/inflate/zstd-frames.ts';
import { KEY_BYTES } from '../../sink/item-key.ts';
import { KeyTable } from '../../sink/key-table.ts';
import { scanLines } from '../../sink/ndjson/stored.ts';
import { parseAddress, type S3Setting } from '../../sink/s3/address.ts';
import { Bucket } from '../../sink/s3/bucket.ts';
import { hourFolder, hourOf, readKey } from '../../sink/s3/keys.ts';
import type { StoredReader } from '../../sink/sink.ts';

/** Node.js has it from 22.15 on. */
const { zstdDecompressSync } = zlib as { zstdDecompressSync?: (packed: Buffer) => Buffer };

/** zlib of Node.js stops behind the first frame. */
function unzstd(content: Buffer): Buffer {
  if (!zstdDecompressSync) throw new Error('objects in zstd need Node.js 22.15 or later');
  const frames = new ZstdFrames();
  const found: Buffer[] = [];
  for (let at = 0; at < content.length; ) {
    const end = at + frames.pass(content.subarray(at));
    found.push(zstdDecompressSync(content.subarray(at, end)));
    at = end;
  }
  return Buffer.concat(found);
}

function unpacked(key: string, content: Buffer): Buffer {
  if (key.endsWith('.zst')) return unzstd(content);
  return key.endsWith('.gz') ? zlib.gunzipSync(content) : content;
}

/** A line ends with `"row_key":"…"}`. */
const KEY_END = '"}'.length;
const rowKeyAt = (bytes: Buffer, lineEnd: number): Buffer =>
  Buffer.from(bytes.toString('latin1', lineEnd - KEY_END - 2 * KEY_BYTES, lineEnd - KEY_END), 'hex');

/**
 * Reads each object once: it never changes. Lines with one row key are one.
 * @throws SinkSettingError
 */
export function readS3Stored(setting: S3Setting): StoredReader {
  const address = parseAddress(setting);
  const bucket = new Bucket(address);
  const read = new Set<string>();
  const keys = new KeyTable(() => 0);

  /** A record is in the folder of the hour in which it was received; clocks may be ahead. */
  async function foldersFrom(since: Date): Promise<string[]> {
    const first = hourOf(since.getTime());
    const hours = Array.from({ length: hourOf(Date.now()) + 2 - first }, (_, n) => first + n);
    const streams = await bucket.folders(address.prefix);
    return streams.flatMap((stream) => hours.map((hour) => `${address.prefix}${hourFolder(stream, hour)}`));
  }

  async function* objectsFrom(since: Date): AsyncIterable<string> {
    for (const folder of await foldersFrom(since))
      for (const { key } of await bucket.list(folder))
        if (readKey(key)?.rows !== undefined && !read.has(key)) yield key;
  }

  return {
    tellsOnce: true,
    delayMs: address.objectMs,
    scan: async (since, onItem) => {
      for await (const key of objectsFrom(since)) {
        const bytes = unpacked(key, await bucket.read(key));
        read.add(key);
        scanLines(bytes, (item, lineEnd) => {
          const rowKey = rowKeyAt(bytes, lineEnd);
          if (keys.get(rowKey)) return;
          keys.set(rowKey, 0);
          onItem(item);
        });
      }
    },
    close: async () => undefined,
  };
}
