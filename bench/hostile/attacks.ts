/** Requests that are meant to hurt. Each is sent whole, and ends with its refusal or with the end of the connection. */
import { connect, type Socket } from 'node:net';
import { constants, crc32, deflateRawSync, gzipSync } from 'node:zlib';
import { Asking, type Reply, Tally } from './asking.ts';
import { headOf } from './uploads.ts';

const MIB = 1024 * 1024;
const GIB = 1024 * MIB;
const PIECE_BYTES = 64 * 1024;

export type Attack = {
  name: string;
  /** Of the project that is attacked. */
  send(port: number, path: string): Promise<Reply>;
  /** What each must get: a status, or `0` where the connection is to be cut. */
  expected: readonly number[];
};

const whole =
  (head: (path: string) => Buffer, body: Buffer) =>
  async (port: number, path: string): Promise<Reply> => {
    const asking = new Asking(port);
    const reply = asking.ask(head(path));
    for (let at = 0; at < body.length; at += PIECE_BYTES)
      if (!asking.more(body.subarray(at, at + PIECE_BYTES))) await asking.flushed();
    const answer = await reply;
    asking.leave();
    return answer;
  };

/** A sound beginning and then zeros: gzip of more than 4 GiB in some 4 MB, put together from one compressed MiB. */
export function bomb(bytes: number): Buffer {
  const start = Buffer.from('{}\n{"type":"event"}\n');
  const zeros = Buffer.alloc(MIB);
  // Ends on a byte border and refers to nothing before it: it may be repeated.
  const block = deflateRawSync(zeros, { level: 9, finishFlush: constants.Z_FULL_FLUSH });
  const head = Buffer.from([0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 0xff, 0, 0, 0, 0, 0]);
  head.writeUInt16LE(start.length, 11);
  head.writeUInt16LE(~start.length & 0xffff, 13);
  let crc = crc32(start);
  const count = Math.ceil(bytes / MIB);
  for (let n = 0; n < count; n++) crc = crc32(zeros, crc);
  const end = Buffer.from([1, 0, 0, 0xff, 0xff, 0, 0, 0, 0, 0, 0, 0, 0]);
  end.writeUInt32LE(crc, 5);
  end.writeUInt32LE((start.length + count * MIB) % 2 ** 32, 9);
  return Buffer.concat([head, start, ...Array.from({ length: count }, () => block), end]);
}

async function oneByteChunks(port: number, path: string): Promise<Reply> {
  const asking = new Asking(port);
  const reply = asking.ask(
    Buffer.from(`POST ${path} HTTP/1.1\r\nHost: sluice\r\nTransfer-Encoding: chunked\r\n\r\n`),
  );
  // No envelope: its item header has no type.
  const body = `{}\n{"typo":"${'x'.repeat(9_984)}"}\n`;
  for (const [at, byte] of [...body].entries()) {
    asking.more(Buffer.from(`1\r\n${byte}\r\n`));
    if (at % 16 === 0) await asking.flushed();
  }
  asking.more(Buffer.from('0\r\n\r\n'));
  const answer = await reply;
  asking.leave();
  return answer;
}

/** A field of protobuf that has a length. */
export function field(number: number, content: Buffer): Buffer {
  const head = [number * 8 + 2];
  let { length } = content;
  for (; length > 127; length = Math.floor(length / 128)) head.push((length % 128) + 128);
  return Buffer.concat([Buffer.from([...head, length]), content]);
}

/** Requests of OTLP that are small in gzip, and would be much work for whoever read them to the end. */
function otlpAttacks(): Attack[] {
  const bytes = 19 * MIB;
  const attack = (name: string, type: 'x-protobuf' | 'json', body: Buffer): Attack => {
    const packed = gzipSync(body, { level: 1 });
    const head = (path: string): Buffer => {
      const url = path.replace('/envelope/', '/integration/otlp/v1/traces/');
      return headOf(url, packed.length, 'gzip', `application/${type}`);
    };
    return { name: `OTLP: ${name}`, send: whole(head, packed), expected: [400, 503] };
  };
  const emptyFields = (number: number): Buffer => Buffer.alloc(bytes, Buffer.from([number * 8 + 2, 0]));
  return [
    attack('ten million empty spans', 'x-protobuf', field(1, field(2, emptyFields(2)))),
    attack('ten million empty resources', 'x-protobuf', emptyFields(1)),
    attack('ten million unknown fields', 'x-protobuf', Buffer.alloc(bytes, Buffer.from([15 * 8, 1]))),
    attack(
      'a span of 19 MiB that is cut',
      'x-protobuf',
      field(1, field(2, field(2, Buffer.alloc(bytes)))).subarray(0, -1),
    ),
    attack('three million names', 'json', Buffer.from(`{${'"a":0,'.repeat(bytes / 6)}"a":0}`)),
    attack(
      'ten million brackets',
      'json',
      Buffer.from(`{"a":${'['.repeat(bytes / 2)}${']'.repeat(bytes / 2)}}`),
    ),
    attack(
      'ten million lists in a span, and no end',
      'json',
      Buffer.from(`{"resourceSpans":[{"scopeSpans":[{"spans":[{"a":[${'[],'.repeat(bytes / 3)}`),
    ),
  ];
}

/** @param bytes of the bomb; 4 GiB takes some seconds to make */
export function attacks(bytes = 4 * GIB): Attack[] {
  const gzip = (body: Buffer) => whole((path) => headOf(path, body.length, 'gzip'), body);
  const plain = (body: Buffer) => whole((path) => headOf(path, body.length), body);
  const httpHeader = whole(
    (path) => Buffer.from(`POST ${path} HTTP/1.1\r\nHost: sluice\r\nX-Long: `),
    Buffer.alloc(5 * MIB, 'x'),
  );
  return [
    { name: '5 MB of zeros in 5 KB of gzip', send: gzip(gzipSync(Buffer.alloc(5_000_000))), expected: [400] },
    { name: `${(bytes / GIB).toFixed(1)} GiB of zeros in gzip`, send: gzip(bomb(bytes)), expected: [413] },
    { name: '10,000 chunks of one byte', send: oneByteChunks, expected: [400] },
    {
      name: '100,000 tiny items',
      send: plain(Buffer.from(`{}${'\n{"type":"session"}\n{}'.repeat(100_000)}`)),
      expected: [400],
    },
    {
      name: 'an envelope header of 5 MB',
      send: plain(Buffer.from(`{"x":"${'y'.repeat(5_000_000)}"}\n`)),
      expected: [400],
    },
    { name: 'an HTTP header of 5 MB', send: httpHeader, expected: [0, 400, 431] },
    ...otlpAttacks(),
  ];
}

/** Sends `perSecond` of one attack until `ms` have passed, whether or not the ones before have been answered. */
export async function sustain(
  attack: Attack,
  { port, path, perSecond, ms }: { port: number; path: string; perSecond: number; ms: number },
): Promise<Tally> {
  const tally = new Tally();
  const sent: Promise<void>[] = [];
  for (const end = performance.now() + ms; performance.now() < end; ) {
    sent.push(
      attack.send(port, path).then(({ status, body }) => tally.add(status === 0 ? `0 ${body}` : `${status}`)),
    );
    await new Promise((resolve) => setTimeout(resolve, 1000 / perSecond));
  }
  await Promise.all(sent);
  return tally;
}

const BODY_BYTES_PER_SEC = 10;

/**
 * Connections that send next to nothing: a third a byte of a head each second, a third ten bytes of a body, a third nothing at all.
 * @returns how long each lasted, in seconds, once the worker has ended them all; or what is left of them after `ms`
 */
export async function slowConnections(
  port: number,
  { path, count, ms }: { path: string; count: number; ms: number },
): Promise<{ ended: number; left: number; longest: number }> {
  const open = new Set<Socket>();
  let longest = 0;
  for (let n = 0; n < count; n++) {
    const socket = connect({ port, host: '127.0.0.1', noDelay: true });
    const startedAt = performance.now();
    open.add(socket);
    const manner = n % 3;
    if (manner === 1) socket.write(headOf(path, 1_000_000));
    const trickle = setInterval(() => {
      if (manner === 0) socket.write(n % 2 === 0 ? 'P' : 'X');
      else if (manner === 1) socket.write('x'.repeat(BODY_BYTES_PER_SEC));
    }, 1000);
    socket.on('error', () => undefined);
    socket.on('close', () => {
      clearInterval(trickle);
      open.delete(socket);
      longest = Math.max(longest, (performance.now() - startedAt) / 1000);
    });
    socket.resume();
    if (n % 50 === 49) await new Promise((resolve) => setTimeout(resolve, 5));
  }
  for (const end = performance.now() + ms; open.size > 0 && performance.now() < end; )
    await new Promise((resolve) => setTimeout(resolve, 100));
  const left = open.size;
  for (const socket of open) socket.destroy();
  return { ended: count - left, left, longest };
}
