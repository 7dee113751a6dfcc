/** What the s3 sink makes of a refusal of its condition. A small store of this test gives it, so that it can be chosen. */
import { createServer, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { systemClock as clock } from '../../src/lib/clock.ts';
import { EnvelopeDecoder } from '../../src/processor/decode/decode.ts';
import { S3Sink } from '../../src/sink/s3/s3.ts';
import { SeveralSinks } from '../../src/sink/several.ts';
import type { Sink, SinkRecord } from '../../src/sink/sink.ts';
import { UnavailableError } from '../../src/sink/unavailable.ts';
import { envelope, item, log, NOW } from '../processor/harness.ts';

type Refusal = { status: number; code: string; isThere: boolean };

const objects = new Set<string>();
/** What the next write is answered in place of being taken. */
let refusal: Refusal | undefined;
let store: Server;

function answer(response: ServerResponse, path: string): void {
  if (!refusal) {
    objects.add(path);
    return void response.writeHead(200).end();
  }
  const { status, code, isThere } = refusal;
  refusal = undefined;
  if (isThere) objects.add(path);
  response.writeHead(status).end(`<Error><Code>${code}</Code></Error>`);
}

beforeEach(async () => {
  objects.clear();
  store = createServer((request, response) => {
    const { pathname, searchParams } = new URL(request.url ?? '', 'http://store');
    if (request.method === 'PUT') return void request.resume().on('end', () => answer(response, pathname));
    const keys = [...objects].map((path) => path.slice('/bucket/'.length));
    const found = keys.filter((key) => key.startsWith(searchParams.get('prefix') ?? ''));
    response.end(found.map((key) => `<Contents><Key>${key}</Key><Size>1</Size></Contents>`).join(''));
  });
  await new Promise<void>((resolve) => store.listen(0, '127.0.0.1', resolve));
});
afterEach(() => new Promise((resolve) => store.close(resolve)));

async function rowOf(): Promise<SinkRecord> {
  const entry = envelope([item('event', '{}')]);
  const decoded = await new EnvelopeDecoder(entry).decode(entry.items[0] as never);
  if (!decoded.ok) throw new Error(decoded.reason);
  return decoded.record;
}

/** A batch that is committed, and waits for its object. */
async function gathered() {
  const endpoint = encodeURIComponent(`http://127.0.0.1:${(store.address() as AddressInfo).port}`);
  const url = `s3://key:secret@bucket/?endpoint=${endpoint}`;
  const credentials = { accessKeyId: '', secretAccessKey: '', sessionToken: undefined, region: undefined };
  const sink = await S3Sink.connect({ kind: 's3', url, credentials }, { log });
  const stream = await sink.open('events');
  const batch = await stream.begin(['frame']);
  batch.beginEntry({ frameId: 'frame', index: 0 });
  batch.add(await rowOf());
  let isDurable = false;
  await new Promise<void>((held) => {
    void batch.commit({ now: false, held: () => held() }).then(() => {
      isDurable = true;
    });
  });
  const flush = async () => (await stream.begin([])).commit(NOW);
  return { sink, flush, isDurable: () => isDurable };
}

it.each([409, 412])(
  'a write that is refused with %i is tried again when its object is not there',
  async (status) => {
    const { sink, flush, isDurable } = await gathered();
    const code = status === 409 ? 'ConditionalRequestConflict' : 'PreconditionFailed';
    refusal = { status, code, isThere: false };
    await expect(flush()).rejects.toThrow(UnavailableError);
    expect([isDurable(), objects.size]).toEqual([false, 0]);
    await flush();
    expect([isDurable(), objects.size]).toEqual([true, 1]);
    await sink.close();
  },
);

it('a write that is refused since its object is there is durable', async () => {
  const { sink, flush, isDurable } = await gathered();
  refusal = { status: 412, code: 'PreconditionFailed', isThere: true };
  await flush();
  expect([isDurable(), objects.size]).toEqual([true, 1]);
  await sink.close();
});

it('a sink whose object could not be stored says so until it is, alone and among several', async () => {
  const { sink, flush } = await gathered();
  const alone = new SeveralSinks([{ name: 's3', sink }], { log, clock });
  const other: Sink = { guarantee: 'exactly once', open: () => sink.open('x'), close: async () => {} };
  const several = new SeveralSinks(
    [
      { name: 'ndjson', sink: other },
      { name: 's3', sink },
    ],
    { log, clock },
  );
  const states = () => [alone.health[0]?.isFailing, several.isFailing, several.states()];
  expect(states()).toEqual([false, false, { ndjson: 'ok', s3: 'ok' }]);
  refusal = { status: 503, code: 'SlowDown', isThere: false };
  await expect(flush()).rejects.toThrow(UnavailableError);
  expect(states()).toEqual([true, true, { ndjson: 'ok', s3: 'failing' }]);
  await flush();
  expect(states()).toEqual([false, false, { ndjson: 'ok', s3: 'ok' }]);
  await sink.close();
});
