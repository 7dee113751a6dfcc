import type { Config } from '../config.ts';
import { systemClock } from '../lib/clock.ts';
import { credsExpiry } from '../lib/files/creds-expiry.ts';
import { credentialsExpiry, type MetricsSnapshot } from '../lib/metrics/metrics.ts';
import type { Connections } from '../management/connections.ts';
import { Certificates } from './certificates.ts';
import { StreamFigures } from './stream-figures.ts';

/** What ingest tells of the servers that it needs: their streams, certificates and credentials. */
export class ServerFigures {
  readonly #credsFile: string | undefined;
  readonly #certificates: Certificates;
  readonly #streams: StreamFigures;

  constructor({ natsUrls, natsCredsFile, redisUrls }: Config, connections: Connections) {
    this.#credsFile = natsCredsFile;
    this.#certificates = new Certificates([...natsUrls, ...redisUrls]);
    this.#streams = new StreamFigures({ nats: () => connections.nats(), clock: systemClock });
  }

  /** The streams' figures are left out when the broker does not answer within `waitMs`. */
  async snapshot(waitMs: number): Promise<MetricsSnapshot> {
    const expiry = this.#credsFile === undefined ? undefined : credsExpiry(this.#credsFile);
    const streams = await this.#streams.snapshot(waitMs);
    return [...streams, credentialsExpiry(expiry), this.#certificates.expose()];
  }

  stop(): void {
    this.#certificates.stop();
  }
}
