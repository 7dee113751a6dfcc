/** A Collector of OpenTelemetry in front of the whole system, with deploy/otel-collector.yaml: exporters by gRPC and HTTP, and an outage. */
import { type ChildProcess, spawn } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { lastingPort } from '../../support/servers.ts';
import { type Project, System, until } from '../../support/system.ts';
import { Program } from '../client.ts';
import { asked, lacks, type Sdk } from '../sdks.ts';
import { COLLECTOR, EXPORTERS, type Exporter, GRPC } from './exporters.ts';

const CONFIG = new URL('../../../deploy/otel-collector.yaml', import.meta.url).pathname;
/** Its build takes minutes on a fresh machine, so it takes part where TEST_CLIENTS names it or is not set. */
const takesPart = (asked?.includes('collector') ?? true) && ![COLLECTOR, GRPC].some(({ sdk }) => lacks(sdk));
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

    /** The file as it is, but for ports and folder of this test. */
    async function startCollector(): Promise<void> {
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
          SLUICE_OTLP_URL: `${system.url}/api/${project.id}/integration/otlp`,
          SLUICE_KEY: project.key,
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
    async function send(by: 'http' | 'grpc', names: readonly string[]): Promise<void> {
      const { command, env } = by === 'grpc' ? GRPC : NODE;
      const endpoint = { OTEL_EXPORTER_OTLP_ENDPOINT: `http://127.0.0.1:${ports[by]}` };
      const client = new Program(command, { ...env, ...endpoint });
      for (const name of names)
        await client.step({ do: 'span', name, child: 'child', attributes: { text: name } } as never);
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
  });
