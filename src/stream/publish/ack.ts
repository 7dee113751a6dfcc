/** The answers of a stream to a publish, and what each means for the next step. Pure. */
import type { Msg } from '@nats-io/transport-node';

export type Ack =
  | { kind: 'stored'; sequence: number }
  /** This attempt is not in the stream and will not be: another one would fare the same. */
  | { kind: 'refused'; reason: string }
  /** This attempt is not in the stream, but a later one may be. */
  | { kind: 'again'; reason: string }
  /** No stream listens on the subject: none there, or no leader at the moment. */
  | { kind: 'no responders'; reason: string }
  /**
   * An answer that says neither: treated like none, and asked again. So is 10158, that the same
   * message id is being stored at this moment: what another attempt brought may come to be.
   */
  | { kind: 'unclear'; reason: string };

const MEANING: Readonly<Record<number, 'refused' | 'again'>> = {
  10002: 'refused', // the account's storage is used up
  10023: 'again', // server short of resources
  10028: 'again', // memory short
  10039: 'refused', // JetStream not enabled for the account
  10047: 'refused', // the server's storage is used up
  10054: 'refused', // longer than max_msg_size: the stream is being retired
  10109: 'refused', // sealed
  10167: 'again', // too many requests
};

/** "maximum bytes exceeded" and its like share this code with failures to write, which may pass. */
const STORE_FAILED = 10077;
const NO_RESPONDERS = 503;

function ofError(error: { err_code?: unknown; description?: unknown }): Ack {
  const code = Number(error.err_code);
  const reason = `${error.description} (${code})`;
  if (code === STORE_FAILED)
    return { kind: /maximum .* exceeded/.test(reason) ? 'refused' : 'unclear', reason };
  return { kind: MEANING[code] ?? 'unclear', reason };
}

export function readAck(msg: Msg): Ack {
  if (msg.data.length === 0 && msg.headers?.code === NO_RESPONDERS)
    return { kind: 'no responders', reason: 'no stream listens on the subject' };
  let body: unknown;
  try {
    body = JSON.parse(msg.string());
  } catch {
    return { kind: 'unclear', reason: 'an answer that is no JSON' };
  }
  const { stream, seq, error } = (body ?? {}) as { stream?: unknown; seq?: unknown; error?: object };
  if (error) return ofError(error);
  if (typeof stream === 'string' && Number.isSafeInteger(seq) && (seq as number) > 0)
    return { kind: 'stored', sequence: seq as number };
  return { kind: 'unclear', reason: 'an answer that is no acknowledgement' };
}
