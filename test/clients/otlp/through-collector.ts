/** A Collector of OpenTelemetry in front of the whole system, with deploy/otel-collector.yaml: exporters by gRPC and HTTP, an outage, and a limit. */
import { type ChildProcess, spawn } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { lastingPort } from '../../support/servers.ts';
import { type Project, System, until } from '../../support/system.ts';
import { Program } from '../client.ts';
import { Forwarder } from '../forwarder.ts';
import { asked, lacks, type Sdk } from '../sdks.ts';
import { COLLECTOR, EXPORTERS, type Exporter, GRPC } from './exporters.ts';

const CONFIG = new URL('../../../deploy/otel-collector.yaml', import.meta.url).pathname;
/** Its build takes minutes on a fresh machine, so it takes part where TEST_CLIENTS names it or is not set. */
const takesPart = (asked?.includes('collector') ?? true) && ![COLLECTOR, GRPC].some(({ sdk }) => lacks(sdk));
/** More than sluice takes after compression, less than the Collector takes before it. */
const LARGE = Array.from({ length: 10_000_000 }, () => String.fromCharCode(97 + Math.random() * 26)).join('');
/** `Retry-After` of a 429 for the limit. */
const RETRY_AFTER_MS = 60_000;
const [NODE] = EXPORTERS as [Exporter];
/** What must be built before. */
export const COLLECTOR_SDKS: readonly Sdk[] = takesPart ? [COLLECTOR, GRPC, NODE].map(({ sdk }) => sdk) : [];

export const describeCollector = () =>
  describe.skipIf(!takesPart)('a Collector', () => {
    let system: System;
    let project: Project;
    let collector: ChildProcess;
    let ports: { grpc: number; http: number; health: number };
    let log = '';

    /** The file as it is, but for ports and folder of this test. @param port of sluice, or of a forwarder before it */
    async function startCollector(to = project, port = system.port): Promise<void> {
      const override = join(system.dir, 'override.yaml');
      writeFileSync(
        override,
        JSON.stringify({
          extensions: {
            file_storage: { directory: join(system.dir, 'queue') },
            health_check: { endpoint: `127.0.0.1:${ports.health}` },
          },
          receivers: {
            otlp: {
              protocols: {
                grpc: { endpoint: `127.0.0.1:${ports.grpc}` },
                http: { endpoint: `127.0.0.1:${ports.http}` },
              },
            },
          },
          service: { telemetry: { metrics: { level: 'none' } } },
        }),
      );
      const [program = ''] = COLLECTOR.command;
      collector = spawn(program, ['--config', CONFIG, '--config', override], {
        env: {
          ...process.env,
          SLUICE_OTLP_URL: `http://127.0.0.1:${port}/api/${to.id}/integration/otlp`,
          SLUICE_KEY: to.key,
        },
        stdio: ['ignore', 'ignore', 'pipe'],
      });
      collector.stderr?.on('data', (data: Buffer) => {
        log += data.toString();
      });
      await until(async () => {
        if (collector.exitCode !== null) throw new Error(`the Collector ended: ${log}`);
        const health = await fetch(`http://127.0.0.1:${ports.health}`).catch(() => undefined);
        return health?.ok === true;
      });
    }

    const kill = (signal: NodeJS.Signals): Promise<unknown> => {
      const ended = new Promise((resolve) => collector.once('exit', resolve));
      collector.kill(signal);
      return ended;
    };
    const named = (name: string) =>
      system
        .stored()
        .flatMap(({ payload }) => (payload.items ?? []) as { name?: string; span_id: string }[])
        .filter((span) => span.name === name);

    beforeAll(async () => {
      system = await System.start();
      project = await system.createProject();
      ports = { grpc: await lastingPort(), http: await lastingPort(), health: await lastingPort() };
      await startCollector();
    });
    afterAll(async () => {
      if (collector?.exitCode === null) await kill('SIGTERM');
      await system?.stop();
    });

    /** @param by `http` with Node's exporter, or `grpc` with Python's */
    async function send(by: 'http' | 'grpc', names: readonly string[], attributes = {}): Promise<void> {
      const { command, env } = by === 'grpc' ? GRPC : NODE;
      const endpoint = { OTEL_EXPORTER_OTLP_ENDPOINT: `http://127.0.0.1:${ports[by]}` };
      const client = new Program(command, { ...env, ...endpoint });
      for (const name of names)
        await client.step({
          do: 'span',
          name,
          child: 'child',
          attributes: { text: name, ...attributes },
        } as never);
      await client.step({ do: 'flush' });
      await client.close();
    }

    it.each(['http', 'grpc'] as const)('hands on what comes by %s', async (by) => {
      await send(by, [`by ${by}`]);
      await expect.poll(() => named(`by ${by}`).length).toBe(1);
    });

    it('loses nothing, and sends nothing that is stored twice, when sluice is away and it is killed meanwhile', async () => {
      expect(await system.ingest.stop()).toBe(0);
      const names = Array.from({ length: 20 }, (_, n) => `while away ${n}`);
      await send('http', names.slice(0, 10));
      await kill('SIGKILL');
      await startCollector();
      await send('grpc', names.slice(10));
      system.ingest = system.startIngest();
      await system.ready();
      await expect.poll(() => names.filter((name) => named(name).length === 0)).toEqual([]);
      expect(names.filter((name) => named(name).length > 1)).toEqual([]);
    });

    describe('that is refused', () => {
      const forwarders: Forwarder[] = [];
      afterAll(() => forwarders.forEach((forwarder) => forwarder.close()));

      /** A Collector that begins anew, with a project and a forwarder of its own. */
      async function behindForwarder(wanted: { rateLimit?: number } = {}, key?: string) {
        const own = await system.createProject(wanted);
        const passed: { status: number; at: number }[] = [];
        const forwarder = await Forwarder.before(system.port, ({ status, at }) =>
          passed.push({ status, at }),
        );
        forwarders.push(forwarder);
        await kill('SIGTERM');
        log = '';
        await startCollector({ ...own, key: key ?? own.key }, forwarder.port);
        return { forwarder, passed, statuses: () => passed.map(({ status }) => status) };
      }

      it('waits as long as a 429 says, and sends the same again: above the limit nothing is lost', async () => {
        const { passed, statuses } = await behindForwarder({ rateLimit: 2 });
        const names = ['admitted first', 'admitted second', 'refused first', 'refused second'];
        for (const [at, name] of names.entries()) {
          await send('http', [name]);
          await expect.poll(() => passed.length).toBe(at + 1);
        }
        expect(statuses()).toEqual([200, 200, 429, 429]);
        await until(() => passed.length === 6, 2 * RETRY_AFTER_MS);
        expect(statuses()).toEqual([200, 200, 429, 429, 200, 200]);
        const [, , first = 0, second = 0, firstAgain, secondAgain] = passed.map(({ at }) => at);
        expect(firstAgain).toBeGreaterThan(first + RETRY_AFTER_MS - 1_000);
        expect(secondAgain).toBeGreaterThan(second + RETRY_AFTER_MS - 1_000);
        await expect.poll(() => names.filter((name) => named(name).length === 1)).toEqual(names);
      });

      it('sends again after a 503, and after a lost answer, and it is stored once', async () => {
        const { forwarder, statuses } = await behindForwarder();
        forwarder.answersToLose = 1;
        await send('http', ['its answer is lost']);
        await expect.poll(statuses).toEqual([200, 200]);
        await system.nats.stop();
        await send('http', ['while the queue is away']);
        await expect.poll(statuses).toContain(503);
        await system.restartNats();
        await expect.poll(() => statuses().at(-1)).toBe(200);
        for (const name of ['its answer is lost', 'while the queue is away'])
          await expect.poll(() => named(name).length).toBe(1);
      });

      it.each([
        [401, 'wrong', {}],
        [413, undefined, { large: LARGE }],
      ])('drops what is answered %i, says so, and goes on', async (status, key, attributes) => {
        const { statuses } = await behindForwarder({}, key);
        await send('http', [`answered ${status}`], attributes);
        await expect.poll(statuses).toEqual([status]);
        await expect.poll(() => log).toMatch(/Dropping data/);
        await send('http', ['after it']);
        await expect.poll(statuses).toEqual([status, key ? status : 200]);
        expect(named(`answered ${status}`)).toEqual([]);
      });
    });
  });
