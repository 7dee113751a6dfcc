/**
 * Mutated HTTP heads, each on a connection of its own and cut into pieces at every kind of place. A worker passes when it lives, its memory
 * stays flat, each answer has a documented status, and sound heads among them are answered as they should be. What is hidden behind a head
 * is not shown here, but by floods.ts.
 */
import { connect, type Socket } from 'node:net';
import { setTimeout as pause } from 'node:timers/promises';
import { answerLength } from '../load/connection.ts';
import { integer, pick, type Random } from '../random.ts';
import type { Target } from '../workload.ts';
import { attackWith, type MutationOptions, type MutationResult, randomOf } from './mutations.ts';
import { type HostileWorker, pathOf } from './worker.ts';

const BODY = '{}\n{"type":"event"}\n{"message":"beside hostile heads"}';
/** Whoever may wait for the rest of a message is left after so long. */
const WAIT_MS = 100;
/** A sound request is answered before this, also on a busy machine. */
const SOUND_MS_MAX = 15_000;
const SOUND_ONE_IN = 50;
/** What README documents, and what the HTTP library answers by itself. */
const DOCUMENTED = new Set([200, 204, 400, 401, 403, 404, 405, 411, 413, 414, 415, 417, 429, 431, 503, 505]);

const CONTINUE = Buffer.from('HTTP/1.1 100 Continue\r\n\r\n');

/** Lines of a head without their ends, a body, and how both are answered. */
type Message = { lines: string[]; body: string; status: number };

function soundMessages(target: Target): Message[] {
  const path = `/api/${target.id}/envelope/`;
  const agent = 'User-Agent: Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36';
  const length = `Content-Length: ${BODY.length}`;
  const chunked = `${BODY.length.toString(16)}\r\n${BODY}\r\n0\r\n\r\n`;
  const auth = `X-Sentry-Auth: Sentry sentry_version=7, sentry_key=${target.key}, sentry_client=a/1`;
  const post = `POST ${path} HTTP/1.1`;
  return [
    { lines: [`POST ${pathOf(target)} HTTP/1.1`, 'Host: sluice', agent, length], body: BODY, status: 200 },
    { lines: [post, 'Host: sluice', auth, 'Accept: */*', length], body: BODY, status: 200 },
    { lines: [post, 'Host: sluice', auth, 'Transfer-Encoding: chunked'], body: chunked, status: 200 },
    { lines: [post, 'Host: sluice', agent, auth, length, 'Connection: close'], body: BODY, status: 200 },
    {
      lines: [`OPTIONS ${path} HTTP/1.1`, 'Host: sluice', 'Origin: https://shop.example'],
      body: '',
      status: 204,
    },
    { lines: ['GET /healthz HTTP/1.1', 'Host: sluice', agent], body: '', status: 200 },
    { lines: ['POST /heartbeat/none HTTP/1.1', 'Host: sluice', 'Content-Length: 0'], body: '', status: 404 },
  ];
}

type Mutation = (lines: string[], random: Random) => string[];
/** A line; rarely the first, behind whose faults a parser does not look any further. */
const at = (lines: string[], random: Random): number =>
  lines.length < 2 || random() < 0.1 ? 0 : integer(random, 1, lines.length - 1);
const changed = (lines: string[], place: number, change: (line: string) => string): string[] =>
  lines.map((line, n) => (n === place ? change(line) : line));
const byte = (random: Random): string => String.fromCharCode(integer(random, 0, 255));

/** A line that the message already has gets this value; else it is another line. */
function withHeader(lines: string[], name: string, value: string): string[] {
  const place = lines.findIndex((line) => line.startsWith(`${name}:`));
  return place < 0 ? [...lines, `${name}: ${value}`] : changed(lines, place, () => `${name}: ${value}`);
}

const LENGTHS = [
  '-1',
  '+5',
  '0',
  '1',
  '5',
  '1e3',
  '0x10',
  '',
  ' ',
  '5, 5',
  '5;5',
  '99999999999999999999',
  '4294967296',
];
const ENCODINGS = [
  'chunked',
  'Chunked',
  'chunked, chunked',
  'identity',
  'gzip, chunked',
  'chunkedx',
  '\tchunked',
  '',
];
const METHODS = ['post', 'GET', 'PUT', 'P\0ST', '', ' POST', 'CONNECT', 'PRI', 'POSTPOSTPOST'.repeat(50)];
const TARGETS = [
  '',
  '*',
  '/',
  '//',
  'http://sluice/api/1/envelope/',
  '/%00',
  '/..%2f',
  '/api/',
  '?',
  '/\u00ff',
  `/${'a'.repeat(9_000)}`,
];
const VERSIONS = ['HTTP/1.0', 'HTTP/2.0', 'HTTP/9.9', 'HTTP/1.1x', 'http/1.1', 'HTTP/1.', '', 'ICY'];
const startLine = (lines: string[], part: 0 | 1 | 2, value: string): string[] =>
  changed(lines, 0, (line) => changed(line.split(' '), part, () => value).join(' '));

const MUTATIONS: Readonly<Record<string, Mutation>> = {
  flip: (lines, random) =>
    changed(lines, at(lines, random), (line) => {
      const place = integer(random, 0, Math.max(0, line.length - 1));
      const flipped = String.fromCharCode((line.charCodeAt(place) || 0) ^ (1 << integer(random, 0, 7)));
      return line.slice(0, place) + flipped + line.slice(place + 1);
    }),
  insert: (lines, random) =>
    changed(lines, at(lines, random), (line) => {
      const place = integer(random, 0, line.length);
      return line.slice(0, place) + byte(random) + line.slice(place);
    }),
  cut: (lines, random) =>
    changed(lines, at(lines, random), (line) => line.slice(0, integer(random, 0, line.length))),
  drop: (lines, random) => lines.toSpliced(at(lines, random), 1),
  double: (lines, random) => {
    const place = at(lines, random);
    return lines.toSpliced(place, 0, lines[place] as string);
  },
  swap: (lines, random) => {
    const [one, other] = [at(lines, random), at(lines, random)];
    return lines.with(one, lines[other] as string).with(other, lines[one] as string);
  },
  fold: (lines, random) => changed(lines, at(lines, random), (line) => ` ${line}`),
  noColon: (lines, random) => changed(lines, at(lines, random), (line) => line.replace(':', ' ')),
  spaceBeforeColon: (lines, random) => changed(lines, at(lines, random), (line) => line.replace(':', ' :')),
  endInLine: (lines, random) =>
    changed(lines, at(lines, random), (line) => line.replace(' ', pick(random, ['\r', '\n', '\r\n', '\0']))),
  method: (lines, random) => startLine(lines, 0, pick(random, METHODS)),
  target: (lines, random) => startLine(lines, 1, pick(random, TARGETS)),
  version: (lines, random) => startLine(lines, 2, pick(random, VERSIONS)),
  length: (lines, random) => withHeader(lines, 'Content-Length', pick(random, LENGTHS)),
  secondLength: (lines, random) => [...lines, `Content-Length: ${pick(random, LENGTHS)}`],
  encoding: (lines, random) => withHeader(lines, 'Transfer-Encoding', pick(random, ENCODINGS)),
  expect: (lines) => [...lines, 'Expect: 100-continue'],
  upgrade: (lines) => [...lines, 'Connection: Upgrade', 'Upgrade: h2c'],
  large: (lines, random) => [...lines, `X-Large: ${'x'.repeat(integer(random, 1_000, 20_000))}`],
  many: (lines, random) => [
    ...lines,
    ...Array.from({ length: integer(random, 20, 200) }, (_, n) => `X-${n}: 1`),
  ],
  noise: (lines, random) =>
    changed(lines, at(lines, random), (line) => Array.from(line, () => byte(random)).join('')),
};
const NAMES = Object.keys(MUTATIONS);
const ENDS = ['\n', '\r', '\r\r\n', '\n\r'] as const;

/** Where a message is cut. @returns offsets, in order */
const CUTS: Readonly<Record<string, (text: string, random: Random) => number[]>> = {
  nowhere: () => [],
  startLine: (text, random) => [integer(random, 1, Math.max(1, text.indexOf('\r\n')))],
  amidLineEnd: (text) => [text.indexOf('\r\n') + 1],
  amidLastEnd: (text, random) => [text.indexOf('\r\n\r\n') + integer(random, 1, 3)],
  headEnd: (text) => [text.indexOf('\r\n\r\n') + 4],
  amidHeader: (text, random) => [text.indexOf(': ') + integer(random, 0, 2)],
  lineByLine: (text) => Array.from(text.matchAll(/\n/g), ({ index }) => index + 1).slice(0, 40),
  anywhere: (text, random) =>
    [integer(random, 1, text.length), integer(random, 1, text.length)].sort((a, b) => a - b),
  byteByByte: (text) => Array.from({ length: Math.min(text.length, 400) }, (_, n) => n + 1),
};
const CUT_NAMES = Object.keys(CUTS);
/** Of the library for Node.js 20, module version 115: README lists it. */
const REFUSES_CUT_LINES = process.versions.modules === '115';
/** They take as many packets as they have bytes. */
const BYTE_BY_BYTE_ONE_IN = 200;

/** `expected`: of a sound one. */
type Head = { pieces: Buffer[]; expected: readonly number[] | undefined; how: string };

function hostileHead(sound: readonly Message[], random: Random): Head {
  const message = pick(random, sound);
  const isSound = random() * SOUND_ONE_IN < 1;
  const names = isSound ? [] : Array.from({ length: integer(random, 1, 3) }, () => pick(random, NAMES));
  const lines = names.reduce(
    (all, name) => (MUTATIONS[name] as Mutation)(all.length > 0 ? all : [''], random),
    message.lines,
  );
  const end = isSound || random() < 0.95 ? '\r\n' : pick(random, ENDS);
  const text = `${[...lines, '', ''].join(end)}${message.body}`;
  const isRare = random() * BYTE_BY_BYTE_ONE_IN < 1;
  const cut = isRare ? 'byteByByte' : pick(random, CUT_NAMES.slice(0, -1));
  const places = (CUTS[cut] as (typeof CUTS)[string])(text, random).filter(
    (place) => place > 0 && place < text.length,
  );
  const pieces = [0, ...places].map((from, n) => Buffer.from(text.slice(from, places[n]), 'latin1'));
  const startLineEnd = text.indexOf('\r\n') + 2;
  const mayBeRefused = REFUSES_CUT_LINES && places.some((place) => place < startLineEnd);
  const expected = mayBeRefused ? [message.status, 505] : [message.status];
  return {
    pieces,
    expected: isSound ? expected : undefined,
    how: `${names.join(', ') || 'sound'}, cut ${cut}`,
  };
}

/** Statuses of all that was answered, and whether the server ended the connection. */
type Heard = { statuses: number[]; odd: string | undefined; ended: boolean };

function statusesIn(received: Buffer): Pick<Heard, 'statuses' | 'odd'> {
  const statuses: number[] = [];
  for (let rest = received; rest.length > 0; ) {
    const start = rest.toString('latin1', 0, 13);
    if (!/^HTTP\/1\.[01] \d{3}/.test(start)) return { statuses, odd: start };
    statuses.push(Number(start.slice(9, 12)));
    const length = answerLength(rest);
    // The library's own answers end with their connection.
    const isLast = length === 0 || /\r\nconnection: *close/i.test(rest.toString('latin1', 0, length));
    rest = rest.subarray(isLast ? rest.length : length);
  }
  return { statuses, odd: undefined };
}

const opened = (port: number): Promise<Socket> =>
  new Promise((resolve, reject) => {
    const socket = connect({ port, host: '127.0.0.1', noDelay: true }, () => resolve(socket));
    socket.once('error', reject);
  });

async function shoot(port: number, { pieces, expected }: Head): Promise<Heard> {
  const socket = await opened(port);
  let received = Buffer.alloc(0);
  let ended = false;
  let wake: () => void = () => undefined;
  socket.on('data', (data: Buffer) => {
    received = Buffer.concat([received, data]);
    if (received.indexOf(CONTINUE) === 0) received = received.subarray(CONTINUE.length);
    wake();
  });
  // An error is followed by 'close'.
  socket.on('error', () => undefined);
  socket.on('close', () => {
    ended = true;
    wake();
  });
  for (const piece of pieces) {
    if (ended) break;
    socket.write(piece);
    if (pieces.length > 1) await new Promise(setImmediate);
  }
  const until = performance.now() + (expected ? SOUND_MS_MAX : WAIT_MS);
  for (let left = 1; left > 0 && !ended && answerLength(received) === 0; left = until - performance.now()) {
    const woken = new Promise<void>((resolve) => {
      wake = resolve;
    });
    await Promise.race([woken, pause(left, undefined, { ref: false })]);
  }
  // A reset leaves no port behind that waits for a minute.
  socket.resetAndDestroy();
  return { ...statusesIn(received), ended };
}

function surpriseIn({ statuses, odd, ended }: Heard, { expected, how }: Head): string | undefined {
  if (odd !== undefined) return `${how}: not HTTP: ${JSON.stringify(odd)}`;
  const undocumented = statuses.find((status) => !DOCUMENTED.has(status));
  if (undocumented !== undefined) return `${how}: ${undocumented}`;
  // A refusal of the request line closes while the rest is still sent: the reset may overtake it.
  if (ended && statuses.length === 0 && expected?.includes(505)) return undefined;
  if (expected && !(statuses.length === 1 && expected.includes(statuses[0] as number)))
    return `${how}: ${statuses.join(' and ') || 'no answer'}, expected ${expected.join(' or ')}`;
  return undefined;
}

export function runHeads(worker: HostileWorker, options: MutationOptions): Promise<MutationResult> {
  const sound = options.targets.flatMap(soundMessages);
  return attackWith(worker, options, async (next, note) => {
    for (let request = next(); request; request = next()) {
      const head = hostileHead(sound, randomOf(options.seed, request));
      const heard = await shoot(worker.port, head);
      const [first] = heard.statuses;
      const surprise = surpriseIn(heard, head);
      note(
        first === undefined ? (heard.ended ? 'ended' : 'left') : `${first}`,
        surprise && `${request}: ${surprise}`,
      );
    }
  });
}
