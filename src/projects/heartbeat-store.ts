/** Creates, lists and deletes heartbeat tokens for commands. Each token is a key of a bucket. */
import { randomBytes } from 'node:crypto';
import type { KV } from '@nats-io/kv';
import type { NatsLink } from '../stream/nats.ts';
import { HEARTBEATS_BUCKET } from '../stream/topology.ts';
import { AuditLog, operatorName } from './audit-log.ts';
import { openBucket, registryManager } from './bucket.ts';
import { type BucketAccess, readBucket } from './bucket-mirror.ts';
import { UnknownNameError } from './names.ts';

/** `createdAt` is RFC 3339. */
type HeartbeatToken = { token: string; createdAt: string };

const isHeartbeatToken = (token: string): boolean => /^[A-Za-z0-9_-]{1,64}$/.test(token);

export class HeartbeatStore {
  readonly #access: BucketAccess;
  readonly #kv: KV;
  readonly #audit: AuditLog;

  private constructor(access: BucketAccess, kv: KV, audit: AuditLog) {
    this.#access = access;
    this.#kv = kv;
    this.#audit = audit;
  }

  /**
   * @param by name of the person or program that makes the changes; by default this process's user
   */
  static async open(link: NatsLink, by: string = operatorName()): Promise<HeartbeatStore> {
    const kv = await openBucket(link, HEARTBEATS_BUCKET);
    const access = { link, bucket: HEARTBEATS_BUCKET, manager: await registryManager(link) };
    return new HeartbeatStore(access, kv, new AuditLog(link, by));
  }

  /**
   * Creates a token of 128 random bits in hex. Hex needs no escaping in a URL and does not look
   * like an option.
   */
  async create(now: Date): Promise<HeartbeatToken> {
    const token = randomBytes(16).toString('hex');
    const createdAt = now.toISOString();
    await this.#audit.ready();
    await this.#kv.create(token, JSON.stringify({ createdAt }));
    await this.#audit.record({ heartbeat: token }, { after: { createdAt } });
    return { token, createdAt };
  }

  /** Lists all tokens, oldest first. */
  async list(): Promise<HeartbeatToken[]> {
    const tokens = await readBucket(this.#access, (token, text) => ({ token, createdAt: createdAtOf(text) }));
    return tokens.sort((a, b) => (a.createdAt < b.createdAt ? -1 : 1));
  }

  /**
   * Deletes a token.
   * @throws RegistryError when there is no such token
   */
  async delete(token: string): Promise<void> {
    const entry = isHeartbeatToken(token) ? await this.#kv.get(token) : null;
    if (entry?.operation !== 'PUT') throw new UnknownNameError(`There is no heartbeat token ${token}.`);
    await this.#audit.ready();
    await this.#kv.delete(token);
    await this.#audit.record({ heartbeat: token }, { before: { createdAt: createdAtOf(entry.string()) } });
  }
}

function createdAtOf(text: string): string {
  try {
    const value: unknown = JSON.parse(text);
    if (value && typeof value === 'object' && 'createdAt' in value) return String(value.createdAt);
  } catch {
    // Another program wrote the value; the token is valid all the same.
  }
  return '';
}
