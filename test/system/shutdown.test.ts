/** SIGTERM under load: what was answered 200 is stored, and no request that a worker has begun to read is reset. */
import { Agent, request } from 'node:http';
import { expect, it } from 'vitest';
import { errorEvent, eventId } from '../support/envelopes.ts';
import { RawConnection } from '../support/raw-http.ts';
import { System, until } from '../support/system.ts';

const CONNECTIONS = 32;

type Told = { id: string; status: number | string };

function post(agent: Agent, url: string, id: string): Promise<Told> {
  return new Promise((resolve) => {
    const req = request(url, { agent, method: 'POST' }, (res) => {
      res.resume();
      res.once('end', () => resolve({ id, status: res.statusCode ?? 0 }));
      res.once('error', () => resolve({ id, status: 'cut' }));
    });
    req.once('error', (error: NodeJS.ErrnoException) => resolve({ id, status: error.code ?? error.message }));
    req.end(errorEvent(id));
  });
}

it('loses and resets nothing', async () => {
  const system = await System.start({ workers: 2 });
  const project = await system.createProject();
  const agent = new Agent({ keepAlive: true, maxSockets: CONNECTIONS });
  const told: Told[] = [];
  let stopped = false;
  const client = async (): Promise<void> => {
    while (!stopped) {
      const answer = await post(agent, system.endpoint(project), eventId());
      told.push(answer);
      if (answer.status === 'ECONNREFUSED') return;
    }
  };
  const clients = Array.from({ length: CONNECTIONS }, client);
  // A request that has begun: its head is read, its body comes only after the signal.
  const begun = await RawConnection.open(system.port);
  const slowId = eventId();
  const body = errorEvent(slowId);
  begun.send(
    `POST ${new URL(system.endpoint(project)).pathname}?compat_key=${project.key} HTTP/1.1\r\nHost: x\r\nContent-Length: ${body.length}\r\n\r\n`,
  );
  begun.send(body.slice(0, 10));
  await until(() => told.length > 2_000);
  const exited = system.ingest.stop('SIGTERM');
  await new Promise((resolve) => setTimeout(resolve, 1_500));
  begun.send(body.slice(10));
  expect((await begun.receive())[0]?.status).toBe(200);
  expect(await exited).toBe(0);
  stopped = true;
  await Promise.all(clients);
  agent.destroy();
  expect([...new Set(told.map(({ status }) => `${status}`))].sort()).toEqual(['200', 'ECONNREFUSED']);
  const accepted = told.filter(({ status }) => status === 200).map(({ id }) => id);
  await until(() => system.stored().length >= accepted.length + 1);
  const stored = system.stored().map((record) => record.event_id);
  expect(new Set(stored).size).toBe(stored.length);
  expect(stored.sort()).toEqual([...accepted, slowId].sort());
  expect(system.ingest.errors).toEqual([]);
  await system.stop();
});
