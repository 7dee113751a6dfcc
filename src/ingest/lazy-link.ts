import { NatsLink, type NatsOptions } from '../stream/nats.ts';

/** A connection to NATS that is made when it is first wanted. */
export class LazyLink {
  readonly #options: NatsOptions;
  #link: Promise<NatsLink> | undefined;

  constructor(options: NatsOptions) {
    this.#options = options;
  }

  /** @throws while NATS is away */
  async nats(): Promise<NatsLink> {
    this.#link ??= NatsLink.connect(this.#options);
    const link = await this.#link.catch((error: unknown) => {
      this.#link = undefined; // the next one tries again
      throw error;
    });
    if (!link.connected) throw new Error('NATS is away');
    return link;
  }

  /** A connection that failed has nothing to close. */
  async close(): Promise<void> {
    await this.#link?.then(
      (link) => link.close(),
      () => undefined,
    );
  }
}
