/** Reader of the items that the s3 sink has stored. */
import { KeyTable } from '../../sink/key-table.ts';
import { scanLines } from '../../sink/ndjson/stored.ts';
import { parseAddress, type S3Setting } from '../../sink/s3/address.ts';
import { rowKeyAt, unpacked } from '../../sink/s3/archive.ts';
import { Bucket } from '../../sink/s3/bucket.ts';
import { hourFolder, hourOf, readKey } from '../../sink/s3/keys.ts';
import type { StoredReader } from '../../sink/sink.ts';

/**
 * Makes the reader. It reads each object only once, because objects never change. Lines with the
 * same row key count as one.
 * @throws SinkSettingError
 */
export function readS3Stored(setting: S3Setting): StoredReader {
  const address = parseAddress(setting);
  const bucket = new Bucket(address);
  const read = new Set<string>();
  const keys = new KeyTable(() => 0);

  /**
   * Lists the folders of all hours since `since`. A record is in the folder of the hour in which it
   * was received. The next hour is among them, because other clocks may be ahead.
   */
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
