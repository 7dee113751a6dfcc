/** The dashboard and the rules ask only for what sluice says; where Prometheus is found, each query is answered from a running system. */
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { parse } from 'yaml';
import { envelope, errorEvent, eventId } from '../support/envelopes.ts';
import { temporaryFolder } from '../support/servers.ts';
import { type Project, System, until } from '../support/system.ts';
import { findPrometheus, RunningPrometheus } from './prometheus.ts';

type Rule = {
  record?: string;
  alert?: string;
  expr: string;
  labels?: { severity: string };
  annotations?: { summary: string; runbook_url: string };
};
type Panel = { id: number; type: string; title: string; description?: string; targets?: { expr: string }[] };

const PROJECT = new URL('../..', import.meta.url).pathname;
const RULES = `${PROJECT}deploy/prometheus/rules.yaml`;
const { groups } = parse(readFileSync(RULES, 'utf8')) as { groups: { rules: Rule[] }[] };
const rules = groups.flatMap((group) => group.rules);
const alerts = rules.filter(({ alert }) => alert);
const dashboard = JSON.parse(readFileSync(`${PROJECT}deploy/grafana/dashboards/sluice.json`, 'utf8')) as {
  panels: Panel[];
  templating: { list: { name: string; query: unknown }[] };
};
const queries = dashboard.panels.flatMap(({ title, targets = [] }) =>
  targets.map(({ expr }) => ({
    title,
    promql: expr.replaceAll('$__rate_interval', '15s').replaceAll(/\$(cluster|namespace|ingest)/g, '.*'),
  })),
);
const prometheus = findPrometheus();

/** A log over its limit, but for the first in a minute, beside a type that is not stored. */
const LEFT_OUT = '{}\n{"type":"log"}\n{"items":[{"body":"x"}]}\n{"type":"statsd"}\nx\n';

let system: System;
let project: Project;
let timer: NodeJS.Timeout;

beforeAll(async () => {
  system = await System.start({ workers: 2 });
  project = await system.createProject({ plan: 'Pro', rateLimit: 1_000, rateLimits: { logs: 1 } });
  const token = await system.createHeartbeat();
  timer = setInterval(() => {
    const sent = [
      system.send(project, errorEvent(eventId())),
      system.send(project, envelope(eventId(), 'transaction', { spans: [] })),
      system.send(project, 'not json'),
      system.send(project, LEFT_OUT),
      fetch(`${system.url}/heartbeat/${token}`, { method: 'POST' }),
      fetch(`${system.url}/healthz`),
    ];
    Promise.all(sent).catch(() => undefined);
  }, 250);
});
afterAll(async () => {
  clearInterval(timer);
  await system?.stop();
});

const metricsIn = (promql: string): string[] => promql.match(/\b(sluice|process|nodejs)_\w+/g) ?? [];
/** Without what a histogram's parts have behind its name. */
const family = (name: string): string => name.replace(/_(bucket|sum|count)$/, '');

/** Everything that ingest and the processor expose, once each has served. */
async function exposition(): Promise<string> {
  await until(async () => (await system.metrics()).includes('sluice_frame_envelopes_bucket'));
  const processor = async (): Promise<string> =>
    (await fetch(`http://127.0.0.1:${system.processorPort}/metrics`)).text();
  // A record can be read in the sink a moment before it is counted.
  await until(async () => (await processor()).includes('sluice_processed_total{'));
  return `${await system.metrics()}\n${await processor()}`;
}

/** No panel has them: they are joined with others in queries of one's own. */
const UNSHOWN = ['sluice_build_info'];

it('asks only for metrics that ingest or the processor exposes', async () => {
  const text = await exposition();
  // Without TLS and credentials there are no times at which they end.
  const exposed = new Set(text.match(/(?<=^|^# TYPE )(sluice|process|nodejs)_\w+/gm));
  const asked = [...queries.map(({ promql }) => promql), ...rules.map(({ expr }) => expr)].flatMap(metricsIn);
  expect([...new Set(asked)].filter((name) => !exposed.has(name))).toEqual([]);
  expect(new Set(asked).size).toBeGreaterThan(18);
});

it('shows each metric of ours', async () => {
  const shown = new Set(queries.flatMap(({ promql }) => metricsIn(promql)).map(family));
  const ofOurs = (await exposition()).match(/(?<=^# TYPE )sluice_\w+/gm) ?? [];
  expect([...new Set(ofOurs)].filter((name) => !shown.has(name))).toEqual(UNSHOWN);
});

it('has panels with a title, a description and an id of their own', () => {
  const { panels, templating } = dashboard;
  expect(new Set(panels.map(({ id }) => id)).size).toBe(panels.length);
  for (const { type, title, description, targets } of panels) {
    expect(title).not.toBe('');
    if (type === 'row') continue;
    expect(description, title).toBeTruthy();
    expect(targets?.length, title).toBeGreaterThan(0);
  }
  expect(templating.list.map(({ name }) => name)).toEqual(['datasource', 'cluster', 'namespace', 'ingest']);
});

it('asks each metric for the chosen clusters and namespaces alone', () => {
  const asked = dashboard.panels.flatMap(({ targets = [] }) => targets.map(({ expr }) => expr));
  const selectors = asked.flatMap((expr) => expr.match(/\bsluice_\w+(\{[^}]*\})?/g) ?? []);
  expect(selectors.length).toBeGreaterThan(40);
  for (const selector of selectors)
    expect(selector).toContain('{cluster=~"$cluster",namespace=~"$namespace"');
});

it('has an entry in the runbook for each alert, and a row that says how its first action was tried', () => {
  const tried = readFileSync(`${PROJECT}docs/operations.md`, 'utf8')
    .split('### How the first actions were tried')[1]
    ?.split('\n## ')[0]
    ?.match(/(?<=^\| .*)Sluice\w+(?=.* \| (cell|test))/gm);
  expect(new Set(tried)).toEqual(new Set(alerts.map(({ alert }) => alert)));
  const headings = new Set(
    readFileSync(`${PROJECT}docs/operations.md`, 'utf8')
      .split('\n')
      .filter((line) => line.startsWith('#'))
      .map((line) => line.replace(/^#+ /, '').toLowerCase()),
  );
  for (const { alert = '', annotations } of alerts) {
    expect(annotations?.runbook_url).toBe(`https://example.com/sluice/operations.md#${alert.toLowerCase()}`);
    expect(headings).toContain(alert.toLowerCase());
  }
});

it('has each panel that the runbook names', () => {
  const runbook = readFileSync(`${PROJECT}docs/operations.md`, 'utf8');
  const lists = runbook.match(/(?<=\bpanels? )"[^"]+"(?:(?:,| and) "[^"]+")*/g) ?? [];
  const named = lists.flatMap((list) => list.split('"').filter((_, at) => at % 2 === 1));
  expect(named.length).toBeGreaterThan(5);
  expect(dashboard.panels.map(({ title }) => title)).toEqual(expect.arrayContaining(named));
});

it('has the severity of each alert in the runbook', () => {
  const runbook = readFileSync(`${PROJECT}docs/operations.md`, 'utf8');
  const written = [...runbook.matchAll(/^### (Sluice\w+)\n\nSeverity \*(\w+)\*\. /gm)];
  expect(Object.fromEntries(written.map(([, alert, severity]) => [alert, severity]))).toEqual(
    Object.fromEntries(alerts.map(({ alert, labels }) => [alert, labels?.severity])),
  );
});

describe.each(prometheus ? [prometheus] : [])('a real Prometheus', (found) => {
  let running: RunningPrometheus;

  beforeAll(async () => {
    const jobs = { 'sluice-ingest': system.adminPort, 'sluice-processor': system.processorPort };
    // Over seconds instead of minutes: what one request met on a machine that stood still is forgotten soon. promtool has the true ones.
    const quick = join(temporaryFolder('rules'), 'rules.yaml');
    writeFileSync(quick, readFileSync(RULES, 'utf8').replaceAll(/\[(5m|30m|1h|6h)\]/g, '[15s]'));
    running = await RunningPrometheus.start(found, { rules: quick, jobs });
  });
  afterAll(() => running?.stop());

  const answered = async (promql: string): Promise<void> => {
    await until(async () => {
      const samples = await running.query(promql);
      return samples.length > 0 && samples.every(({ value }) => value[1] !== 'NaN');
    });
  };

  /** Only with TLS, credentials or a cluster. */
  const isOptional = (promql: string): boolean =>
    /_expire_timestamp_seconds|sluice_stream_leader/.test(promql);

  it.each(queries.filter(({ promql }) => !isOptional(promql)))(
    'answers the panel $title: $promql',
    async ({ promql }) => answered(promql),
  );

  it.each(queries.filter(({ promql }) => isOptional(promql)))(
    'understands the panel $title: $promql',
    async ({ promql }) => expect(await running.query(promql)).toEqual([]),
  );

  it.each(rules.filter(({ record }) => record))('records $record', async ({ record = '' }) =>
    answered(record),
  );

  it('evaluates every rule without an error, and no alert fires while all is well', async () => {
    await until(async () => (await running.rules()).every(({ health }) => health === 'ok'));
    expect(await running.rules()).toHaveLength(rules.length);
    // A rate needs a few samples; then nothing may even be pending.
    await until(async () => (await running.rules()).every(({ state = 'inactive' }) => state === 'inactive'));
  });
});
