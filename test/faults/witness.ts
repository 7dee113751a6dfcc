/** Sees every frame that a broker stored, so that of a lost item it can be said how far it came. */
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { frameKey } from '../../src/sink/item-key.ts';
import { decodeIndex } from '../../src/sink/ndjson/index-file.ts';
import { decodeFrame } from '../../src/stream/frame.ts';
import type { NatsLink } from '../../src/stream/nats.ts';
import { type TopologyOptions, wantedStreams } from '../../src/stream/topology.ts';

const WITNESS = 'witness';

/** Streams that repeat what they store, as the broker's own word. To be made before all others: nats-server 2.9 cannot add it later. */
export async function witnessed(link: NatsLink, topology: TopologyOptions): Promise<void> {
  const { streams } = await link.manager();
  for (const { config, consumer } of wantedStreams(topology)) {
    const [src] = config.subjects;
    if (consumer) await streams.add({ ...config, republish: { src: `${src}`, dest: `${WITNESS}.${src}` } });
  }
}

type Seen = { stream: string; sequence: number; frameId: string; index: number; entries: number };

export class Witness {
  readonly #seen = new Map<string, Seen>();
  /** Frames by stream and sequence. More than one: a stream went back to before what it had stored. */
  readonly #frames = new Map<string, Set<string>>();

  /** @param link to a broker with {@link witnessed} streams; what is stored while this connection is away is missed */
  constructor(link: NatsLink) {
    link.connection.subscribe(`${WITNESS}.>`, {
      callback: (error, msg) => {
        if (error) return;
        const slots = decodeFrame(msg.data);
        const place = {
          stream: msg.headers?.get('Nats-Stream') ?? '',
          sequence: Number(msg.headers?.get('Nats-Sequence')),
          frameId: msg.headers?.get('Nats-Msg-Id') ?? '',
          entries: slots.length,
        };
        const at = `${place.stream} ${place.sequence}`;
        this.#frames.set(at, (this.#frames.get(at) ?? new Set()).add(place.frameId));
        slots.forEach((slot, index) => {
          if (slot.ok && slot.entry.kind === 'envelope')
            this.#seen.set(slot.entry.eventId, { ...place, index });
        });
      },
    });
  }

  /** One sentence: was it in a stream, and what does the ndjson sink, where there is one, know of its frame? */
  trace(eventId: string, sinkDir: string | undefined): string {
    const seen = this.#seen.get(eventId);
    if (!seen) return `${eventId} was not seen in any stream`;
    const { stream, sequence, frameId, index, entries } = seen;
    const known = sinkDir
      ? `the sink knows ${journalOf(join(sinkDir, stream), { frameId, eventId })} of the frame; `
      : '';
    const others = [...(this.#frames.get(`${stream} ${sequence}`) ?? [])].filter((id) => id !== frameId);
    return `${eventId} was entry ${index} of ${entries} in ${stream} ${sequence} (${frameId}); ${known}frames of the same sequence: ${others.join(', ') || 'none'}`;
  }
}

/** What the journal's indexes say of a frame, and whether the lines are where they say. */
export function journalOf(dir: string, { frameId, eventId }: { frameId: string; eventId: string }): string {
  const journal = join(dir, 'journal');
  const names = existsSync(journal) ? readdirSync(journal) : [];
  const key = frameKey(frameId);
  const found = names
    .filter((name) => name.endsWith('.idx'))
    .map((name) => ({ name, index: decodeIndex(readFileSync(join(journal, name)), name) }))
    .flatMap(({ name, index: { frames, data, committedAt } }) => {
      const frame = frames.find((one) => one.key.equals(key));
      return frame ? [{ name, entries: frame.entries, data, committedAt }] : [];
    });
  const unfinished = names.filter((name) => name.endsWith('.tmp'));
  const told = found.map(({ name, entries, data, committedAt }) => {
    const path = data === null ? undefined : join(dir, data);
    const text = path !== undefined && existsSync(path) ? readFileSync(path, 'utf8') : undefined;
    const lines = text === undefined ? 'no file' : `${text.split('\n').length - 1} lines`;
    const holds = text?.includes(eventId) ? 'with it' : 'without it';
    return `${entries} entries by ${name} (${data}: ${lines}, ${holds}, ${new Date(committedAt).toISOString()})`;
  });
  return `${told.join(' and ') || 'nothing'}${unfinished.length > 0 ? `, beside ${unfinished}` : ''}`;
}
