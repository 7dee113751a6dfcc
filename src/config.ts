/**
 * Settings: the only code that reads the environment. All errors are reported together, each with
 * its variable. A setting exists only where two deployments need different values; everything else
 * is a constant in limits.ts.
 */
import { isIP } from 'node:net';
import { tmpdir } from 'node:os';
import { z } from 'zod';
import { allowedCpus } from './lib/files/allowed-cpus.ts';
import { fileText } from './lib/files/setting-files.ts';
import { EXTRA_TYPES, type ExtraType, isExtraType } from './lib/item-types.ts';
import { ADMIN_TOKEN_CHARS_MIN, isLabelAlone, isShortToken } from './lib/label-alone.ts';
import { LOG_LEVELS, type LogLevel } from './lib/log.ts';
import { type TracingSettings, tracingSettings } from './lib/tracing/tracing.ts';
import {
  BODY_BYTES_MAX,
  BODY_BYTES_SETTING_MAX,
  DECOMPRESSED_BYTES_MAX,
  SPOOL_BYTES_MAX,
  STREAM_BYTES_DEFAULT,
} from './limits.ts';

/** One entry of SLUICE_SINK. Its form has been checked; each sink checks the rest of its URL. */
export type SinkSetting =
  | { kind: 'ndjson'; dir: string }
  | { kind: 'postgres'; url: string }
  | { kind: 'clickhouse'; url: string }
  | { kind: 's3'; url: string; credentials: S3Credentials };

/** Credentials from the AWS_ variables, as the usual S3 tools read them. */
export type S3Credentials = {
  accessKeyId: string | undefined;
  secretAccessKey: string | undefined;
  sessionToken: string | undefined;
  region: string | undefined;
};

export type Config = Readonly<{
  env: 'production' | 'development';
  host: string;
  port: number;
  adminHost: string;
  /** Further host names, besides adminHost, by which clients reach the admin port. */
  adminNames: readonly string[];
  /**
   * Port of the admin API as set. When it is undefined, ingest takes 8081 and the processor 8082.
   */
  adminPort: number | undefined;
  /** Admin tokens, each as `token` or `label=token`. */
  adminTokens: readonly string[];
  /**
   * Tokens, each as `token` or `label=token`, with which a client may read the admin port but
   * change nothing.
   */
  viewerTokens: readonly string[];
  /** File with further admin tokens, one a line. */
  adminTokenFile: string | undefined;
  /** Base of the DSNs that commands print, without a final slash. */
  publicUrl: string;
  workers: number;
  redisUrls: readonly string[];
  redisPasswordFile: string | undefined;
  natsUrls: readonly string[];
  natsCredsFile: string | undefined;
  /**
   * File with the certificates of authorities against which those of Redis and NATS are checked.
   */
  tlsCaFile: string | undefined;
  maxBodyBytes: number;
  maxDecompressedBytes: number;
  spoolDir: string;
  /** Bytes that the spools of all workers may hold together. */
  spoolMaxBytes: number;
  planLimits: 'table' | 'free-only';
  heartbeatPath: string;
  streamReplicas: number;
  streamShards: number;
  streamMaxBytes: number;
  /** Sinks that SLUICE_SINK names; empty when it is not set. */
  sinks: readonly SinkSetting[];
  /** Days for which sinks keep what they store; undefined: for ever. */
  retentionDays: number | undefined;
  logLevel: LogLevel;
  /** Item types that are stored besides those that are always stored. */
  storeTypes: readonly ExtraType[];
  /**
   * Addresses and networks of trusted proxies. When undefined, clients' addresses are not written
   * into payloads.
   */
  trustedProxies: readonly string[] | undefined;
  /** Settings of tracing; undefined when tracing is off. */
  tracing: TracingSettings | undefined;
}>;

/** Thrown with all problems of the environment; `message` has one line for each. */
export class ConfigError extends Error {
  override name = 'ConfigError';
}

/** Checks one or several comma-separated tokens, each alone or as `label=token`. */
const tokens = z
  .string()
  .transform((text) => text.split(',').map((entry) => entry.trim()))
  .refine(
    (entries) => entries.every((entry) => /^[!-~]+$/.test(entry)),
    'must be one or several (comma-separated) tokens of visible ASCII characters, each with label= before it or not',
  )
  .refine((entries) => !entries.some(isLabelAlone), 'has a label without its token')
  .refine(
    (entries) => !entries.some((entry) => entry !== '' && isShortToken(entry) && !isLabelAlone(entry)),
    `has a token of fewer than ${ADMIN_TOKEN_CHARS_MIN} characters (openssl rand -hex 32 makes one)`,
  )
  .default([]);
const integer = (min: number, max: number) =>
  z
    .string()
    .regex(/^\d+$/, `must be an integer from ${min} to ${max}`)
    .transform(Number)
    .refine((n) => n >= min && n <= max, `must be an integer from ${min} to ${max}`);
const port = integer(1, 65_535);
/**
 * Checks one or several comma-separated URLs.
 * @param whole a form of text that counts as one URL although it has commas
 */
const urls = (schemes: readonly string[], whole?: { form: RegExp; name: string }) =>
  z
    .string()
    .transform((text) => (whole?.form.test(text) ? [text] : text.split(',').map((url) => url.trim())))
    .refine(
      (list) =>
        (list.length === 1 && whole?.form.test(list[0] ?? '')) ||
        list.every((url) => schemes.some((scheme) => url.startsWith(`${scheme}://`) && URL.canParse(url))),
      `must be one or several (comma-separated) URLs that begin with ${schemes.join(':// or ')}://${whole ? `, or ${whole.name}` : ''}`,
    );
/** The form of a URL that lists the addresses of Redis sentinels, and its name in messages. */
const SENTINELS = {
  name: 'redis+sentinel://host:26379,host:26379/name, or the same with rediss+sentinel://',
  form: /^rediss?\+sentinel:\/\/([^@/,]*@)?([\w.-]+|\[[\da-f:]+\])(:\d{1,5})?(,([\w.-]+|\[[\da-f:]+\])(:\d{1,5})?)*\/[\w.-]+(\?db=\d+)?$/,
};
const host = z.string().regex(/^[\w.:%-]+$/, 'must be an IP address or a host name');
const readableFile = z
  .string()
  .refine((path) => fileText(path) !== undefined, 'must be a file that can be read');

const NO_CREDENTIALS: S3Credentials = {
  accessKeyId: undefined,
  secretAccessKey: undefined,
  sessionToken: undefined,
  region: undefined,
};

/** Adds the credentials in the AWS_ variables to an s3 sink. */
function withCredentials(sink: SinkSetting, env: NodeJS.ProcessEnv): SinkSetting {
  if (sink.kind !== 's3') return sink;
  const credentials = {
    accessKeyId: env.AWS_ACCESS_KEY_ID,
    secretAccessKey: env.AWS_SECRET_ACCESS_KEY,
    sessionToken: env.AWS_SESSION_TOKEN,
    region: env.AWS_REGION ?? env.AWS_DEFAULT_REGION,
  };
  return { ...sink, credentials };
}

/**
 * Matches the blanks between two sinks. A folder's name may hold blanks too, so only blanks before
 * a word with a colon separate sinks.
 */
const BEGINNING = /\s+(?=\w+:)/;

/**
 * For each kind of sink: the form that messages show, the test that recognises the kind, and the
 * function that reads its setting.
 */
const SINKS: {
  [kind in SinkSetting['kind']]: { form: string; is: RegExp; read(text: string): SinkSetting };
} = {
  ndjson: {
    form: 'ndjson:<folder>',
    is: /^ndjson:./s,
    read: (text) => ({ kind: 'ndjson', dir: text.slice('ndjson:'.length) }),
  },
  postgres: {
    form: 'postgres://…',
    is: /^postgres(ql)?:\/\//,
    read: (url) => ({ kind: 'postgres', url }),
  },
  clickhouse: {
    form: 'clickhouse://…',
    is: /^clickhouse:\/\/[^/]/,
    read: (url) => ({ kind: 'clickhouse', url }),
  },
  s3: {
    form: 's3://<bucket>/<prefix>',
    is: /^s3:\/\/[^/?]/,
    read: (url) => ({ kind: 's3', url, credentials: NO_CREDENTIALS }),
  },
};
const SINK_LIST = new Intl.ListFormat('en-GB').format(Object.values(SINKS).map(({ form }) => form));
const SINK_FORMS = `one or several (separated by spaces) of ${SINK_LIST}`;

function parseSink(text: string): SinkSetting | undefined {
  const sink = Object.values(SINKS)
    .find(({ is }) => is.test(text))
    ?.read(text);
  return sink && (sink.kind === 'ndjson' || URL.canParse(text)) ? sink : undefined;
}

/** @returns undefined when the text is empty, a part of it is not a sink, or a sink occurs twice */
function parseSinks(text: string): readonly SinkSetting[] | undefined {
  const words = text.trim().split(BEGINNING);
  const sinks = words.map(parseSink).filter((sink) => sink !== undefined);
  return sinks.length === words.length && new Set(words).size === words.length ? sinks : undefined;
}

/**
 * Reads sinks from a text like SLUICE_SINK, with the credentials that the environment gives.
 * @returns undefined when the text is empty, a part of it is not a sink, or a sink occurs twice
 */
export const sinksIn = (text: string, env = process.env): readonly SinkSetting[] | undefined =>
  parseSinks(text)?.map((sink) => withCredentials(sink, env));

/** Whether the text is an IP address or a network such as `10.0.0.0/8`. */
function isNetwork(text: string): boolean {
  const [address = '', bits, ...rest] = text.split('/');
  const family = isIP(address);
  if (family === 0 || address.includes('%') || rest.length > 0) return false;
  return bits === undefined || (/^\d{1,3}$/.test(bits) && Number(bits) <= (family === 4 ? 32 : 128));
}

const schema = z.strictObject({
  SLUICE_ENV: z
    .enum(['production', 'development'], 'must be production or development')
    .default('production'),
  SLUICE_HOST: host.default('0.0.0.0'),
  SLUICE_PORT: port.default(8080),
  SLUICE_ADMIN_HOST: host.default('127.0.0.1'),
  SLUICE_ADMIN_NAMES: z
    .string()
    .transform((text) => text.split(',').map((name) => name.trim()))
    .refine(
      (names) => names.every((name) => /^[\w.-]+$/.test(name)),
      'must be one or several (comma-separated) host names, without ports',
    )
    .default([]),
  SLUICE_ADMIN_PORT: port.optional(),
  SLUICE_ADMIN_TOKEN: tokens,
  SLUICE_VIEWER_TOKEN: tokens,
  SLUICE_ADMIN_TOKEN_FILE: z
    .string()
    .refine((path) => fileText(path), 'must be a file that can be read and holds a token in each line')
    .optional(),
  SLUICE_PUBLIC_URL: z
    .string()
    .refine((url) => /^https?:\/\/[^/]/.test(url) && URL.canParse(url), 'must be an http or https URL')
    .transform((url) => url.replace(/\/+$/, ''))
    .optional(),
  SLUICE_WORKERS: integer(1, 256).optional(),
  SLUICE_REDIS_URL: urls(['redis', 'rediss'], SENTINELS).default(['redis://127.0.0.1:6379']),
  SLUICE_REDIS_PASSWORD_FILE: readableFile.optional(),
  SLUICE_NATS_URL: urls(['nats', 'tls']).default(['nats://127.0.0.1:4222']),
  SLUICE_NATS_CREDS: readableFile.optional(),
  SLUICE_TLS_CA_FILE: readableFile.optional(),
  SLUICE_MAX_BODY_BYTES: integer(1, BODY_BYTES_SETTING_MAX).default(BODY_BYTES_MAX),
  SLUICE_MAX_DECOMPRESSED_BYTES: integer(1, BODY_BYTES_SETTING_MAX).default(DECOMPRESSED_BYTES_MAX),
  SLUICE_SPOOL_DIR: z.string().min(1).optional(),
  SLUICE_SPOOL_MAX_BYTES: integer(1, Number.MAX_SAFE_INTEGER).optional(),
  SLUICE_PLAN_LIMITS: z.enum(['table', 'free-only'], 'must be table or free-only').default('table'),
  SLUICE_HEARTBEAT_PATH: z
    .string()
    .regex(/^(\/[A-Za-z0-9._~-]+)+$/, 'must be a path such as /heartbeat, without a final slash')
    .refine(
      (path) => !/^\/(api|healthz|readyz)(\/|$)/.test(path),
      'must not begin with /api, /healthz or /readyz',
    )
    .default('/heartbeat'),
  SLUICE_STREAM_REPLICAS: integer(1, 5).default(1),
  SLUICE_STREAM_SHARDS: integer(1, 64).default(1),
  SLUICE_STREAM_MAX_BYTES: integer(1024 * 1024, Number.MAX_SAFE_INTEGER).default(STREAM_BYTES_DEFAULT),
  SLUICE_SINK: z
    .string()
    .transform(parseSinks)
    .refine((sinks) => sinks !== undefined, `must be ${SINK_FORMS}, each once`)
    .optional(),
  SLUICE_RETENTION: z
    .string()
    .regex(/^[1-9]\d{0,4}d$/, 'must be a number of days such as 30d')
    .transform((text) => Number.parseInt(text, 10))
    .optional(),
  SLUICE_LOG_LEVEL: z.enum(LOG_LEVELS, `must be one of ${LOG_LEVELS.join(', ')}`).default('info'),
  SLUICE_STORE_TYPES: z
    .string()
    .transform((text) => text.split(',').map((type) => type.trim()))
    .refine(
      (types): types is ExtraType[] => types.every(isExtraType),
      `must be one or several (comma-separated) of ${EXTRA_TYPES.join(', ')}`,
    )
    .default([]),
  SLUICE_TRUSTED_PROXIES: z
    .string()
    .transform((text) => (text === 'none' ? [] : text.split(',').map((network) => network.trim())))
    .refine(
      (networks) => networks.every(isNetwork),
      'must be none, or one or several (comma-separated) addresses or networks such as 10.0.0.0/8',
    )
    .optional(),
});

/** Names of all settings; a test checks that docs/settings.md lists each. */
export const SETTING_NAMES = Object.keys(schema.shape);

/**
 * Matches names of variables that Kubernetes sets in pods when a service is called sluice, such as
 * SLUICE_SERVICE_HOST. Kubernetes also sets SLUICE_PORT, to a value such as tcp://10.0.0.1:80, so
 * isServiceLink() looks at the value, too.
 */
const SERVICE_LINK_NAME =
  /^SLUICE_.*(SERVICE_HOST|SERVICE_PORT|SERVICE_PORT_\w+|PORT_\d+_(TCP|UDP)(_(PROTO|PORT|ADDR))?)$/;
const isServiceLink = (name: string, value: string): boolean =>
  SERVICE_LINK_NAME.test(name) || /^(tcp|udp):\/\//.test(value);

/**
 * Sorts the environment's SLUICE_ variables: `raw` gets the settings, unknown ones too, and
 * `ignored` the names of Kubernetes service links.
 */
function gather(env: NodeJS.ProcessEnv): { raw: Record<string, string>; ignored: string[] } {
  const raw: Record<string, string> = {};
  const ignored: string[] = [];
  for (const [name, value] of Object.entries(env)) {
    if (!name.startsWith('SLUICE_') || value === undefined) continue;
    if (value === '' && name in schema.shape) continue; // an empty setting counts as not set
    if (isServiceLink(name, value)) ignored.push(name);
    else raw[name] = value;
  }
  return { raw, ignored };
}

function explain(error: z.ZodError): string[] {
  return error.issues.flatMap((issue) =>
    issue.code === 'unrecognized_keys'
      ? issue.keys.map((name) => `${name} is not a setting of sluice`)
      : [`${issue.path.join('.')} ${issue.message}`],
  );
}

/** Each setting that is valid by itself, or its default. An invalid setting is undefined. */
export type SoundSettings = Partial<z.infer<typeof schema>>;

function soundSettings(raw: Record<string, string>): SoundSettings {
  const read = Object.entries(schema.shape).map(([name, one]) => [name, one.safeParse(raw[name]).data]);
  return Object.fromEntries(read) as SoundSettings;
}

/** Lists contradictions between settings that are each valid alone. */
function relationProblems(raw: Record<string, string>, sound: SoundSettings): string[] {
  const { SLUICE_PORT: port, SLUICE_ADMIN_PORT: adminPort } = sound;
  const problems: string[] = [];
  if (raw.SLUICE_REDIS_PASSWORD_FILE !== undefined && /:\/\/[^@/]*:[^@/]+@/.test(raw.SLUICE_REDIS_URL ?? ''))
    problems.push('SLUICE_REDIS_URL must have no password beside SLUICE_REDIS_PASSWORD_FILE');
  if (port !== undefined && adminPort === port)
    problems.push('SLUICE_ADMIN_PORT must differ from SLUICE_PORT');
  return problems;
}

type Needs = {
  /** Whether SLUICE_SINK must be set. */
  needsSink?: boolean;
  /** Returns further problems, which matter only to the program that passes this function. */
  alsoCheck?: (settings: SoundSettings) => string[];
};

/**
 * Reads and checks the settings.
 * @returns the frozen settings, and the names of Kubernetes service links that were ignored (to be
 * logged once)
 * @throws ConfigError naming every wrong variable
 */
export function loadConfig(
  env: NodeJS.ProcessEnv = process.env,
  { needsSink = false, alsoCheck = () => [] }: Needs = {},
): { config: Config; ignored: string[] } {
  const { raw, ignored } = gather(env);
  const parsed = schema.safeParse(raw);
  const sound = soundSettings(raw);
  const problems = [...(parsed.error ? explain(parsed.error) : []), ...relationProblems(raw, sound)];
  problems.push(...alsoCheck(sound));
  if (needsSink && raw.SLUICE_SINK === undefined) problems.push(`SLUICE_SINK is required: ${SINK_FORMS}`);
  if (!parsed.success || problems.length > 0) throw new ConfigError(problems.join('\n'));
  const s = parsed.data;
  const workers = s.SLUICE_WORKERS ?? allowedCpus();
  const config: Config = Object.freeze({
    env: s.SLUICE_ENV,
    host: s.SLUICE_HOST,
    port: s.SLUICE_PORT,
    adminHost: s.SLUICE_ADMIN_HOST,
    adminNames: s.SLUICE_ADMIN_NAMES,
    adminPort: s.SLUICE_ADMIN_PORT,
    adminTokens: s.SLUICE_ADMIN_TOKEN,
    viewerTokens: s.SLUICE_VIEWER_TOKEN,
    adminTokenFile: s.SLUICE_ADMIN_TOKEN_FILE,
    publicUrl: s.SLUICE_PUBLIC_URL ?? `http://localhost:${s.SLUICE_PORT}`,
    workers,
    redisUrls: s.SLUICE_REDIS_URL,
    redisPasswordFile: s.SLUICE_REDIS_PASSWORD_FILE,
    natsUrls: s.SLUICE_NATS_URL,
    natsCredsFile: s.SLUICE_NATS_CREDS,
    tlsCaFile: s.SLUICE_TLS_CA_FILE,
    maxBodyBytes: s.SLUICE_MAX_BODY_BYTES,
    maxDecompressedBytes: s.SLUICE_MAX_DECOMPRESSED_BYTES,
    spoolDir: s.SLUICE_SPOOL_DIR ?? tmpdir(),
    spoolMaxBytes: s.SLUICE_SPOOL_MAX_BYTES ?? SPOOL_BYTES_MAX * workers,
    planLimits: s.SLUICE_PLAN_LIMITS,
    heartbeatPath: s.SLUICE_HEARTBEAT_PATH,
    streamReplicas: s.SLUICE_STREAM_REPLICAS,
    streamShards: s.SLUICE_STREAM_SHARDS,
    streamMaxBytes: s.SLUICE_STREAM_MAX_BYTES,
    sinks: (s.SLUICE_SINK ?? []).map((sink) => withCredentials(sink, env)),
    retentionDays: s.SLUICE_RETENTION,
    logLevel: s.SLUICE_LOG_LEVEL,
    storeTypes: s.SLUICE_STORE_TYPES,
    trustedProxies: s.SLUICE_TRUSTED_PROXIES,
    tracing: tracingSettings(env),
  });
  return { config, ignored };
}

/** The environment for a child process: `env` with `overrides` on top. */
export const childEnvironment = (
  overrides: Readonly<Record<string, string>>,
  env: NodeJS.ProcessEnv = process.env,
): NodeJS.ProcessEnv => ({ ...env, ...overrides });

/** Variables with which `sluice dev` and tests find and install Redis and nats-server. */
export const hostEnvironment = (env: NodeJS.ProcessEnv = process.env) => ({
  path: env.PATH ?? '',
  redisServerBin: env.REDIS_SERVER_BIN,
  natsServerBin: env.NATS_SERVER_BIN,
});

/**
 * Whether the environment sets this variable. An empty value and a Kubernetes service link do not
 * count.
 */
export function isSet(name: string, env: NodeJS.ProcessEnv = process.env): boolean {
  const value = env[name] ?? '';
  return value !== '' && !isServiceLink(name, value);
}

/** Reads one variable of the environment unchecked, for a command that needs no other setting. */
export const setting = (name: string, env: NodeJS.ProcessEnv = process.env): string | undefined =>
  env[name] || undefined;
