/** Questions of `sluice doctor` to the sink's bucket; they change nothing. */
import { parseAddress, type S3Setting } from './address.ts';
import { Bucket } from './bucket.ts';

type BucketReport = {
  roundTripMs: number;
  /** Unix milliseconds, by the store (in seconds, where it says) and by us. */
  clockMs: number | undefined;
  askedAtMs: number;
};

/** @throws UnavailableError when the bucket cannot be listed; SinkSettingError */
export async function inspectBucket(setting: S3Setting): Promise<BucketReport> {
  const address = parseAddress(setting);
  const sentAt = performance.now();
  const date = await new Bucket(address).date(address.prefix);
  const roundTripMs = performance.now() - sentAt;
  return { roundTripMs, clockMs: date, askedAtMs: Date.now() - roundTripMs / 2 };
}
