/**
 * Many large uploads at once, each at the pace of a modest line, and what they do to the memory of the worker that takes them.
 *
 * All share one body but for the digits of their ids, or the client would need more memory than the server. The ids stand at both ends
 * of the payload, so that two uploads whose bytes were mixed would show.
 */
import { createHash } from 'node:crypto';
import { createReadStream, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { crc32, deflateRawSync } from 'node:zlib';
import { hex, integer, seededRandom } from '../random.ts';
import type { Target } from '../workload.ts';
import { Asking, Tally } from './asking.ts';
import { type HostileWorker, MemoryWatch, pathOf } from './worker.ts';

export type UploadOptions = {
  /** Upload n is sent to target n, from the start again after the last: a project alone may fill half of the spool. */
  targets: readonly Target[];
  count: number;
  seed: number;
  /** Of the payload, before compression. */
  payloadBytes: number;
  gzip: boolean;
  bytesPerSecond: number;
};
export type UploadResult = {
  answers: Record<string, number>;
  seconds: number;
  transmittedBytes: number;
  memory: { before: number; peak: number; after: number; slope: number };
  /** Ids of those that were answered 200. */
  accepted: string[];
  /** SHA-256 of what every payload's `data` must be. */
  sha256: string;
};

const TICK_MS = 100;
const sleep = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms));

/** Text that gzip takes to a quarter or less: a plain upload of 5 MB is 5 MB either way, a compressed one of 19 MiB must fit the cap. */
function textOf(length: number, seed: number): Buffer {
  const random = seededRandom(seed);
  const block = Buffer.from(Array.from({ length: 65_536 }, () => 97 + integer(random, 0, 2)));
  const text = Buffer.alloc(length);
  for (let at = 0; at < length; at += block.length) {
    block.copy(text, at);
    // A window of 32 KiB must not see the block again.
    for (let i = 0; i < block.length; i += 7) block[i] = 97 + (((block[i] as number) + at / 65_536 + i) % 3);
  }
  return text;
}

/** A body in three parts, of which the middle one is shared by all. */
type Upload = { id: string; parts: readonly Uint8Array[]; length: number };

function plain(data: Buffer): (id: string) => Upload {
  return (id) => {
    const head = Buffer.from(`{"event_id":"${id}"}\n{"type":"event"}\n{"begin":"${id}","data":"`);
    const tail = Buffer.from(`","end":"${id}"}`);
    return { id, parts: [head, data, tail], length: head.length + data.length + tail.length };
  };
}

const stored = (bytes: Uint8Array, isLast: boolean): Buffer => {
  const head = Buffer.alloc(5);
  head[0] = Number(isLast);
  head.writeUInt16LE(bytes.length, 1);
  head.writeUInt16LE(~bytes.length & 0xffff, 3);
  return Buffer.concat([head, bytes]);
};

/** The shared middle is compressed once, up to a byte border and without an end; both ends are stored blocks. */
function gzipped(data: Buffer): (id: string) => Upload {
  const middle = deflateRawSync(data, { level: 6, finishFlush: 2 /* Z_SYNC_FLUSH */ });
  const make = plain(data);
  return (id) => {
    const [head, , tail] = make(id).parts as [Buffer, Buffer, Buffer];
    const crc = crc32(tail, crc32(data, crc32(head)));
    const end = Buffer.alloc(8);
    end.writeUInt32LE(crc, 0);
    end.writeUInt32LE((head.length + data.length + tail.length) >>> 0, 4);
    const begin = Buffer.concat([Buffer.from([0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 0xff]), stored(head, false)]);
    const finish = Buffer.concat([stored(tail, true), end]);
    return { id, parts: [begin, middle, finish], length: begin.length + middle.length + finish.length };
  };
}

function* pieces({ parts }: Upload, size: number): Iterable<Uint8Array> {
  for (const part of parts)
    for (let at = 0; at < part.length; at += size) yield part.subarray(at, Math.min(part.length, at + size));
}

export function headOf(path: string, length: number, encoding = '', contentType = ''): Buffer {
  const lines = [
    `POST ${path} HTTP/1.1`,
    'Host: sluice',
    ...(encoding ? [`Content-Encoding: ${encoding}`] : []),
    ...(contentType ? [`Content-Type: ${contentType}`] : []),
    `Content-Length: ${length}`,
  ];
  return Buffer.from(`${lines.join('\r\n')}\r\n\r\n`);
}

/** Sends one body, a piece a tick, from a moment within the first tick on. */
async function upload(
  worker: HostileWorker,
  target: Target,
  one: Upload,
  options: UploadOptions,
): Promise<string> {
  const asking = new Asking(worker.port);
  const reply = asking.ask(headOf(pathOf(target), one.length, options.gzip ? 'gzip' : ''));
  let answered = false;
  void reply.then(() => {
    answered = true;
  });
  const startedAt = performance.now();
  let sent = 0;
  for (const piece of pieces(one, Math.ceil((options.bytesPerSecond * TICK_MS) / 1000))) {
    const due = startedAt + (sent / options.bytesPerSecond) * 1000;
    if (due > performance.now()) await sleep(due - performance.now());
    if (answered) break;
    asking.more(piece);
    sent += piece.length;
  }
  const { status, body } = await reply;
  asking.leave();
  return status === 200 ? '200' : `${status} ${body.slice(0, 60)}`;
}

export async function runUploads(worker: HostileWorker, options: UploadOptions): Promise<UploadResult> {
  const random = seededRandom(options.seed);
  const data = textOf(options.payloadBytes, options.seed);
  const make = options.gzip ? gzipped(data) : plain(data);
  const uploads = Array.from({ length: options.count }, () => make(hex(random, 32)));
  const tally = new Tally();
  const accepted: string[] = [];
  const memory = new MemoryWatch(worker);
  const startedAt = performance.now();
  await Promise.all(
    uploads.map(async (one, index) => {
      const target = options.targets[index % options.targets.length] as Target;
      const kind = await upload(worker, target, one, options);
      tally.add(kind);
      if (kind === '200') accepted.push(one.id);
    }),
  );
  const seconds = (performance.now() - startedAt) / 1000;
  await worker.idle();
  return {
    answers: Object.fromEntries(tally.counts),
    seconds,
    transmittedBytes: uploads.reduce((sum, { length }) => sum + length, 0),
    memory: memory.stop(),
    accepted,
    sha256: createHash('sha256').update(data).digest('hex'),
  };
}

export type Found = { intact: number; damaged: string[]; missing: string[] };
type Stored = { event_id: string; payload: { begin?: string; end?: string; data?: string } };

async function* recordsOf(dir: string): AsyncIterable<Stored> {
  for (const file of readdirSync(dir, { recursive: true, encoding: 'utf8' }).filter((name) =>
    name.endsWith('.ndjson'),
  ))
    for await (const line of createInterface({ input: createReadStream(join(dir, file)) }))
      yield JSON.parse(line) as Stored;
}

/** Looks for every accepted upload in what the sink wrote. */
export async function findStored(worker: HostileWorker, { accepted, sha256 }: UploadResult): Promise<Found> {
  const missing = new Set(accepted);
  const found: Found = { intact: 0, damaged: [], missing: [] };
  for await (const { event_id: id, payload } of recordsOf(worker.sinkDir)) {
    if (!missing.delete(id)) continue;
    const hash = createHash('sha256')
      .update(payload.data ?? '')
      .digest('hex');
    if (hash === sha256 && payload.begin === id && payload.end === id) found.intact++;
    else found.damaged.push(id);
  }
  found.missing = [...missing];
  return found;
}

export type AbortOptions = { target: Target; count: number; bodyBytes: number; atOnce: number };

/** Uploads whole bodies but for the last byte, and leaves. */
export async function runAborts(
  worker: HostileWorker,
  { target, count, bodyBytes, atOnce }: AbortOptions,
): Promise<void> {
  const make = plain(textOf(bodyBytes, 1));
  let left = count;
  const client = async (): Promise<void> => {
    while (left-- > 0) {
      const one = make(hex(Math.random, 32));
      const asking = new Asking(worker.port);
      void asking.ask(headOf(pathOf(target), one.length + 1));
      await sendWhole(asking, one);
      asking.leave();
    }
  };
  await Promise.all(Array.from({ length: atOnce }, client));
}

/** Resolves when the kernel has taken it all. */
async function sendWhole(asking: Asking, one: Upload): Promise<void> {
  for (const part of one.parts) asking.more(part);
  await asking.flushed();
}
