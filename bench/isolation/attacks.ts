/** What one project can do to hurt the others with nothing but its public key. */
import { connect, type Socket } from 'node:net';
import { gzipSync } from 'node:zlib';
import { Asking, Tally } from '../hostile/asking.ts';
import { headOf } from '../hostile/uploads.ts';
import { stamped } from '../load/body.ts';
import { OTLP_PATHS, OTLP_TYPES, type OtlpEncoding, otlpBody } from '../otlp.ts';
import { ID_PLACEHOLDER } from '../payloads.ts';
import { seededRandom } from '../random.ts';

const MIB = 1024 * 1024;
const SLOW_UPLOADS = 1_200;
const SLOW_BEGIN_BYTES = 160 * 1024;
const SLOW_BYTES_PER_SEC = 5_000;
const FLOOD_PER_SEC = 3_000;
const DEPTH = 220_000;

export type Isolated = {
  name: string;
  /** Attacks until `ms` have passed. @returns what the attacker was answered */
  run(port: number, path: string, ms: number): Promise<Tally>;
  /** The processor stands still meanwhile, so that nothing leaves the streams. */
  withoutProcessor?: true;
  /** Which project attacks: one with a limit, or one whose payloads are scrubbed; else one with neither. */
  by?: 'limited' | 'scrubbed';
};

const sleep = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms));

/** Open loop: so many a second, whether or not the ones before have been answered. */
async function sustain(
  perSecond: number,
  ms: number,
  send: (asking: Asking) => Promise<string>,
  port: number,
) {
  const tally = new Tally();
  const free: Asking[] = [];
  const sent: Promise<void>[] = [];
  const startedAt = performance.now();
  for (let count = 0; count < (ms / 1000) * perSecond; count++) {
    const early = startedAt + (count * 1000) / perSecond - performance.now();
    if (early > 0) await sleep(early);
    const asking = free.pop() ?? new Asking(port);
    sent.push(
      send(asking).then((kind) => {
        tally.add(kind);
        free.push(asking);
      }),
    );
  }
  await Promise.all(sent);
  for (const asking of free) asking.leave();
  return tally;
}

type Bodies = (perSecond: number, body: Buffer, encoding?: string) => Isolated['run'];

const bodiesAt =
  (share: number): Bodies =>
  (perSecond, body, encoding = '') =>
  (port, path, ms) => {
    const request = Buffer.concat([headOf(path, body.length, encoding), body]);
    return sustain(perSecond * share, ms, (asking) => answerTo(asking, request), port);
  };

async function answerTo(asking: Asking, request: Buffer): Promise<string> {
  const { status, body } = await asking.ask(request);
  return status === 0 ? `0 ${body}` : `${status}`;
}

/** Valid requests of OTLP, each with another id in it: the same bytes would be a resend, which costs nothing but its recognition. */
function otlpSpans(perSecond: number, spans: number, encoding: OtlpEncoding, share: number): Isolated {
  const body = otlpBody('otlp-traces', encoding, seededRandom(spans), spans);
  let count = 0;
  const run: Isolated['run'] = (port, path, ms) => {
    const address = path.replace('/envelope/', OTLP_PATHS['otlp-traces']);
    const head = headOf(address, body.length, '', OTLP_TYPES[encoding]);
    const send = (asking: Asking): Promise<string> =>
      answerTo(asking, Buffer.concat([head, stamped(body, ID_PLACEHOLDER, count++)]));
    return sustain(perSecond * share, ms, send, port);
  };
  return { name: `OTLP ${encoding}, ${spans.toLocaleString('en')} spans, ${perSecond}/s`, run };
}

/**
 * Bodies of 5 MB that begin fast, then keep just above the pace at which they are cut. Those that are refused are told so with their
 * last byte, which never comes.
 */
async function slowUploads(port: number, path: string, ms: number): Promise<Tally> {
  const tally = new Tally();
  const begin = Buffer.concat([
    headOf(path, 5_000_000),
    Buffer.from('{}\n{"type":"event"}\n"'),
    Buffer.alloc(SLOW_BEGIN_BYTES, 'x'),
  ]);
  const piece = Buffer.alloc(SLOW_BYTES_PER_SEC, 'x');
  const sockets: Socket[] = [];
  for (let count = 0; count < SLOW_UPLOADS; count++) {
    const socket = connect({ port, host: '127.0.0.1' });
    socket.on('data', (data) => tally.add(data.toString('latin1', 9, 12)));
    socket.on('error', () => tally.add('cut'));
    socket.write(begin);
    sockets.push(socket);
    if (count % 10 === 9) await sleep((10 * ms) / 2 / SLOW_UPLOADS);
  }
  for (const until = performance.now() + ms / 2; performance.now() < until; await sleep(1_000))
    for (const socket of sockets) if (!socket.destroyed && socket.writableLength === 0) socket.write(piece);
  for (const socket of sockets) socket.destroy();
  return tally;
}

/** A megabyte for the filters: a host of 20,000 letters, then names of members that are none, then one field again and again. */
function costlyEvents(): Buffer {
  const host = Array.from({ length: 20_000 }, (_, n) => String.fromCharCode(0x4e00 + n)).join('');
  const events = [
    `{"x":"localhost","request":{"url":"http://${host}.b/"}}`,
    `{"x":"localhost"${',"\\x"'.repeat(100_000)}}`,
    `{"x":"localhost"${',"user":0'.repeat(50_000)}}`,
  ];
  return gzipSync(`{}${events.map((event) => `\n{"type":"event"}\n${event}`).join('')}`);
}

/** An envelope with recordings of such texts, each compressed by itself, and compressed again. */
function recordings(count: number, recording: () => string): Buffer {
  const packed = gzipSync(recording(), { level: 9 });
  const payload = Buffer.concat([Buffer.from('{"segment_id":0}\n'), packed]);
  const item = Buffer.concat([
    Buffer.from(`\n{"type":"replay_recording","length":${payload.length}}\n`),
    payload,
  ]);
  return gzipSync(Buffer.concat([Buffer.from('{}'), ...Array.from({ length: count }, () => item)]));
}

const listOf = (element: string, bytes: number): string =>
  `[${`${element},`.repeat(bytes / (element.length + 1))}${element}]`;

/** As an event: what a scrubber must rewrite everywhere. */
const eventOf = (payload: string): string => `{}\n{"type":"event"}\n${payload}`;

/** A zstd frame with a window of 8 MiB, the largest that is taken: a block of four bytes inflates to 128 KiB. */
function zstdOf(text: string, blocks: number): Buffer {
  const block = (bytes: number, kind: 'raw' | 'repeated', content: string, isLast = false): Buffer => {
    const head = Buffer.alloc(3);
    head.writeUIntLE((bytes << 3) | (kind === 'raw' ? 0 : 2) | Number(isLast), 0, 3);
    return Buffer.concat([head, Buffer.from(content)]);
  };
  const head = Buffer.from([0x28, 0xb5, 0x2f, 0xfd, 0x00, 0x68]);
  const repeated = Array.from({ length: blocks }, () => block(128 * 1024, 'repeated', 'x'));
  return Buffer.concat([head, block(text.length, 'raw', text), ...repeated, block(1, 'raw', '"', true)]);
}

function onTheProcessor(bodies: Bodies): Isolated[] {
  const email = '"a@b.cc"';
  const large = gzipSync(eventOf(`{"extra":${listOf(email, 390_000)}}`));
  // Scrubbing it takes longer than its size tells (SCRUBBED_MS_PER_BYTE), by which it is below half of the processor's time.
  const colons = gzipSync(eventOf(`{"extra":"${"':':1".repeat(390_000 / 5)}"}`));
  const bomb = recordings(2, () => `["${'x'.repeat(63 * MIB)}"]`);
  const costly = recordings(1, () => listOf(email, 62 * MIB));
  return [
    { name: 'recording bombs, 1/s', run: bodies(1, bomb, 'gzip') },
    { name: 'scrubbed bombs, 1/s', run: bodies(1, costly, 'gzip'), by: 'scrubbed' },
    { name: 'scrubbed 390 KB, 15/s', run: bodies(15, large, 'gzip'), by: 'scrubbed' },
    { name: 'scrubbed colons, 10/s', run: bodies(10, colons, 'gzip'), by: 'scrubbed' },
  ];
}

/** @param share of the rates that the names say */
export function isolated(share = 1): Isolated[] {
  const bodies = bodiesAt(share);
  const bomb = gzipSync(`{}\n{"type":"event"}\n"${'x'.repeat(19 * MIB)}"`);
  const items = `{}${'\n{"type":"log"}\n{"items":[{"body":"x"}]}'.repeat(1_000)}`;
  const log = `{"timestamp":1767322800.5,"level":"info","body":"x","attributes":{"n":{"value":"${'x'.repeat(100)}","type":"string"}}}`;
  const logs = Buffer.from(`{}\n{"type":"log"}\n{"items":[${Array(1_000).fill(log).join(',')}]}`);
  const unreadable = `{}${`\n{"type":"event"}\nno JSON ${'x'.repeat(2_000)}`.repeat(20)}`;
  const broken = `{}${'\n{"type":"event"}\n{"no JSON'.repeat(50)}`;
  const deep = `${'['.repeat(DEPTH)}${']'.repeat(DEPTH)}`;
  const brackets = gzipSync(eventOf(`{"x":"localhost","request":${deep},"y":${deep}}`));
  const junk = Buffer.from(`{}\n{"type":"event","length":9}\n${'{'.repeat(60_000)}`);
  const event = Buffer.from('{}\n{"type":"event"}\n{}');
  const flood = bodies(FLOOD_PER_SEC, event);
  const resend = Buffer.from(`{"event_id":"${'a'.repeat(32)}"}\n{"type":"event"}\n{}`);
  const windows = zstdOf(eventOf('"'), 19 * 8);
  return [
    { name: 'bombs, 16/s', run: bodies(16, bomb, 'gzip') },
    { name: 'bombs, 50/s', run: bodies(50, bomb, 'gzip') },
    { name: 'chunks filled, 6/s', run: bodies(6, bomb, 'gzip'), withoutProcessor: true },
    { name: `${SLOW_UPLOADS} slow uploads`, run: slowUploads },
    { name: 'wrong keys, 3,000/s', run: (port, path, ms) => flood(port, `${path}x`, ms) },
    { name: 'over the limit, 3,000/s', run: flood, by: 'limited' },
    { name: 'resends of one event, 3,000/s', run: bodies(FLOOD_PER_SEC, resend) },
    {
      name: 'pings of no token, 3,000/s',
      run: (port, _path, ms) => flood(port, `/heartbeat/${'a'.repeat(32)}`, ms),
    },
    { name: 'zstd of 8 MiB windows, 16/s', run: bodies(16, windows, 'zstd') },
    { name: 'junk of 60 KB, 300/s', run: bodies(300, junk) },
    { name: '1,000 items, 20/s', run: bodies(20, Buffer.from(items)) },
    // What the plans Pro and Business allow.
    { name: '1,000 logs in one, 17/s', run: bodies(17, logs) },
    { name: '1,000 logs in one, 167/s', run: bodies(167, logs) },
    otlpSpans(17, 5_000, 'protobuf', share),
    otlpSpans(17, 5_000, 'json', share),
    otlpSpans(167, 500, 'protobuf', share),
    otlpSpans(167, 500, 'json', share),
    { name: 'deep brackets, 10/s', run: bodies(10, brackets, 'gzip') },
    { name: 'costly to filter, 10/s', run: bodies(10, costlyEvents(), 'gzip') },
    { name: 'dead letters, 2,000/s', run: bodies(100, Buffer.from(unreadable)) },
    { name: 'dead letters, 12,000/s', run: bodies(240, Buffer.from(broken)) },
    ...onTheProcessor(bodies),
  ];
}
