/**
 * Whether the server can hold what setup is about to reserve. JetStream reserves max_bytes at
 * creation and refuses beyond its storage (error 10047), or beyond the account's (10002), without
 * saying how much there is; and it would do so half-way through. So one stream of the whole size is
 * created and deleted first. Only when that fails is the largest that succeeds searched for, to
 * give both figures. In a cluster the streams lie on different servers, one size for all would
 * prove nothing: there the account's limits are compared, and a server that is full is reported
 * when it refuses.
 */
import { type JetStreamManager, StorageType } from '@nats-io/jetstream';
import type { NatsLink } from '../nats.ts';
import { addStream } from './add-stream.ts';
import { bytesText } from './config-diff.ts';
import { API_CODES, isApiError, SetupError } from './setup-error.ts';

const PROBE = 'SLUICE_SETUP_PROBE';
const PROBE_SUBJECT = 'sluice.setup_probe';
/** The figure that is found is this close to the true one. */
const PRECISION_BYTES = 1024 * 1024;

async function fits(manager: JetStreamManager, bytes: number): Promise<boolean> {
  try {
    await addStream(manager, {
      name: PROBE,
      subjects: [PROBE_SUBJECT],
      storage: StorageType.File,
      max_bytes: bytes,
    });
  } catch (error) {
    if (isApiError(error, API_CODES.serverStorageExceeded, API_CODES.accountStorageExceeded)) return false;
    // Another setup probes at this moment: the creation itself will tell.
    if (isApiError(error, API_CODES.streamNameInUse, API_CODES.subjectsOverlap)) return true;
    throw error;
  }
  await manager.streams.delete(PROBE);
  return true;
}

/**
 * Bytes that can still be reserved, rounded down to PRECISION_BYTES; `failed` is known not to fit.
 */
async function largestFit(manager: JetStreamManager, failed: number): Promise<number> {
  let low = 0;
  let high = Math.ceil(failed / PRECISION_BYTES);
  while (high - low > 1) {
    const middle = Math.floor((low + high) / 2);
    if (await fits(manager, middle * PRECISION_BYTES)) low = middle;
    else high = middle;
  }
  return low * PRECISION_BYTES;
}

const tooLittle = (needed: number, available: number): SetupError =>
  new SetupError(
    `the streams need ${bytesText(needed)} of storage and JetStream has ${bytesText(available)} left to reserve: ` +
      'lower SLUICE_STREAM_MAX_BYTES, or raise max_file_store of the server (or the storage limit of the account)',
  );

/**
 * @param needed bytes that will be reserved beyond what is, all replicas together
 * @throws SetupError with both figures
 */
export async function checkStorage(link: NatsLink, manager: JetStreamManager, needed: number): Promise<void> {
  if (needed <= 0) return;
  const account = await manager.getAccountInfo();
  const { max_storage: limit } = account.limits;
  if (limit > 0 && needed > limit - account.reserved_storage)
    throw tooLittle(needed, Math.max(0, limit - account.reserved_storage));
  if (link.connection.info?.cluster) return;
  await manager.streams.delete(PROBE).catch(() => undefined); // left by a setup that was killed
  if (!(await fits(manager, needed))) throw tooLittle(needed, await largestFit(manager, needed));
}
