/** What the s3 sink needs of its bucket (docs/sinks.md). */
import type { S3Setting } from '../../sink/s3/address.ts';
import { inspectBucket } from '../../sink/s3/inspect.ts';
import { reasonOf, withoutPassword } from '../session.ts';
import { type Check, checkClock, fail, ok, warn } from './check.ts';

const ROUND_TRIP_WARN_MS = 500;

export async function checkS3(setting: S3Setting): Promise<Check[]> {
  const what = `s3 ${withoutPassword(setting.url).replace(/\?.*/, '')}`;
  try {
    const { roundTripMs, clockMs, askedAtMs } = await inspectBucket(setting);
    const trip = `${roundTripMs.toFixed(0)} ms`;
    return [
      ok(what, 'reachable, and the credentials may list it'),
      roundTripMs >= ROUND_TRIP_WARN_MS
        ? warn(`${what} round trip`, trip, 'Bring it nearer: objects are stored one after the other.')
        : ok(`${what} round trip`, trip),
      ...(clockMs === undefined ? [] : [checkClock(`${what} clock`, clockMs, askedAtMs)]),
    ];
  } catch (error) {
    return [fail(what, `not usable: ${reasonOf(error)}`, 'Correct SLUICE_SINK, or the credentials.')];
  }
}
