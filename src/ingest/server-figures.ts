import type { Config } from '../config.ts';
import { systemClock } from '../lib/clock.ts';
import { credsExpiry } from '../lib/files/creds-expiry.ts';
import { credentialsExpiry, type MetricsSnapshot } from '../lib/metrics/metrics.ts';
import type { Connections } from '../management/connections.ts';
import { StreamWatch } from '../stream/stream-watch.ts';
import { BUCKETS, streamNamesOf } from '../stream/topology.ts';
import { Certificates } from './certificates.ts';

/** Metrics about the servers that ingest needs: their streams, certificates and credentials. */
export class ServerFigures {
  readonly #credsFile: string | undefined;
  readonly #certificates: Certificates;
  readonly #streams: StreamWatch;

  constructor({ natsUrls, natsCredsFile, redisUrls, streamShards }: Config, connections: Connections) {
    this.#credsFile = natsCredsFile;
    this.#certificates = new Certificates([...natsUrls, ...redisUrls]);
    this.#streams = new StreamWatch({
      nats: () => connections.nats(),
      clock: systemClock,
      streams: streamNamesOf(streamShards),
      buckets: BUCKETS,
    });
  }

  /** The fill of the streams is left out when the broker does not answer within `waitMs`. */
  async snapshot(waitMs: number): Promise<MetricsSnapshot> {
    const expiry = this.#credsFile === undefined ? undefined : credsExpiry(this.#credsFile);
    const streams = await this.#streams.snapshot(waitMs);
    return [...streams, credentialsExpiry(expiry), this.#certificates.expose()];
  }

  stop(): void {
    this.#certificates.stop();
  }
}
