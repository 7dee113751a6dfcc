import { type Clock, systemClock } from '../../lib/clock.ts';
import type { Log } from '../../lib/log.ts';
import { Distribution, SECONDS_BOUNDS } from '../../lib/metrics/distribution.ts';
import { OutageLog } from '../../lib/outage-log.ts';
import type { Sink, StreamSink } from '../sink.ts';
import { SinkSettingError, UnavailableError } from '../unavailable.ts';
import { parseAddress, type S3Setting } from './address.ts';
import { Bucket, S3Error } from './bucket.ts';
import { type S3Parts, S3Stream } from './stream.ts';

/** HTTP statuses that wrong settings cause, such as a wrong region or a missing right. */
const REFUSED: readonly number[] = [301, 307, 400, 401, 403, 404];
const isAboutSetting = ({ cause }: UnavailableError): boolean =>
  cause instanceof S3Error && REFUSED.includes(cause.status);

/**
 * Stores objects with one JSON object on each line in a bucket, which processors may share.
 *
 *     <prefix>/<stream>/<date>/<hour>/<name>-<rows>.ndjson.gz   lines of one hour
 *     <prefix>/<stream>/<date>/<hour>/_manifest.json            the objects of a complete hour
 */
export class S3Sink implements Sink {
  readonly guarantee = 'repeatable';
  readonly #parts: S3Parts;
  readonly #streams: S3Stream[] = [];

  private constructor(parts: S3Parts) {
    this.#parts = parts;
  }

  /**
   * Opens the sink and checks the bucket.
   * @throws SinkSettingError when the bucket can never be written with these settings
   */
  static async connect(
    setting: S3Setting,
    { log, clock = systemClock }: { log: Log; clock?: Clock },
  ): Promise<S3Sink> {
    const address = parseAddress(setting);
    const bucket = new Bucket(address);
    try {
      await bucket.list(address.prefix, 1);
    } catch (error) {
      if (!(error instanceof UnavailableError)) throw error;
      if (isAboutSetting(error))
        throw new SinkSettingError(`SLUICE_SINK: ${error.message}`, { cause: error });
      log.warn({ reason: error.message }, 'sink: the bucket is away, trying again with each batch');
    }
    const outage = new OutageLog({ log, clock });
    return new S3Sink({
      address,
      bucket,
      clock,
      log,
      outage,
      writeSeconds: new Distribution(SECONDS_BOUNDS),
    });
  }

  get outage(): OutageLog {
    return this.#parts.outage;
  }

  get writeSeconds(): Distribution {
    return this.#parts.writeSeconds;
  }

  async open(stream: string): Promise<StreamSink> {
    const opened = new S3Stream(stream, this.#parts);
    this.#streams.push(opened);
    opened.load();
    return opened;
  }

  async close(): Promise<void> {
    for (const stream of this.#streams) stream.close();
  }
}
