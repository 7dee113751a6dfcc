/** The hostile connections of bench/hostile in small. Most of the time is the worker's own time-outs. */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { Asking, type Reply } from '../../bench/hostile/asking.ts';
import { slowConnections } from '../../bench/hostile/attacks.ts';
import { floods } from '../../bench/hostile/floods.ts';
import { runHeads } from '../../bench/hostile/heads.ts';
import { headOf } from '../../bench/hostile/uploads.ts';
import { HostileWorker, pathOf } from '../../bench/hostile/worker.ts';
import { RawConnection } from '../support/raw-http.ts';
import { type Project, System, until } from '../support/system.ts';

let system: System;
let project: Project;
let worker: HostileWorker;

const UNLIMITED = { env: { SLUICE_PLAN_LIMITS: 'free-only' } };

beforeAll(async () => {
  system = await System.start(UNLIMITED);
  project = await system.createProject({ filters: ['browser-extension', 'localhost', 'crawler'] });
  worker = new HostileWorker(system.ingest.child.pid);
});
afterAll(async () => {
  expect(system.ingest.errors).toEqual([]);
  await system.stop();
});

describe('a worker', () => {
  it('answers mutated heads as documented, however they are cut, and sound ones among them', async () => {
    const seed = Math.floor(Math.random() * 0x1_0000_0000);
    const result = await runHeads(worker, { targets: [project], count: 3_000, seed, connections: 48 });
    const { answers, surprises, restarts } = result;
    expect({ seed, surprises, restarts }).toEqual({ seed, surprises: [], restarts: 0 });
    expect(answers['200']).toBeGreaterThan(100);
    expect(answers['400']).toBeGreaterThan(100);
    await worker.idle();
  });

  // It crashed when the answer that closed went out while the library still handed on what followed.
  it.each([
    ['a refusal', 'POST /api/1/envelope/', 'Connection: close', 401],
    ['a refusal', 'POST /api/1/envelope/', 'Connection: x, close', 401],
    ['a preflight', 'OPTIONS /api/1/envelope/', 'Connection: x, close', 204],
    ['an unknown path', 'GET /nowhere', 'Connection: close', 404],
    ['a probe', 'GET /healthz', 'Connection: x, close', 200],
  ])('after %s to %s with %s answers nothing else on that connection', async (_name, line, field, status) => {
    const request = `${line} HTTP/1.1\r\nHost: sluice\r\nOrigin: http://a\r\nContent-Length: 0\r\n`;
    const alone = await RawConnection.open(system.port);
    alone.send(`${request}${field}\r\n\r\n`);
    await until(() => alone.closed);
    expect(alone.answers.map((answer) => answer.status)).toEqual([status]);
    const followed = await RawConnection.open(system.port);
    followed.send(`${request}${field}\r\n\r\n${`${request}\r\n`.repeat(200)}`);
    await until(() => followed.closed);
    expect(followed.answers).toEqual([]);
    expect(await system.metric('sluice_worker_restarts_total')).toBe(0);
  });

  it.each([
    ['an unknown path', 'POST /nowhere', 404],
    ['a preflight', 'OPTIONS /api/1/envelope/', 204],
    ['another method', 'PUT /api/1/envelope/', 405],
    ['a probe', 'GET /healthz', 200],
  ])(
    'takes nothing for a request that a message with two lengths to %s hides',
    async (_name, line, status) => {
      const hidden = 'GET /healthz HTTP/1.1\r\nHost: sluice\r\n\r\n';
      const connection = await RawConnection.open(system.port);
      const lengths = `Content-Length: 5\r\nContent-Length: ${5 + hidden.length}`;
      connection.send(`${line} HTTP/1.1\r\nHost: sluice\r\nOrigin: http://a\r\n${lengths}\r\n\r\nabcde`);
      await connection.receive().catch(() => undefined);
      connection.send(hidden);
      await until(() => connection.closed);
      expect(connection.answers.map((answer) => answer.status)).toEqual([status]);
    },
  );

  // These side by side: they wait for the worker's time-outs.
  it.concurrent('ends slow connections of every kind, and answers others meanwhile, also those that are slow but lawful', async ({
    onTestFinished,
  }) => {
    // On a system of its own: the test of floods waits until no request is under way.
    const own = await System.start(UNLIMITED);
    onTestFinished(() => own.stop());
    const target = await own.createProject();
    const attacked = new HostileWorker(own.ingest.child.pid);
    const slow = slowConnections(own.port, { path: pathOf(target), count: 150, ms: 40_000 });
    const lawful = slowUpload(own, target);
    await until(() => attacked.openSockets() > 150);
    expect((await own.send(target, '{}\n{"type":"event"}\n{}')).status).toBe(200);
    expect(await slow).toMatchObject({ ended: 150, left: 0 });
    expect((await lawful).status).toBe(200);
    await attacked.idle();
    expect(own.ingest.errors).toEqual([]);
  });

  it.concurrent('lives through floods of connections and of odd messages, answers nothing hidden in them, and others meanwhile', async () => {
    const all = floods({ port: worker.port, path: pathOf(project), idleCount: 300 });
    const under = all.map(async ({ name, run }) => [name, (await run(500)).refused]);
    expect((await system.send(project, '{}\n{"type":"event"}\n{}')).status).toBe(200);
    expect(await Promise.all(under)).toEqual(all.map(({ name }) => [name, true]));
    await worker.idle();
    expect(await system.metric('sluice_worker_restarts_total')).toBe(0);
  });

  it.concurrent.each([
    ['two equal lengths', ['Content-Length: 25', 'Content-Length: 25']],
    ['a list of lengths', ['Content-Length: 25, 25']],
    ['a length with a sign', ['Content-Length: +25']],
    ['a length and chunks', ['Content-Length: 25', 'Transfer-Encoding: chunked']],
    ['a length of 0 and chunks', ['Content-Length: 0', 'Transfer-Encoding: chunked']],
    ['two encodings', ['Transfer-Encoding: chunked', 'Transfer-Encoding: identity']],
    ['chunked twice', ['Transfer-Encoding: chunked, chunked']],
    ['an encoding that only begins like chunked', ['Transfer-Encoding: chunkedx']],
    ['65 headers', ['Content-Length: 25', ...Array.from({ length: 63 }, (_, n) => `X-${n}: 1`)]],
    ['101 headers', ['Content-Length: 25', ...Array.from({ length: 99 }, (_, n) => `X-${n}: 1`)]],
    [
      '17 KiB of headers',
      ['Content-Length: 25', ...Array.from({ length: 17 }, (_, n) => `X-${n}: ${'x'.repeat(1024)}`)],
    ],
  ])('refuses a message with %s, and what follows is not taken for another', async (_name, headers) => {
    const body = '{}\n{"type":"event"}\n{"a":1}'.slice(0, 25);
    const head = `POST ${pathOf(project)} HTTP/1.1\r\nHost: sluice\r\n${headers.join('\r\n')}\r\n\r\n`;
    const connection = await RawConnection.open(system.port);
    connection.send(`${head}${body}GET /healthz HTTP/1.1\r\nHost: sluice\r\n\r\n`);
    await until(() => connection.closed);
    expect(connection.answers.filter(({ status }) => status === 200)).toEqual([]);
    for (const { status } of connection.answers) expect([400, 431]).toContain(status);
  });
});

/** Sends 200 kB at 8 kB a second, eight pieces in each. */
async function slowUpload({ port }: System, target: Project): Promise<Reply> {
  const body = `{}\n{"type":"event"}\n"${'x'.repeat(200_000)}"`;
  const asking = new Asking(port);
  const reply = asking.ask(headOf(pathOf(target), body.length));
  const piece = 1_000;
  for (let at = 0; at < body.length; at += piece) {
    asking.more(Buffer.from(body.slice(at, at + piece)));
    await new Promise((resolve) => setTimeout(resolve, 125));
  }
  const answer = await reply;
  asking.leave();
  return answer;
}
