import { readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { ConfigError, isSet, loadConfig, SETTING_NAMES } from '../src/config.ts';
import { EXTRA_TYPES } from '../src/lib/item-types.ts';
import { temporaryFolder } from './support/servers.ts';

const problems = (env: Record<string, string>): string[] => {
  try {
    loadConfig(env);
    return [];
  } catch (error) {
    if (error instanceof ConfigError) return error.message.split('\n');
    throw error;
  }
};

it('has the documented defaults', () => {
  const { config } = loadConfig({});
  expect(config).toMatchObject({
    env: 'production',
    host: '0.0.0.0',
    port: 8080,
    adminHost: '127.0.0.1',
    publicUrl: 'http://localhost:8080',
    redisUrls: ['redis://127.0.0.1:6379'],
    natsUrls: ['nats://127.0.0.1:4222'],
    maxBodyBytes: 5_242_880,
    maxDecompressedBytes: 20_971_520,
    planLimits: 'table',
    heartbeatPath: '/heartbeat',
    streamReplicas: 1,
    streamShards: 1,
    streamMaxBytes: 10 * 1024 ** 3,
    spoolMaxBytes: 8 * 1024 ** 3 * config.workers,
    sinks: [],
    logLevel: 'info',
  });
  expect(Object.isFrozen(config)).toBe(true);
});

it('reports every error at once, naming the variable', () => {
  const env = {
    SLUICE_PORT: '99999',
    SLUICE_ENV: 'staging',
    SLUICE_REDIS_URL: 'http://x',
    SLUICE_SINK: 'csv:/tmp',
    SLUICE_TYPO: '1',
    SLUICE_HEARTBEAT_PATH: '/api/x',
  };
  const found = problems(env);
  expect(found).toHaveLength(6);
  for (const name of Object.keys(env)) expect(found.some((line) => line.startsWith(name))).toBe(true);
});

it.each([
  ['SLUICE_HOST', ['::', '127.0.0.1', 'fe80::1%eth0', 'host-1.example']],
  ['SLUICE_ADMIN_HOST', ['::', 'host-1.example']],
  ['SLUICE_MAX_BODY_BYTES', ['30000000', `${100 * 1024 * 1024}`]],
  ['SLUICE_MAX_DECOMPRESSED_BYTES', ['1000', `${100 * 1024 * 1024}`]],
  ['SLUICE_ADMIN_TOKEN', ['c2l4dGVlbiBieXRlcyE=']],
])('takes as %s each of %j', (name, values) => {
  for (const value of values) expect(problems({ [name]: value }), value).toEqual([]);
});

const NO_HOST = 'must be an IP address or a host name';
const NO_DAYS = 'must be a number of days such as 30d';
const NO_PROXY = /^SLUICE_TRUSTED_PROXIES must be none, or /;
const SHORT = 'has a token of fewer than 16 characters (openssl rand -hex 32 makes one)';
const UNLABELLED = 'has a label without its token';
const SEVERAL = /^SLUICE_(ADMIN_TOKEN|SINK) must be one or several/;
const NO_TYPES = /^SLUICE_STORE_TYPES must be .* of attachment, check_in, /;
it.each<[name: string, values: string[], problem: string | RegExp]>([
  ['SLUICE_HOST', ['//', 'not-a-host!', '[::1]', 'a b'], NO_HOST],
  ['SLUICE_ADMIN_HOST', ['//', 'not-a-host!', '[::1]', 'a b'], NO_HOST],
  ['SLUICE_MAX_BODY_BYTES', [`${100 * 1024 * 1024 + 1}`], / must be /],
  ['SLUICE_MAX_DECOMPRESSED_BYTES', [`${100 * 1024 * 1024 + 1}`], / must be /],
  ['SLUICE_SINK', ['ndjson:/a csv:/b', 'ndjson:/a ndjson:/a', 'ndjson:', 'clickhouse://', ' '], SEVERAL],
  ['SLUICE_STORE_TYPES', ['attachments', 'attachment,', 'event', 'statsd', 'constructor'], NO_TYPES],
  ['SLUICE_TRUSTED_PROXIES', ['proxy', '10.0.0.0/33', '::/129', '10.0.0.1,'], NO_PROXY],
  ['SLUICE_TRUSTED_PROXIES', ['10.0.0.0/8/8', '10.0.0.0/', 'none,::1'], NO_PROXY],
  ['SLUICE_ADMIN_TOKEN', ['a-token-of-sixteen,', 'a token of sixteen', 'tökén-of-sixteen', ','], SEVERAL],
  ['SLUICE_ADMIN_TOKEN', ['ci=a-token-of-sixteen,deploy=', 'production-deploy='], UNLABELLED],
  ['SLUICE_ADMIN_TOKEN', ['sluice', 'ci=fifteen-chars-x', 'a-token-of-sixteen,short'], SHORT],
  ['SLUICE_ADMIN_NAMES', ['admin.example:8081'], /^SLUICE_ADMIN_NAMES /],
  ['SLUICE_RETENTION', ['30', '0d', '1.5d', '12h', '-1d', 'd', '100000d'], NO_DAYS],
])('refuses as %s each of %j', (name, values, problem) => {
  const said = typeof problem === 'string' ? `${name} ${problem}` : expect.stringMatching(problem);
  for (const value of values) expect(problems({ [name]: value }), value).toEqual([said]);
});

it('cross-checks', () => {
  const user = {
    SLUICE_REDIS_URL: 'redis://user:secret@redis:6379',
    SLUICE_REDIS_PASSWORD_FILE: '/dev/null',
  };
  expect(problems({ ...user, SLUICE_FOO: '1', SLUICE_PORT: '0' })).toHaveLength(3);
  expect(problems({ SLUICE_PORT: '8081', SLUICE_ADMIN_PORT: '8081' })).toEqual([
    'SLUICE_ADMIN_PORT must differ from SLUICE_PORT',
  ]);
});

it('wants files that can be read, and one place for the password of Redis', () => {
  const file = import.meta.filename;
  const secrets = {
    SLUICE_REDIS_PASSWORD_FILE: file,
    SLUICE_TLS_CA_FILE: file,
    SLUICE_NATS_CREDS: file,
  };
  expect(problems({ ...secrets, SLUICE_REDIS_URL: 'rediss://sluice@redis:6379' })).toEqual([]);
  expect(problems({ ...secrets, SLUICE_REDIS_URL: 'rediss://sluice:word@redis:6379' })).toEqual([
    'SLUICE_REDIS_URL must have no password beside SLUICE_REDIS_PASSWORD_FILE',
  ]);
  for (const name of Object.keys(secrets))
    expect(problems({ [name]: '/none' })).toEqual([`${name} must be a file that can be read`]);
});

it('ignores the names of Kubernetes service links and says which', () => {
  const { config, ignored } = loadConfig({
    SLUICE_PORT: 'tcp://10.0.0.1:80',
    SLUICE_SERVICE_HOST: '10.0.0.1',
    SLUICE_SERVICE_PORT: '80',
    SLUICE_PORT_80_TCP_ADDR: '10.0.0.1',
    SLUICE_PROCESSOR_SERVICE_PORT_HTTP: '80',
  });
  expect(config.port).toBe(8080);
  expect(ignored).toHaveLength(5);
  expect(isSet('SLUICE_PORT', { SLUICE_PORT: 'tcp://10.0.0.1:80' })).toBe(false);
});

it('takes an empty value for none, and an unknown name for an error with any value', () => {
  expect(loadConfig({ SLUICE_PORT: '' }).config.port).toBe(8080);
  expect(isSet('SLUICE_PORT', { SLUICE_PORT: '' })).toBe(false);
  expect(problems({ SLUICE_PROT: '' })).toEqual(['SLUICE_PROT is not a setting of sluice']);
});

it('takes several URLs as a cluster, and a sink', () => {
  const { config } = loadConfig({
    SLUICE_REDIS_URL: 'redis://a:1, redis://b:2',
    SLUICE_SINK: 'ndjson:/var/sink',
  });
  expect(config.redisUrls).toEqual(['redis://a:1', 'redis://b:2']);
  expect(config.sinks).toEqual([{ kind: 'ndjson', dir: '/var/sink' }]);
});

it('takes sentinels of Redis as one URL, with ports or without, and nothing that only looks like it', () => {
  const good = [
    'redis+sentinel://a:26379,b,[::1]:26380/cell-1',
    'redis+sentinel://me:pw@a/cell?db=2',
    'redis+sentinel://me@10.0.0.1:1,10.0.0.2:2/cell',
    'rediss+sentinel://me@redis-0.redis,redis-1.redis/cell',
  ];
  for (const url of good) expect(loadConfig({ SLUICE_REDIS_URL: url }).config.redisUrls).toEqual([url]);
  const bad = ['a', 'a/', '/cell', 'a,/cell', 'a/cell?x=1', 'a/cell,redis://b', 'a:x/cell', 'a/cell,b/cell'];
  for (const rest of bad)
    expect(problems({ SLUICE_REDIS_URL: `redis+sentinel://${rest}` }), rest).toHaveLength(1);
  const secrets = { SLUICE_REDIS_PASSWORD_FILE: import.meta.filename };
  expect(problems({ ...secrets, SLUICE_REDIS_URL: 'redis+sentinel://me@a,b/cell' })).toEqual([]);
  expect(problems({ ...secrets, SLUICE_REDIS_URL: 'redis+sentinel://me:pw@a,b/cell' })).toHaveLength(1);
});

it('takes several sinks, separated by spaces, each once', () => {
  const sinksOf = (text: string) => loadConfig({ SLUICE_SINK: text }).config.sinks;
  expect(sinksOf('ndjson:/var/my sink  postgres://me:pw@db/x clickhouse://ch:8123/sluice')).toEqual([
    { kind: 'ndjson', dir: '/var/my sink' },
    { kind: 'postgres', url: 'postgres://me:pw@db/x' },
    { kind: 'clickhouse', url: 'clickhouse://ch:8123/sluice' },
  ]);
});

it('takes a list of further item types to store', () => {
  expect(loadConfig({}).config.storeTypes).toEqual([]);
  const { config } = loadConfig({ SLUICE_STORE_TYPES: 'attachment, check_in' });
  expect(config.storeTypes).toEqual(['attachment', 'check_in']);
});

it('takes the proxies that are trusted, or none', () => {
  expect(loadConfig({}).config.trustedProxies).toBeUndefined();
  const proxies = (text: string) => loadConfig({ SLUICE_TRUSTED_PROXIES: text }).config.trustedProxies;
  expect(proxies('none')).toEqual([]);
  expect(proxies('10.0.0.0/8, 192.0.2.1,2001:db8::/32')).toEqual([
    '10.0.0.0/8',
    '192.0.2.1',
    '2001:db8::/32',
  ]);
});

it('takes tokens of the admin port, and a file that holds some', () => {
  const { config } = loadConfig({ SLUICE_ADMIN_TOKEN: 'deploy=a-token-of-sixteen, another-of-sixteen' });
  expect(config.adminTokens).toEqual(['deploy=a-token-of-sixteen', 'another-of-sixteen']);
  expect(loadConfig({}).config).toMatchObject({ adminTokens: [], adminTokenFile: undefined });
  expect(loadConfig({ SLUICE_ADMIN_NAMES: 'a.example, b' }).config.adminNames).toEqual(['a.example', 'b']);
  const dir = temporaryFolder('tokens');
  const file = join(dir, 'tokens');
  const both = { SLUICE_ADMIN_TOKEN_FILE: file, SLUICE_PORT: 'x' };
  expect(problems(both)).toEqual([
    expect.stringContaining('SLUICE_PORT'),
    'SLUICE_ADMIN_TOKEN_FILE must be a file that can be read and holds a token in each line',
  ]);
  writeFileSync(file, '\n');
  expect(problems({ SLUICE_ADMIN_TOKEN_FILE: file })).toHaveLength(1);
  writeFileSync(file, 'deploy=a-token-of-sixteen\n');
  expect(loadConfig({ SLUICE_ADMIN_TOKEN_FILE: file }).config.adminTokenFile).toBe(file);
  rmSync(dir, { recursive: true });
});

it('takes whole days as the retention, and none by default', () => {
  expect(loadConfig({}).config.retentionDays).toBeUndefined();
  expect(loadConfig({ SLUICE_RETENTION: '30d' }).config.retentionDays).toBe(30);
});

describe('docs/settings.md', () => {
  const text = readFileSync(new URL('../docs/settings.md', import.meta.url), 'utf8');
  const rows = [...text.matchAll(/^\| `(SLUICE_\w+)` \|(?: `([^`<]+)`)?/gm)].map(
    ([, name = '', literal]) => [name, literal] as const,
  );

  it('documents every setting, and no other', () => {
    expect(rows.map(([name]) => name).sort()).toEqual([...SETTING_NAMES].sort());
  });

  /** The port's default depends on the program: config.ts leaves it open. */
  const literals = rows.filter(([name, literal]) => literal && name !== 'SLUICE_ADMIN_PORT');

  it('names every type that SLUICE_STORE_TYPES takes, and no other', () => {
    const list = /^\*Types for `SLUICE_STORE_TYPES`\*: [^.]*/m.exec(text)?.[0] ?? '';
    const types = [...list.matchAll(/`([a-z_]+)`/g)].map(([, type]) => type);
    expect(types.sort()).toEqual([...EXTRA_TYPES].sort());
  });

  it('gives literal defaults', () => expect(literals.length).toBeGreaterThan(10));

  it.each(literals)('gives the default of %s', (name, literal = '') => {
    expect(loadConfig({ [name]: literal }).config).toEqual(loadConfig({}).config);
  });
});
