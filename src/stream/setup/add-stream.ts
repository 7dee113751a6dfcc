import { setTimeout as sleep } from 'node:timers/promises';
import type { JetStreamManager, StreamConfig } from '@nats-io/jetstream';
import { API_CODES, isApiError } from './setup-error.ts';

type NewStream = Partial<StreamConfig> & Pick<StreamConfig, 'name'>;

const TRIES = 10;
const PAUSE_MS = 200;

/**
 * Creates a stream. When the last stream of an account is deleted, nats-server (2.15) removes the
 * account's folders in the background, and a stream created meanwhile cannot be stored. So the
 * creation is repeated.
 * @throws what the server says
 */
export async function addStream(manager: JetStreamManager, config: NewStream): Promise<void> {
  for (let tries = 1; ; tries++)
    try {
      await manager.streams.add(config);
      return;
    } catch (error) {
      const isFolder = isApiError(error, API_CODES.streamCreate) && /creating store/.test(error.message);
      if (tries === TRIES || !isFolder) throw error;
      await sleep(PAUSE_MS);
    }
}
