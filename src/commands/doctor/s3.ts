/** Checks of `sluice doctor` for the s3 sink (docs/sinks.md). */
import { withoutPassword } from '../../management/connections.ts';
import { asking, type Check } from '../../management/doctor/check.ts';
import { clock, milliseconds } from '../../management/doctor/checks.ts';
import { parseAddress, type S3Setting } from '../../sink/s3/address.ts';
import { Bucket } from '../../sink/s3/bucket.ts';

const ROUND_TRIP_WARN_MS = 500;

export function s3(setting: S3Setting): Promise<Check[]> {
  const what = `s3 ${withoutPassword(setting.url).replace(/\?.*/, '')}`;
  return asking({ what, fix: 'Correct SLUICE_SINK, or the credentials.' }, async () => {
    const address = parseAddress(setting);
    const sentAt = performance.now();
    const clockMs = await new Bucket(address).date(address.prefix); // to the second
    const roundTripMs = performance.now() - sentAt;
    const askedAtMs = Date.now() - roundTripMs / 2;
    return [
      { what, found: 'reachable, and the credentials may list it' },
      {
        what: `${what} round trip`,
        found: milliseconds(roundTripMs),
        warn: roundTripMs >= ROUND_TRIP_WARN_MS,
        fix: 'Bring it nearer: objects are stored one after the other.',
      },
      ...(clockMs === undefined ? [] : [clock(`${what} clock`, clockMs - askedAtMs)]),
    ];
  });
}
