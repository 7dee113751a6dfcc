import * as zlib from 'node:zlib';
import type { SinkSetting } from '../../config.ts';
import { S3_OBJECT_SEC } from '../../limits.ts';
import { SinkSettingError } from '../unavailable.ts';

export type Compression = 'none' | 'gzip' | 'zstd';
export type S3Setting = Extract<SinkSetting, { kind: 's3' }>;

/** The address of an archive, parsed from the setting. */
export type S3Address = {
  /** URL of the bucket, without a final slash. */
  bucketUrl: string;
  /** Prefix of all keys: empty, or ends with a slash. */
  prefix: string;
  region: string;
  compression: Compression;
  /** Longest time that records wait for their object, ms. */
  objectMs: number;
  accessKeyId: string;
  secretAccessKey: string;
  sessionToken: string | undefined;
};

const REGION = 'us-east-1';
const OPTIONS = ['endpoint', 'region', 'compression', 'seconds'];
export const HAS_ZSTD = 'createZstdCompress' in zlib;
const COMPRESSIONS: readonly string[] = ['none', 'gzip', 'zstd'] satisfies Compression[];
const isCompression = (text: string): text is Compression => COMPRESSIONS.includes(text);

const wrong = (what: string): SinkSettingError => new SinkSettingError(`SLUICE_SINK: ${what}`);

function secondsOf(text: string | null): number {
  const seconds = Number(text ?? S3_OBJECT_SEC);
  if (!Number.isInteger(seconds) || seconds < 1 || seconds > 3600)
    throw wrong('seconds of s3:// is a whole number from 1 to 3600');
  return seconds;
}

function compressionOf(text: string | null): Compression {
  // The default is gzip, although zstd takes less CPU: some readers of a file with several zstd
  // frames stop after the first frame.
  const compression = text ?? 'gzip';
  if (!isCompression(compression)) throw wrong(`compression of s3:// is one of ${COMPRESSIONS.join(', ')}`);
  if (compression === 'zstd' && !HAS_ZSTD) throw wrong('compression=zstd needs Node.js 22.15 or later');
  return compression;
}

/**
 * Parses `s3://bucket/prefix?endpoint=https://…&region=…`. Credentials come from the URL or from
 * the environment.
 * @throws SinkSettingError
 */
export function parseAddress({ url, credentials }: S3Setting): S3Address {
  const { hostname, pathname, username, password, searchParams } = new URL(url);
  const other = [...searchParams.keys()].find((name) => !OPTIONS.includes(name));
  if (other) throw wrong(`s3:// knows the options ${OPTIONS.join(', ')}, not ${other}`);
  const region = searchParams.get('region') ?? credentials.region ?? REGION;
  const endpoint = searchParams.get('endpoint') ?? `https://s3.${region}.amazonaws.com`;
  if (!/^https?:\/\/[^/]/.test(endpoint) || !URL.canParse(endpoint))
    throw wrong('endpoint of s3:// is an http or https URL');
  const inUrl = username !== '';
  const accessKeyId = inUrl ? decodeURIComponent(username) : credentials.accessKeyId;
  const secretAccessKey = inUrl ? decodeURIComponent(password) : credentials.secretAccessKey;
  if (!accessKeyId || !secretAccessKey)
    throw wrong('s3:// needs AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY in the environment');
  const path = pathname.replace(/^\/+|\/+$/g, '');
  return {
    bucketUrl: `${endpoint.replace(/\/+$/, '')}/${hostname}`,
    prefix: path === '' ? '' : `${path}/`,
    region,
    compression: compressionOf(searchParams.get('compression')),
    objectMs: secondsOf(searchParams.get('seconds')) * 1000,
    accessKeyId,
    secretAccessKey,
    sessionToken: inUrl ? undefined : credentials.sessionToken,
  };
}
