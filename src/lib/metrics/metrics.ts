/**
 * Metrics of several processes. Hot code keeps plain counters. A worker turns them into a snapshot
 * when the primary asks. The primary sums the snapshots and renders the sum in Prometheus's text
 * format, both with prom-client.
 */
import {
  AggregatorRegistry,
  type MetricObject,
  type MetricObjectWithValues,
  type MetricValue,
  type Registry,
} from 'prom-client';
import { Distribution } from './distribution.ts';

export type MetricsSnapshot = Omit<MetricObjectWithValues<MetricValue<string>>, 'collect'>[];

type Labels = Record<string, string>;
export type Sample = readonly [labels: Labels, value: number];

const described = (name: string, help: string, type: 'counter' | 'gauge' | 'histogram') =>
  ({
    name,
    help,
    type: type as unknown as MetricObject['type'],
    aggregator: 'sum',
  }) as const;

export const counter = (name: string, help: string, samples: readonly Sample[]): MetricsSnapshot[number] => ({
  ...described(name, help, 'counter'),
  values: samples.map(([labels, value]) => ({ labels, value })),
});

export const gauge = (name: string, help: string, samples: readonly Sample[]): MetricsSnapshot[number] => ({
  ...described(name, help, 'gauge'),
  values: samples.map(([labels, value]) => ({ labels, value })),
});

export function histogram(
  name: string,
  help: string,
  data: Distribution | readonly (readonly [labels: Labels, data: Distribution])[],
): MetricsSnapshot[number] {
  const values: { labels: Labels; value: number; metricName: string }[] = [];
  for (const [labels, { bounds, counts, sum }] of data instanceof Distribution
    ? [[{}, data] as const]
    : data) {
    let total = 0;
    counts.forEach((count, at) => {
      total += count;
      const le = at < bounds.length ? `${bounds[at]}` : '+Inf';
      values.push({ labels: { le, ...labels }, value: total, metricName: `${name}_bucket` });
    });
    values.push({ labels, value: sum, metricName: `${name}_sum` });
    values.push({ labels, value: total, metricName: `${name}_count` });
  }
  return { ...described(name, help, 'histogram'), values };
}

/** Makes one sample for each label value in `counts`. */
export const byLabel = (label: string, counts: Readonly<Record<string, number>>): Sample[] =>
  Object.entries(counts).map(([value, count]) => [{ [label]: value }, count] as const);

/** Sums the snapshots of several processes, by metric and labels. */
export const sumSnapshots = (snapshots: readonly MetricsSnapshot[]): Registry =>
  AggregatorRegistry.aggregate(snapshots as MetricObjectWithValues<MetricValue<string>>[][]);

/**
 * Returns the counters and histograms of a dead worker's snapshot, which must be kept because their
 * sums must not fall. Gauges are left out.
 */
export const lasting = (snapshot: MetricsSnapshot): MetricsSnapshot =>
  snapshot.filter((metric) => String(metric.type) !== 'gauge');

/** A gauge whose labels tell which build answers a scrape; its value is always 1. */
export const buildInfo = (version: string): MetricsSnapshot[number] =>
  gauge('sluice_build_info', 'The version of sluice and of Node', [[{ version, node: process.version }, 1]]);

export const refusedTokens = (count: number): MetricsSnapshot[number] =>
  counter(
    'sluice_admin_tokens_refused_total',
    'Requests to the admin port with a token that it does not know',
    [[{}, count]],
  );

/**
 * @param expiry Unix seconds; undefined when the credentials never expire. The gauge then has no
 * sample
 */
export const credentialsExpiry = (expiry: number | undefined): MetricsSnapshot[number] =>
  gauge(
    'sluice_credentials_expire_timestamp_seconds',
    'When the credentials of SLUICE_NATS_CREDS end',
    expiry === undefined ? [] : [[{}, expiry]],
  );
