import type { JsMsg, OrderedConsumerOptions } from '@nats-io/jetstream';
import type { NatsLink } from '../nats.ts';

const FETCH = { max_messages: 500, expires: 2_000 };

/** What a stream holds now, oldest first; the options narrow it. */
export async function* storedMessages(
  link: NatsLink,
  stream: string,
  options: Partial<OrderedConsumerOptions>,
): AsyncGenerator<JsMsg> {
  const consumer = await link.js.consumers.get(stream, options);
  try {
    for (let pending = (await consumer.info(true)).num_pending; pending > 0; ) {
      // A message may be removed meanwhile: a fetch that brings nothing ends the reading too.
      pending = 0;
      for await (const message of await consumer.fetch(FETCH)) {
        yield message;
        pending = message.info.pending;
        if (pending === 0) break;
      }
    }
  } finally {
    await consumer.delete().catch(() => undefined); // the broker removes it after a while
  }
}
