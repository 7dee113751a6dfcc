/** Behind a balancer and behind each proxy of deploy/proxies, under load: an upgrade as docs/operations.md tells it, and a machine that vanishes. */

import { Agent, request } from 'node:http';
import { connect, createServer, type Server, type Socket } from 'node:net';
import { setTimeout as pause } from 'node:timers/promises';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { childrenOf } from '../../bench/processes.ts';
import { errorEvent, eventId } from '../support/envelopes.ts';
import { freeze, thaw } from '../support/freeze.ts';
import { lastingPort } from '../support/servers.ts';
import { Command, type Project, System, until } from '../support/system.ts';
import { PROXIES, RunningProxy } from './proxy-programs.ts';

const CLIENTS = 16;
/** Clients pause after each answer: together they stay far below the plan's 100,000 a minute, however fast the machine is. */
const PAUSE_MS = 30;
const PROBE_MS = 100;

/** A client gives a request up after this, as SDKs do; a proxy must have found another machine long before. */
const PATIENCE_MS = 8_000;
/** A load with a machine that has vanished goes on for so long that a client whose requests hang again and again is seen. */
const VANISHED_MS = 3 * PATIENCE_MS;
/** The queue of connections that a worker has not accepted yet holds 512; the kernel drops what comes after. */
const FILLING = 600;

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

  stop(): void {
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
});
afterAll(async () => {
  await members?.[1]?.command.stop();
  await system?.stop();
});

type Told = { id: string; status: number | string };

function post(port: number, agent: Agent, id: string): Promise<Told> {
  const path = `/api/${project.id}/envelope/?compat_key=${project.key}`;
  return new Promise((resolve) => {
    const req = request({ port, path, agent, method: 'POST' }, (res) => {
      res.resume();
      const { statusCode, headers } = res;
      const reason = `${statusCode} ${headers['x-sentry-rate-limits'] ?? ''}`;
      res.once('end', () => resolve({ id, status: statusCode === 200 ? 200 : reason }));
      res.once('error', () => resolve({ id, status: 'cut' }));
    });
    const patience = setTimeout(() => req.destroy(new Error('hung')), PATIENCE_MS);
    req.once('close', () => clearTimeout(patience));
    req.once('error', (error: NodeJS.ErrnoException) => resolve({ id, status: error.code ?? error.message }));
    req.end(errorEvent(id));
  });
}

/** Clients that send one event after another until `work` is done. */
async function underLoad(port: number, work: (told: Told[]) => Promise<void>): Promise<Told[]> {
  const agent = new Agent({ keepAlive: true, maxSockets: CLIENTS });
  const told: Told[] = [];
  let stopped = false;
  const client = async (): Promise<void> => {
    for (; !stopped; await pause(PAUSE_MS)) told.push(await post(port, agent, eventId()));
  };
  const clients = Array.from({ length: CLIENTS }, client);
  try {
    await until(() => told.length > 200);
    await work(told);
    const before = told.length;
    await until(() => told.length > before + 200);
  } finally {
    stopped = true;
    await Promise.all(clients);
    agent.destroy();
  }
  return told;
}

/** Ends a member, starts it anew on its ports, and waits until it serves. */
async function restart(member: Ingest): Promise<void> {
  expect(await member.command.stop()).toBe(0);
  member.command = start(member.port, member.adminPort).command;
  await until(() => isReady(member.adminPort));
}

async function restartAll(): Promise<void> {
  for (const member of members) await restart(member);
  system.ingest = members[0]?.command ?? system.ingest;
}

/** How often each of these events is stored, once all that were answered 200 are. */
async function storedTimes(told: readonly Told[]): Promise<number[]> {
  const times = new Map(told.map(({ id }) => [id, 0]));
  const count = (): number[] => {
    for (const id of times.keys()) times.set(id, 0);
    for (const { event_id: id } of system.stored())
      if (times.has(id)) times.set(id, (times.get(id) ?? 0) + 1);
    return [...times.values()];
  };
  await until(() => !count().includes(0));
  return count();
}
/** Answers other than 200, by status. */
function failures(told: readonly Told[]): Record<string, number> {
  const counts: Record<string, number> = {};
  for (const { status } of told) if (status !== 200) counts[status] = (counts[status] ?? 0) + 1;
  return counts;
}

it('a rolling restart of ingest and processor fails no request and loses no event', async () => {
  const balancer = new Balancer(members);
  await balancer.listen();
  try {
    const told = await underLoad(balancer.port, async () => {
      await restartAll();
      expect(await system.processor?.stop()).toBe(0);
      system.processor = system.startProcessor();
    });
    expect(failures(told)).toEqual({});
    expect([...balancer.served.keys()].sort()).toEqual(members.map(({ port }) => port).sort());
    expect(new Set(await storedTimes(told))).toEqual(new Set([1]));
  } finally {
    balancer.stop();
  }
});

/** Its programs stand still, and the kernel answers no connection in their place: what is sent there is swallowed, as by a dead machine. */
async function vanish({ port, command }: Ingest): Promise<() => void> {
  const pids = [command.child.pid ?? 0, ...childrenOf(command.child.pid ?? 0)];
  for (const pid of pids) await freeze(pid);
  const fillers = Array.from({ length: FILLING }, () => connect(port, '127.0.0.1'));
  for (const filler of fillers) filler.on('error', () => undefined);
  return () => {
    for (const filler of fillers) filler.destroy();
    for (const pid of pids) thaw(pid);
  };
}

describe.each(PROXIES)('behind $name', (kind) => {
  let proxy: RunningProxy;
  beforeAll(async () => {
    proxy = await RunningProxy.start(kind, members);
  });
  afterAll(() => proxy?.stop());

  it('a rolling restart fails no request and stores each event once', async () => {
    const told = await underLoad(proxy.port, restartAll);
    expect(failures(told)).toEqual({});
    expect(new Set(await storedTimes(told))).toEqual(new Set([1]));
  });

  it('a machine that vanishes costs each client at most the request that was under way', async () => {
    const [, dead] = members as [Ingest, Ingest];
    let back = (): void => undefined;
    try {
      const told = await underLoad(proxy.port, async () => {
        back = await vanish(dead);
        await pause(VANISHED_MS);
      });
      const { hung = 0, ...others } = failures(told);
      expect(others).toEqual({});
      expect(hung).toBeLessThanOrEqual(CLIENTS);
      const answered = told.filter(({ status }) => status === 200);
      expect(new Set(await storedTimes(answered))).toEqual(new Set([1]));
    } finally {
      back();
      await until(() => isReady(dead.adminPort));
    }
  });
});

it('a second primary on a taken port is refused, not balanced', async () => {
  const twin = start(system.port, await lastingPort());
  expect(await twin.command.exited).toBe(1);
  await twin.command.logged(`cannot listen on 0.0.0.0:${system.port}`);
});
