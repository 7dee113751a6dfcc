/** What one project does to the others, with nothing but its public key, while faults strike. */
import { connect, type Socket } from 'node:net';
import { setTimeout as pause } from 'node:timers/promises';
import { constants, crc32, deflateRawSync } from 'node:zlib';
import { type Isolated, isolated } from '../../bench/isolation/attacks.ts';
import { eventId } from '../support/envelopes.ts';
import type { Shot } from './client.ts';
import type { ProjectName, Told } from './ledger.ts';
import { Load, type LoadOptions, markOf } from './load.ts';

export type Shared = Pick<LoadOptions, 'random' | 'ports' | 'targets'>;
/** An attack that goes on until it is stopped. */
export type Attacking = {
  /** Of requests of which the ledger can judge what became of them. */
  told: readonly Told[];
  /** By status; 0 is no answer. */
  answers(): Record<string, number>;
  stop(): Promise<void>;
};
export type Attack = { name: string; start(shared: Shared): Attacking };

const KIB = 1024;
const MIB = 1024 * KIB;
const BOMB_BYTES = 6 * MIB;
const JUNK_BYTES = 60 * KIB;
const ITEMS = 900;
const SLOW_UPLOADS = 200;
const SLOW_BEGIN_BYTES = 160 * KIB;
/** Just above the pace at which a body is cut. */
const SLOW_BYTES_PER_SEC = 5_000;
const SLOW_RETRY_MS = 1_000;

type Shoot = (id: string) => { body: Buffer; encoding?: string; payloadBytes?: number };

const request = (target: string, body: Buffer, encoding = ''): Buffer =>
  Buffer.concat([
    Buffer.from(
      `POST ${target} HTTP/1.1\r\nHost: localhost\r\n${encoding && `Content-Encoding: ${encoding}\r\n`}Content-Length: ${body.length}\r\n\r\n`,
    ),
    body,
  ]);

type Kind = {
  name: string;
  clients: number;
  thinkMs: number;
  /** The ledger judges what became of each request: it has one item, with a mark. */
  judgedAs?: ProjectName;
  /** Else it goes to a project of which the ledger knows nothing. */
  wrongKey?: true;
  shoot: Shoot;
};

/** Clients that all send the same kind of request. */
const flood = ({ name, clients, thinkMs, judgedAs, wrongKey, shoot }: Kind): Attack => ({
  name,
  start: (shared) => {
    const { targets } = shared;
    const target = `${targets[judgedAs ?? 'unjudged']}${wrongKey ? 'x' : ''}`;
    const shot = (port: number): Shot => {
      const id = eventId();
      const { body, encoding, payloadBytes = 0 } = shoot(id);
      const told = { id, mark: markOf(id), project: judgedAs ?? 'attacker', port, payloadBytes };
      return { told, request: request(target, body, encoding) };
    };
    const load = new Load({ ...shared, clients, thinkMs, shot });
    load.start();
    return {
      told: judgedAs ? load.told : [],
      answers: () => countOf(load.told.map(({ status }) => status)),
      stop: () => load.stop(),
    };
  },
});

function countOf(statuses: readonly number[]): Record<string, number> {
  const counts: Record<string, number> = {};
  for (const status of statuses) counts[status] = (counts[status] ?? 0) + 1;
  return counts;
}

/** The end of every bomb, and its deflate blocks: to pack it for each would keep the clients from their work. */
const padding = Buffer.from(`${'x'.repeat(BOMB_BYTES)}"}`);
const packedPadding = deflateRawSync(padding);
const GZIP_HEAD = Buffer.from([0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 0xff]);
const bomb: Shoot = (id) => {
  const payload = `{"message":"${markOf(id)}","padding":"`;
  const begin = Buffer.from(`{"event_id":"${id}"}\n{"type":"event"}\n${payload}`);
  const packed = deflateRawSync(begin, { finishFlush: constants.Z_SYNC_FLUSH });
  const tail = Buffer.alloc(8);
  tail.writeUInt32LE(crc32(padding, crc32(begin)), 0);
  tail.writeUInt32LE(begin.length + padding.length, 4);
  const body = Buffer.concat([GZIP_HEAD, packed, packedPadding, tail]);
  return { body, encoding: 'gzip', payloadBytes: payload.length + padding.length };
};

const small: Shoot = (id) => {
  const payload = JSON.stringify({ message: markOf(id) });
  const body = Buffer.from(`{"event_id":"${id}"}\n{"type":"event"}\n${payload}`);
  return { body, payloadBytes: payload.length };
};

const junk = Buffer.from(`{}\n{"type":"event","length":9}\n${'{'.repeat(JUNK_BYTES)}`);
const items = Buffer.from(`{}${'\n{"type":"log"}\n{"items":[{"body":"x"}]}'.repeat(ITEMS)}`);

/** Bodies that begin fast and then come slowly. They have no end, so nobody is told anything but a refusal. */
const slowUploads: Attack = {
  name: `${SLOW_UPLOADS} slow uploads`,
  start: ({ ports, targets }) => {
    const statuses: number[] = [];
    const begin = Buffer.concat([
      Buffer.from(`POST ${targets.unjudged} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5000000\r\n\r\n`),
      Buffer.from('{}\n{"type":"event"}\n"'),
      Buffer.alloc(SLOW_BEGIN_BYTES, 'x'),
    ]);
    const piece = Buffer.alloc(SLOW_BYTES_PER_SEC, 'x');
    let running = true;
    const upload = async (port: number): Promise<void> => {
      for (; running; await pause(SLOW_RETRY_MS)) {
        const socket = connect({ port, host: '127.0.0.1' });
        socket.on('data', (data) => statuses.push(Number(data.toString('latin1', 9, 12))));
        socket.on('error', () => undefined);
        socket.write(begin);
        for (; running && !socket.destroyed; await pause(1_000)) feed(socket, piece);
        socket.destroy();
      }
    };
    const uploads = Array.from({ length: SLOW_UPLOADS }, (_, n) => upload(ports[n % ports.length] as number));
    return {
      told: [],
      answers: () => countOf(statuses),
      stop: async () => {
        running = false;
        await Promise.all(uploads);
      },
    };
  },
};

const feed = (socket: Socket, piece: Buffer): void => {
  if (socket.writableLength === 0) socket.write(piece);
};

const ISOLATED_SHARE = 0.25;
const ROUND_MS = 4_000;
/** Names of the isolation bench. Of its other attacks, ATTACKS has the kinds, too, and there the ledger judges some of the requests. */
const ISOLATED = /^(resends|pings|zstd|1,000 logs in one, 17|OTLP|deep|costly|dead|recording|scrubbed)/;

/** An attack of the isolation bench, at a share of its rate, at the ports in turn. The ledger judges none of its requests. */
const unjudged = ({ name, run, by }: Isolated): Attack => ({
  name,
  start: ({ ports, targets }) => {
    const counts: Record<string, number> = {};
    let running = true;
    const attack = async (): Promise<void> => {
      for (let n = 0; running; n++) {
        const port = ports[n % ports.length] as number;
        const target = targets[by === 'scrubbed' ? 'scrubbed' : 'unjudged'];
        // It returns once all is answered, which may be long before the round is over.
        const [tally] = await Promise.all([run(port, target, ROUND_MS), pause(ROUND_MS)]);
        for (const [kind, count] of tally.counts) {
          const status = kind.split(' ')[0] as string;
          counts[status] = (counts[status] ?? 0) + count;
        }
      }
    };
    const attacking = attack();
    return {
      told: [],
      answers: () => counts,
      stop: () => {
        running = false;
        return attacking;
      },
    };
  },
});

/** Every kind of attack of the isolation bench, at rates that leave a shared machine to the faults. Making their bodies takes seconds. */
export const attacks = (): Attack[] => [
  ...ATTACKS,
  ...isolated(ISOLATED_SHARE)
    .filter(({ name }) => ISOLATED.test(name))
    .map(unjudged),
];

const ATTACKS: readonly Attack[] = [
  flood({ name: 'bombs', clients: 6, thinkMs: 700, judgedAs: 'attacker', shoot: bomb }),
  flood({ name: 'over the limit', clients: 8, thinkMs: 25, judgedAs: 'limited', shoot: small }),
  flood({ name: 'wrong keys', clients: 8, thinkMs: 25, wrongKey: true, shoot: small }),
  flood({ name: 'junk', clients: 4, thinkMs: 40, shoot: () => ({ body: junk }) }),
  flood({ name: `${ITEMS} items each`, clients: 2, thinkMs: 800, shoot: () => ({ body: items }) }),
  slowUploads,
];
