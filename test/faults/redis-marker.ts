import { Redis } from 'ioredis';

const KEY = 'ledger:marker';

/**
 * Tells whether a Redis that was killed came back without writes that it had acknowledged. With `appendfsync everysec` it does not write its file
 * while a sync of it is under way, and goes on answering: a kill in that moment costs the writes since.
 */
export class RedisMarker {
  #acknowledged = 0;
  readonly #writing: Promise<void>;

  private constructor(client: Redis) {
    this.#writing = this.#write(client);
  }

  /** Writes until Redis is gone. */
  static async begin(url: string): Promise<RedisMarker> {
    const client = new Redis(url, { lazyConnect: true, retryStrategy: () => null });
    client.on('error', () => undefined); // The write that fails says so.
    await client.connect();
    await client.del(KEY);
    return new RedisMarker(client);
  }

  async #write(client: Redis): Promise<void> {
    try {
      for (;;) this.#acknowledged = await client.incr(KEY);
    } catch {
      client.disconnect();
    }
  }

  /** @param url of the same Redis, started again. @returns how many of our writes it had acknowledged and lost */
  async lost(url: string): Promise<number> {
    await this.#writing;
    const client = new Redis(url);
    try {
      return Math.max(0, this.#acknowledged - Number(await client.get(KEY)));
    } finally {
      client.disconnect();
    }
  }
}
