/** Two whole cells on one machine, scraped by one real Prometheus with our rules: what happens to one is told of that one alone. */
import { readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { errorEvent, eventId } from '../support/envelopes.ts';
import { temporaryFolder } from '../support/servers.ts';
import { type Project, System, until } from '../support/system.ts';
import { findPrometheus, RunningPrometheus } from './prometheus.ts';

const RULES = new URL('../../deploy/prometheus/rules.yaml', import.meta.url).pathname;
const CELLS = ['paris', 'oslo'] as const;
/** Evaluations, one a second, with which each alert that waits for its cause has waited long enough. */
const FIRED_MIN = 10;
const prometheus = findPrometheus();

/** A second for each minute: what fires after five minutes fires after five seconds. What looks at hours looks at 15 s. */
const quickly = (rules: string): string =>
  rules
    .replaceAll(/\bfor: (\d+)m\b/g, 'for: $1s')
    .replaceAll(/\[(5m|15m|30m|1h|6h)\]/g, '[15s]')
    .replaceAll(/offset 15m/g, 'offset 15s');

type Cell = { name: string; system: System; project: Project };

describe.each(prometheus ? [prometheus] : [])('a Prometheus of two cells', (found) => {
  const cells: Cell[] = [];
  let dir: string;
  let running: RunningPrometheus;
  let stopped = false;
  let traffic: Promise<unknown> = Promise.resolve();
  const told: number[] = [];

  /** One request after the other, to each cell. */
  async function send({ system, project }: Cell): Promise<void> {
    while (!stopped) {
      const answer = await system.send(project, errorEvent(eventId()));
      await answer.text();
      told.push(answer.status);
      await new Promise((resolve) => setTimeout(resolve, 100));
    }
  }

  beforeAll(async () => {
    dir = temporaryFolder('cells');
    for (const name of CELLS) {
      const system = await System.start();
      cells.push({ name, system, project: await system.createProject() });
    }
    const rules = join(dir, 'rules.yaml');
    writeFileSync(rules, quickly(readFileSync(RULES, 'utf8')));
    const targets = (port: (system: System) => number) =>
      cells.map(({ name, system }) => ({
        port: port(system),
        labels: { cluster: name, namespace: 'sluice' },
      }));
    const jobs = {
      'sluice-ingest': targets(({ adminPort }) => adminPort),
      'sluice-processor': targets(({ processorPort }) => processorPort),
    };
    running = await RunningPrometheus.start(found, { rules, jobs });
    traffic = Promise.all(cells.map(send));
  });
  afterAll(async () => {
    stopped = true;
    await traffic;
    await running?.stop();
    await Promise.all(cells.map(({ system }) => system.stop()));
    rmSync(dir, { recursive: true, force: true });
  });

  const stored =
    'sluice:processed:rate5m{cluster="paris"} > 0 and on () sluice:processed:rate5m{cluster="oslo"} > 0';
  const silent = async (): Promise<boolean> => (await running.query('ALERTS')).length === 0;

  it('fires the alert of the cell whose processor stopped, and nothing else of either', async () => {
    await until(async () => (await running.query(stored)).length > 0 && (await silent()));
    const [, oslo] = cells as [Cell, Cell];
    await oslo.system.processor?.stop();
    const from = performance.now();
    const down = 'ALERTS{alertname="SluiceProcessorDown",alertstate="firing"}';
    const isDown = `count_over_time(${down}[1h]) > ${FIRED_MIN}`;
    await until(async () => (await running.query(isDown)).length > 0);
    const seconds = Math.floor((performance.now() - from) / 1000);
    const firing = await running.query(`count_over_time(ALERTS{alertstate="firing"}[${seconds}s])`);
    const fired = firing.map(({ metric }) => metric);
    expect(fired.map(({ alertname, cluster }) => `${alertname} ${cluster}`)).toEqual([
      'SluiceProcessorDown oslo',
    ]);
    expect(new Set(told)).toEqual(new Set([200]));
    // Both processors are there again: the alert ends.
    oslo.system.processor = oslo.system.startProcessor();
    await until(silent);
  });
});
