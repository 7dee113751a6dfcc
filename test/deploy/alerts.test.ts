/** Each alert of deploy/prometheus/rules.yaml fires for the cell that has its cause, and no other does; promtool evaluates them. */
import { spawnSync } from 'node:child_process';
import { readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { parse, parseAllDocuments } from 'yaml';
import { temporaryFolder } from '../support/servers.ts';
import { ILL, inputSeries, QUIET, SCENES, type Scene, WELL } from './alert-scenes.ts';
import { findPrometheus } from './prometheus.ts';

type Rule = {
  record?: string;
  alert?: string;
  labels?: { severity: string };
  annotations?: { runbook_url: string };
};

type ScaledObject = {
  kind: string;
  spec: { maxReplicaCount: number; triggers: { metadata: { query: string } }[] };
};

const PROJECT = new URL('../..', import.meta.url).pathname;
/** Scenes of hours are looked at more rarely, which alerts without a `for` do not notice. */
const LONG_MINUTES = 120;
/** A processor has so many connections to PostgreSQL (docs/sinks.md). */
const CONNECTIONS_MAX = 6;
const GROUPS = ['sluice-figures', 'sluice-alerts'];
const RULES = `${PROJECT}deploy/prometheus/rules.yaml`;
const { groups } = parse(readFileSync(RULES, 'utf8')) as { groups: { rules: Rule[] }[] };
const rules = groups.flatMap((group) => group.rules);
const alerts = rules.filter(({ alert }) => alert !== undefined);
const prometheus = findPrometheus();

const expected = ({ alert, labels, summary }: Scene): object => {
  const rule = alerts.find((one) => one.alert === alert);
  return {
    exp_labels: { ...ILL, ...labels, severity: rule?.labels?.severity },
    exp_annotations: { summary, runbook_url: rule?.annotations?.runbook_url },
  };
};

/** Of all alerts: those that are not named must not fire. */
const tests = (at: number, fired?: Scene): object[] =>
  alerts.map(({ alert }) => ({
    alertname: alert,
    eval_time: `${at}m`,
    exp_alerts: fired && fired.alert === alert ? [expected(fired)] : [],
  }));

const times = (minutes: number): number[] =>
  Array.from({ length: Math.floor(minutes / 5) }, (_, n) => 5 * (n + 1));

it('has a scene for each alert', () => {
  expect(SCENES.map(({ alert }) => alert).sort()).toEqual(alerts.map(({ alert }) => alert).sort());
});

describe.each(prometheus ? [prometheus] : [])('promtool', ({ promtool }) => {
  /** What promtool says when its tests fail. */
  function complaints(scenes: readonly object[], everyMinutes = 1): string {
    const dir = temporaryFolder('alerts');
    const file = join(dir, 'alerts.yaml');
    const every = { evaluation_interval: `${everyMinutes}m`, group_eval_order: GROUPS };
    writeFileSync(file, JSON.stringify({ rule_files: [RULES], ...every, tests: scenes }));
    const { status, stdout, stderr } = spawnSync(promtool, ['test', 'rules', file], { encoding: 'utf8' });
    rmSync(dir, { recursive: true });
    return status === 0 ? '' : `${stdout}${stderr}`;
  }

  it('sees each alert fire for the cell that has its cause, and no other alert', () => {
    const scenes = (isLong: boolean): object[] =>
      SCENES.filter(({ minutes }) => minutes > LONG_MINUTES === isLong).map((scene) => ({
        name: scene.alert,
        interval: '1m',
        input_series: inputSeries(scene),
        alert_rule_test: tests(scene.minutes, scene),
      }));
    expect(complaints(scenes(false))).toBe('');
    expect(complaints(scenes(true), 5)).toBe('');
  });

  it.each(QUIET)('sees no alert while $name', ({ minutes, series }) => {
    const scene = {
      interval: '1m',
      input_series: inputSeries({ minutes, series }),
      alert_rule_test: times(minutes).flatMap((at) => tests(at)),
    };
    expect(complaints([scene])).toBe('');
  });

  it('sees each record of both cells', () => {
    const records = rules.flatMap(({ record }) => record ?? []);
    const scene = {
      interval: '1m',
      input_series: inputSeries({ minutes: 30, series: {} }),
      promql_expr_test: records.map((record) => ({
        expr: `group by (cluster, namespace) (${record})`,
        eval_time: '30m',
        exp_samples: [WELL, ILL].map(({ cluster, namespace }) => ({
          labels: `{cluster="${cluster}",namespace="${namespace}"}`,
          value: 1,
        })),
      })),
    };
    expect(records.length).toBeGreaterThan(15);
    expect(complaints([scene])).toBe('');
  });

  it('lets KEDA add processors for what waits, and none while most of them find a sink away', () => {
    const file = `${PROJECT}deploy/kubernetes/overlays/production/scaling.yaml`;
    const scaled = parseAllDocuments(readFileSync(file, 'utf8'))
      .map((document) => document.toJS() as ScaledObject)
      .find(({ kind }) => kind === 'ScaledObject') as ScaledObject;
    expect(scaled.spec.maxReplicaCount * CONNECTIONS_MAX).toBeLessThan(90);
    const waits = (...failing: readonly number[]): object => ({
      interval: '1m',
      input_series: failing.flatMap((value, at) => [
        { series: `sluice_pending_messages{namespace="sluice",stream="S",pod="${at}"}`, values: '9000' },
        { series: `sluice_sink_failing{namespace="sluice",sink="p",pod="${at}"}`, values: `${value}` },
        { series: `sluice_sink_failing{namespace="sluice",sink="n",pod="${at}"}`, values: '0' },
      ]),
      promql_expr_test: [
        {
          expr: scaled.spec.triggers[0]?.metadata.query,
          eval_time: '0m',
          exp_samples: [{ value: failing.filter(Boolean).length > failing.length / 2 ? 0 : 9_000 }],
        },
      ],
    });
    expect(complaints([waits(0, 0), waits(1, 0), waits(1, 1, 0), waits(1, 1)])).toBe('');
  });

  it('would tell if an alert fired that should not, or did not that should', () => {
    const [scene] = SCENES as readonly [Scene];
    const input_series = inputSeries(scene);
    const silent = { interval: '1m', input_series, alert_rule_test: tests(scene.minutes) };
    expect(complaints([silent])).toContain(scene.alert);
    const well = inputSeries({ minutes: scene.minutes, series: {} });
    const wanted = { interval: '1m', input_series: well, alert_rule_test: tests(scene.minutes, scene) };
    expect(complaints([wanted])).toContain(scene.alert);
  });
});
