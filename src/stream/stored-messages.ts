import type { JsMsg, OrderedConsumerOptions } from '@nats-io/jetstream';
import type { NatsLink } from './nats.ts';

const FETCH = { max_messages: 500, expires: 2_000 };
/**
 * After this many attempts in a row that bring nothing, although the broker says that there is
 * more, reading fails.
 */
const IN_VAIN_MAX = 5;

type Options = Omit<Partial<OrderedConsumerOptions>, 'deliver_policy'>;
/** `from`: the next sequence number to read. `pending`: how many messages are left. */
type Place = { from: number; pending: number };

/**
 * Yields the messages that a stream holds now, oldest first. The options select some of them.
 * @throws when the broker does not send all messages; only some were yielded then
 */
export async function* storedMessages(
  link: NatsLink,
  stream: string,
  options: Options,
): AsyncGenerator<JsMsg> {
  const place: Place = { from: options.opt_start_seq ?? 1, pending: 0 };
  for (let inVain = 0; inVain < IN_VAIN_MAX; ) {
    const { from } = place;
    yield* untilNothingComes(place, () => link.js.consumers.get(stream, { ...options, opt_start_seq: from }));
    if (place.pending === 0) return;
    // Either the rest was removed meanwhile, or the broker stood still and its messages came too
    // late.
    inVain = place.from === from ? inVain + 1 : 0;
  }
  throw new Error(`${stream} was not read to its end: the broker does not send what it has`);
}

async function* untilNothingComes(
  place: Place,
  consumerOf: () => ReturnType<NatsLink['js']['consumers']['get']>,
): AsyncGenerator<JsMsg> {
  const consumer = await consumerOf();
  try {
    place.pending = (await consumer.info(true)).num_pending;
    for (let before = 0; place.pending > 0 && before !== place.from; ) {
      before = place.from;
      for await (const message of await consumer.fetch(FETCH)) {
        yield message;
        place.from = message.seq + 1;
        place.pending = message.info.pending;
        if (place.pending === 0) break;
      }
    }
  } finally {
    await consumer.delete().catch(() => undefined); // the broker removes it later, if this fails
  }
}
