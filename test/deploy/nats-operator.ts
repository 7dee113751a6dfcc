/** An operator, a system account, an account with JetStream and a user, as `nsc` makes them: for nats-servers that ask who is there. */
import { createAccount, createOperator, createUser, type KeyPair } from '@nats-io/nkeys';

const base64url = (bytes: Uint8Array | string): string => Buffer.from(bytes).toString('base64url');

/** A claim of NATS: signed by `issuer` about `subject`. */
function claim(
  issuer: KeyPair,
  subject: KeyPair,
  body: { name: string; exp?: number; nats: Record<string, unknown> },
): string {
  const head = base64url(JSON.stringify({ typ: 'JWT', alg: 'ed25519-nkey' }));
  const claims = {
    jti: body.name,
    iat: Math.floor(Date.now() / 1000),
    iss: issuer.getPublicKey(),
    sub: subject.getPublicKey(),
    name: body.name,
    ...(body.exp && { exp: body.exp }),
    nats: { version: 2, ...body.nats },
  };
  const signed = `${head}.${base64url(JSON.stringify(claims))}`;
  return `${signed}.${base64url(issuer.sign(Buffer.from(signed)))}`;
}

const UNBOUND = { subs: -1, data: -1, payload: -1 };
const ACCOUNT = { ...UNBOUND, imports: -1, exports: -1, wildcards: true, conn: -1, leaf: -1 };
const JETSTREAM = { mem_storage: -1, disk_storage: -1, streams: -1, consumer: -1 };

export type NatsOperator = {
  /** What servers include. */
  authConf: string;
  /** The file for SLUICE_NATS_CREDS. */
  creds: string;
};

/** `expiry`: when the user's credentials end, in Unix seconds. */
export function createNatsOperator(expiry?: number): NatsOperator {
  const [operator, system, account, user] = [
    createOperator(),
    createAccount(),
    createAccount(),
    createUser(),
  ];
  const accountClaim = (subject: KeyPair, name: string, limits: object): string =>
    claim(operator, subject, { name, nats: { type: 'account', limits } });
  const preload = [
    [system, accountClaim(system, 'SYS', ACCOUNT)],
    [account, accountClaim(account, 'SLUICE', { ...ACCOUNT, ...JETSTREAM })],
  ] as const;
  const authConf = [
    `operator: ${claim(operator, operator, { name: 'sluice', nats: { type: 'operator' } })}`,
    `system_account: ${system.getPublicKey()}`,
    'resolver: MEMORY',
    'resolver_preload: {',
    ...preload.map(([keys, jwt]) => `  ${keys.getPublicKey()}: ${jwt}`),
    '}',
  ].join('\n');
  const jwt = claim(account, user, {
    name: 'sluice',
    ...(expiry && { exp: expiry }),
    nats: { type: 'user', pub: {}, sub: {}, ...UNBOUND },
  });
  const seed = Buffer.from(user.getSeed()).toString();
  const block = (title: string, text: string): string =>
    `-----BEGIN ${title}-----\n${text}\n------END ${title}------\n`;
  return { authConf: `${authConf}\n`, creds: block('NATS USER JWT', jwt) + block('USER NKEY SEED', seed) };
}
