/**
 * The manifests: for each hour of a stream, a list of the hour's objects. A manifest is written
 * when no more records of its hour are expected: data is stored that was received MANIFEST_DELAY_MS
 * after the hour. The manifest is written again when an object comes late all the same. An hour
 * without a manifest is not complete.
 *
 * A manifest is made from the bucket's list, so every processor writes the same. The old manifest's
 * ETag is read before the list, and is the condition of the write. So no object is lost that
 * another processor stores between our list and our write. That processor writes a manifest, too.
 * If it writes after us, its list has the object. If it writes before us, the ETag has changed, and
 * we read again.
 */
import { MANIFEST_DELAY_MS } from '../../limits.ts';
import type { Bucket } from './bucket.ts';
import { IS_NEW } from './bucket.ts';
import { HOUR_MS, hourFolder, hourOf, hourText, MANIFEST, readKey } from './keys.ts';

const TRIES_MAX = 5;
const DAY_HOURS = 24;

export type Manifest = {
  v: 1;
  stream: string;
  /** The hour as `2026-01-02T03`, in UTC. */
  hour: string;
  rows: number;
  objects: { key: string; rows: number; bytes: number }[];
};

export class Manifests {
  readonly #bucket: Bucket;
  readonly #prefix: string;
  readonly #stream: string;
  /** Hours whose manifest is not written yet, or lacks objects of this process. */
  #open = new Set<number>();
  /** When the newest stored record was received, Unix milliseconds. */
  #newest = 0;

  constructor({ bucket, prefix, stream }: { bucket: Bucket; prefix: string; stream: string }) {
    this.#bucket = bucket;
    this.#prefix = prefix;
    this.#stream = stream;
  }

  /**
   * Finds hours of today and yesterday that another process left without a manifest.
   * @throws UnavailableError
   */
  async load(now: number): Promise<void> {
    const today = hourOf(now) - (hourOf(now) % DAY_HOURS);
    for (const day of [today - DAY_HOURS, today]) {
      const folder = hourFolder(this.#stream, day).slice(0, -'00/'.length);
      const keys = (await this.#bucket.list(`${this.#prefix}${folder}`)).map(({ key }) => readKey(key));
      const written = new Set(keys.flatMap((key) => (key && key.rows === undefined ? [key.hour] : [])));
      for (const key of keys) if (key && !written.has(key.hour)) this.#open.add(key.hour);
    }
  }

  /**
   * Remembers that objects of these hours are stored, and writes the manifests of complete hours.
   * @throws UnavailableError when a manifest cannot be written
   */
  async stored(hours: Iterable<number>, newest: number): Promise<void> {
    for (const hour of hours) this.#open.add(hour);
    this.#newest = Math.max(this.#newest, newest);
    const closed = [...this.#open].filter((hour) => (hour + 1) * HOUR_MS + MANIFEST_DELAY_MS <= this.#newest);
    for (const hour of closed) if (await this.#write(hour)) this.#open.delete(hour);
  }

  /**
   * Writes the manifest of an hour.
   * @returns false when other processes keep changing the manifest; the next object tries again
   */
  async #write(hour: number): Promise<boolean> {
    const folder = `${this.#prefix}${hourFolder(this.#stream, hour)}`;
    for (let tries = 0; tries < TRIES_MAX; tries++) {
      const before = await this.#bucket.get(`${folder}${MANIFEST}`);
      const objects = (await this.#bucket.list(folder)).flatMap(({ key, bytes }) => {
        const rows = readKey(key)?.rows;
        return rows === undefined ? [] : [{ key, rows, bytes }];
      });
      const rows = objects.reduce((sum, object) => sum + object.rows, 0);
      const manifest: Manifest = { v: 1, stream: this.#stream, hour: hourText(hour), rows, objects };
      const text = `${JSON.stringify(manifest)}\n`;
      if (text === before?.text) return true;
      const condition = before ? { 'if-match': before.etag } : IS_NEW;
      if (await this.#bucket.put(`${folder}${MANIFEST}`, [Buffer.from(text)], condition)) return true;
    }
    return false;
  }
}
