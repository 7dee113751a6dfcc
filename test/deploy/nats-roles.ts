/** deploy/nats/users.conf with keys, as an operator fills it in: for nats-servers that ask who is there and what they may. */
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { createUser, type KeyPair } from '@nats-io/nkeys';

export const USERS_CONF = new URL('../../deploy/nats/users.conf', import.meta.url).pathname;
export const ROLES = ['ingest', 'processor', 'setup', 'cli', 'backup', 'sys'] as const;
export type Role = (typeof ROLES)[number];

const variable = (role: Role): string => `${role.toUpperCase()}_KEY`;
const publicKey = (keys: KeyPair): string => keys.getPublicKey();

export class NatsRoles {
  readonly #dir: string;
  readonly #keys = new Map<Role, KeyPair>(ROLES.map((role) => [role, createUser()]));

  /** Seeds are written into this folder. */
  constructor(dir: string) {
    this.#dir = dir;
    for (const role of ROLES) this.show(role);
  }

  /** For SLUICE_NATS_CREDS. */
  seedFile(role: Role): string {
    return join(this.#dir, `${role}.seed`);
  }

  /** What nats.conf includes; `also`: public keys that have a role's rights beside its own. */
  config(also: Partial<Record<Role, string>> = {}): string {
    let text = readFileSync(USERS_CONF, 'utf8');
    for (const [role, keys] of this.#keys)
      text = text.replace(
        new RegExp(`^${variable(role)}: .*$`, 'm'),
        `${variable(role)}: ${publicKey(keys)}`,
      );
    for (const [role, key] of Object.entries(also)) {
      const users = `{ nkey: ${key}, permissions: $${role.toUpperCase()}_RIGHTS }`;
      text = text.replace(
        'jetstream: enabled\n    users: [',
        `jetstream: enabled\n    users: [\n      ${users}`,
      );
    }
    return text;
  }

  /** Gives the role another key, which its seed file shows after {@link show}. @returns the public key of the one before */
  rotate(role: Role): string {
    const before = this.#keys.get(role) as KeyPair;
    this.#keys.set(role, createUser());
    return publicKey(before);
  }

  show(role: Role): void {
    const seed = this.#keys.get(role)?.getSeed() ?? new Uint8Array();
    writeFileSync(this.seedFile(role), `${Buffer.from(seed)}\n`, { mode: 0o600 });
  }
}
