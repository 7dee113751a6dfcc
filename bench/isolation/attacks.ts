/** What one project can do to hurt the others with nothing but its public key. */
import { connect, type Socket } from 'node:net';
import { gzipSync } from 'node:zlib';
import { Asking, Tally } from '../hostile/asking.ts';
import { headOf } from '../hostile/uploads.ts';

const MIB = 1024 * 1024;
const SLOW_UPLOADS = 1_200;
const SLOW_BEGIN_BYTES = 256 * 1024;
const SLOW_BYTES_PER_SEC = 5_000;
const FLOOD_CONNECTIONS = 64;

export type Isolated = {
  name: string;
  /** Attacks until `ms` have passed. @returns what the attacker was answered */
  run(port: number, path: string, ms: number): Promise<Tally>;
  /** The processor stands still meanwhile, so that nothing leaves the streams. */
  withoutProcessor?: true;
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

const bodies =
  (perSecond: number, body: Buffer, encoding = ''): Isolated['run'] =>
  (port, path, ms) => {
    const request = Buffer.concat([headOf(path, body.length, encoding), body]);
    const ask = async (asking: Asking): Promise<string> => {
      const { status, body: said } = await asking.ask(request);
      return status === 0 ? `0 ${said}` : `${status}`;
    };
    return sustain(perSecond, ms, ask, port);
  };

/** Requests as fast as they are answered. */
const flood =
  (requestOf: (path: string) => Buffer): Isolated['run'] =>
  async (port, path, ms) => {
    const tally = new Tally();
    const request = requestOf(path);
    const until = performance.now() + ms;
    const client = async (): Promise<void> => {
      const asking = new Asking(port);
      while (performance.now() < until) tally.add(`${(await asking.ask(request)).status}`);
      asking.leave();
    };
    await Promise.all(Array.from({ length: FLOOD_CONNECTIONS }, client));
    return tally;
  };

/** Bodies of 5 MB that begin fast, then keep just above the pace at which they are cut. */
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
    if (count % 50 === 49) await sleep(20);
  }
  for (const until = performance.now() + ms; performance.now() < until; await sleep(1_000))
    for (const socket of sockets) if (!socket.destroyed && socket.writableLength === 0) socket.write(piece);
  for (const socket of sockets) socket.destroy();
  return tally;
}

export function isolated(): Isolated[] {
  const bomb = gzipSync(`{}\n{"type":"event"}\n"${'x'.repeat(19 * MIB)}"`);
  const items = `{}${'\n{"type":"log"}\n{"items":[{"body":"x"}]}'.repeat(900)}`;
  const unreadable = `{}${`\n{"type":"event"}\nno JSON ${'x'.repeat(2_000)}`.repeat(20)}`;
  const junk = Buffer.from(`{}\n{"type":"event","length":9}\n${'{'.repeat(60_000)}`);
  const event = Buffer.from('{}\n{"type":"event"}\n{}');
  const wrongKey = (path: string): Buffer => Buffer.concat([headOf(`${path}x`, event.length), event]);
  return [
    { name: 'bombs, 16/s', run: bodies(16, bomb, 'gzip') },
    { name: 'bombs, 50/s', run: bodies(50, bomb, 'gzip') },
    { name: 'chunks filled, 6/s', run: bodies(6, bomb, 'gzip'), withoutProcessor: true },
    { name: `${SLOW_UPLOADS} slow uploads`, run: slowUploads },
    { name: 'flood of wrong keys', run: flood(wrongKey) },
    {
      name: 'flood over the limit',
      run: flood((path) => Buffer.concat([headOf(path, event.length), event])),
    },
    { name: 'junk of 60 KB, 300/s', run: bodies(300, junk) },
    { name: '900 items, 20/s', run: bodies(20, Buffer.from(items)) },
    { name: 'dead letters, 2,000/s', run: bodies(100, Buffer.from(unreadable)) },
  ];
}
