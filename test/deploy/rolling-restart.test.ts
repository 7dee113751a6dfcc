/** An upgrade as docs/operations.md tells it: ingest one by one behind a balancer, then the processor, all under load. */

import { Agent, request } from 'node:http';
import { connect, createServer, type Server, type Socket } from 'node:net';
import { afterAll, beforeAll, expect, it } from 'vitest';
import type { Project } from '../../src/projects/project.ts';
import { errorEvent, eventId } from '../support/envelopes.ts';
import { lastingPort } from '../support/servers.ts';
import { Command, System, until } from '../support/system.ts';

const CLIENTS = 16;
const PROBE_MS = 100;

type Ingest = { port: number; adminPort: number; command: Command };

/** Sends each new connection to the next member that says it is ready, as any balancer with a readiness probe does. */
class Balancer {
  readonly #members: readonly Ingest[];
  readonly #server: Server;
  readonly #ready = new Set<number>();
  readonly #probe: NodeJS.Timeout;
  /** Connections by member's port. */
  readonly served = new Map<number, number>();
  port = 0;
  #turn = 0;

  constructor(members: readonly Ingest[]) {
    this.#members = members;
    this.#server = createServer((client) => this.#forward(client));
    this.#probe = setInterval(() => void this.#look(), PROBE_MS);
  }

  async listen(): Promise<void> {
    await this.#look();
    this.port = await lastingPort();
    await new Promise<void>((resolve) => this.#server.listen(this.port, '127.0.0.1', resolve));
  }

  close(): void {
    clearInterval(this.#probe);
    this.#server.close();
  }

  async #look(): Promise<void> {
    await Promise.all(
      this.#members.map(async ({ port, adminPort }) => {
        const answer = await fetch(`http://127.0.0.1:${adminPort}/readyz`).catch(() => undefined);
        if (answer?.ok) this.#ready.add(port);
        else this.#ready.delete(port);
      }),
    );
  }

  #forward(client: Socket): void {
    const ready = [...this.#ready];
    const port = ready[this.#turn++ % ready.length] ?? 0;
    this.served.set(port, (this.served.get(port) ?? 0) + 1);
    const member = connect(port, '127.0.0.1');
    client.pipe(member).pipe(client);
    for (const [one, other] of [
      [client, member],
      [member, client],
    ] as const) {
      one.on('error', () => other.destroy());
      one.on('close', () => other.destroy());
    }
  }
}

let system: System;
let project: Project;
let members: Ingest[];
let balancer: Balancer;

function start(port: number, adminPort: number): Ingest {
  const env = { ...system.env, SLUICE_PORT: `${port}`, SLUICE_ADMIN_PORT: `${adminPort}` };
  return { port, adminPort, command: new Command(['ingest'], env) };
}
const isReady = async (adminPort: number): Promise<boolean> =>
  (await fetch(`http://127.0.0.1:${adminPort}/readyz`).catch(() => undefined))?.ok ?? false;

beforeAll(async () => {
  system = await System.start();
  project = await system.createProject();
  const second = start(await lastingPort(), await lastingPort());
  members = [{ port: system.port, adminPort: system.adminPort, command: system.ingest }, second];
  await until(() => isReady(second.adminPort));
  balancer = new Balancer(members);
  await balancer.listen();
});
afterAll(async () => {
  balancer?.close();
  await members?.[1]?.command.stop();
  await system?.stop();
});

type Told = { id: string; status: number | string };

function post(agent: Agent, id: string): Promise<Told> {
  const path = `/api/${project.id}/envelope/?compat_key=${project.key}`;
  return new Promise((resolve) => {
    const req = request({ port: balancer.port, path, agent, method: 'POST' }, (res) => {
      res.resume();
      res.once('end', () => resolve({ id, status: res.statusCode ?? 0 }));
      res.once('error', () => resolve({ id, status: 'cut' }));
    });
    req.once('error', (error: NodeJS.ErrnoException) => resolve({ id, status: error.code ?? error.message }));
    req.end(errorEvent(id));
  });
}

/** Ends a member, starts it anew on its ports, and waits until it serves. */
async function restart(member: Ingest): Promise<void> {
  expect(await member.command.stop()).toBe(0);
  member.command = start(member.port, member.adminPort).command;
  await until(() => isReady(member.adminPort));
}

it('a rolling restart of ingest and processor fails no request and loses no event', async () => {
  const agent = new Agent({ keepAlive: true, maxSockets: CLIENTS });
  const told: Told[] = [];
  let stopped = false;
  const client = async (): Promise<void> => {
    while (!stopped) told.push(await post(agent, eventId()));
  };
  const clients = Array.from({ length: CLIENTS }, client);
  await until(() => told.length > 200);
  for (const member of members) await restart(member);
  system.ingest = members[0]?.command ?? system.ingest;
  expect(await system.processor?.stop()).toBe(0);
  system.processor = system.startProcessor();
  const before = told.length;
  await until(() => told.length > before + 200);
  stopped = true;
  await Promise.all(clients);
  agent.destroy();
  expect(told.filter(({ status }) => status !== 200)).toEqual([]);
  expect([...balancer.served.keys()].sort()).toEqual(members.map(({ port }) => port).sort());
  await until(() => system.stored().length >= told.length);
  expect(
    system
      .stored()
      .map(({ event_id }) => event_id)
      .sort(),
  ).toEqual(told.map(({ id }) => id).sort());
});

it('a second primary on a taken port is refused, not balanced', async () => {
  const twin = start(system.port, await lastingPort());
  expect(await twin.command.exited).toBe(1);
  await twin.command.logged(`cannot listen on 0.0.0.0:${system.port}`);
});
