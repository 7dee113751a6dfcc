/** The address and the options of an archive, as docs/sinks.md has them. */
import { expect, it } from 'vitest';
import { sinksIn } from '../../src/config.ts';
import { parseAddress, type S3Address, type S3Setting } from '../../src/sink/s3/address.ts';

const KEYS = { AWS_ACCESS_KEY_ID: 'key', AWS_SECRET_ACCESS_KEY: 'secret' };
const addressOf = (url: string, env: Record<string, string> = KEYS): S3Address =>
  parseAddress(sinksIn(url, env)?.[0] as S3Setting);

it('is that of Amazon in the region, unless the URL names an endpoint; the bucket is in the path', () => {
  expect(addressOf('s3://archive/sluice')).toMatchObject({
    bucketUrl: 'https://s3.us-east-1.amazonaws.com/archive',
    prefix: 'sluice/',
    region: 'us-east-1',
    compression: 'gzip',
    objectMs: 60_000,
  });
  const env = { ...KEYS, AWS_DEFAULT_REGION: 'eu-west-1' };
  expect(addressOf('s3://a', env).bucketUrl).toBe('https://s3.eu-west-1.amazonaws.com/a');
  expect(addressOf('s3://a', { ...env, AWS_REGION: 'eu-central-1' }).region).toBe('eu-central-1');
  expect(addressOf('s3://a?region=eu-north-1', env).region).toBe('eu-north-1');
  expect(addressOf('s3://a/b?endpoint=https://s3.example.com:9000/').bucketUrl).toBe(
    'https://s3.example.com:9000/a',
  );
});

it('has the credentials of the environment, or those of the URL without a session token', () => {
  const env = { ...KEYS, AWS_SESSION_TOKEN: 'session' };
  const found = { accessKeyId: 'key', secretAccessKey: 'secret', sessionToken: 'session' };
  expect(addressOf('s3://a', env)).toMatchObject(found);
  expect(addressOf('s3://own:p%2Fw@a', env)).toMatchObject({
    accessKeyId: 'own',
    secretAccessKey: 'p/w',
    sessionToken: undefined,
  });
});

it('lets an item wait from a second to an hour', () => {
  for (const seconds of [1, 3_600])
    expect(addressOf(`s3://a?seconds=${seconds}`).objectMs).toBe(seconds * 1_000);
  for (const seconds of ['0', '3601', '1.5', 'x'])
    expect(() => addressOf(`s3://a?seconds=${seconds}`)).toThrow('from 1 to 3600');
});
