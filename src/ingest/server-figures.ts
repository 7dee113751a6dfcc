import type { Config } from '../config.ts';
import { systemClock } from '../lib/clock.ts';
import type { Log } from '../lib/log.ts';
import { credentialsExpiry, type MetricsSnapshot } from '../lib/metrics.ts';
import { credsExpiry } from '../stream/nats.ts';
import { Certificates } from './certificates.ts';
import { LazyLink } from './lazy-link.ts';
import { StreamFigures } from './stream-figures.ts';

/** What ingest tells of the servers that it needs: their streams, certificates and credentials. */
export class ServerFigures {
  readonly #credsFile: string | undefined;
  readonly #certificates: Certificates;
  readonly #link: LazyLink;
  readonly #streams: StreamFigures;

  constructor({ natsUrls: urls, natsCredsFile: credsFile, redisUrls }: Config, log: Log) {
    this.#credsFile = credsFile;
    this.#certificates = new Certificates([...urls, ...redisUrls]);
    this.#link = new LazyLink({ urls, credsFile, name: 'sluice ingest, metrics', log });
    this.#streams = new StreamFigures({ nats: () => this.#link.nats(), clock: systemClock });
  }

  /** The streams' figures are left out when the broker does not answer within `waitMs`. */
  async snapshot(waitMs: number): Promise<MetricsSnapshot> {
    const expiry = this.#credsFile === undefined ? undefined : credsExpiry(this.#credsFile);
    const streams = await this.#streams.snapshot(waitMs);
    return [...streams, credentialsExpiry(expiry), this.#certificates.expose()];
  }

  async close(): Promise<void> {
    this.#certificates.stop();
    await this.#link.close();
  }
}
