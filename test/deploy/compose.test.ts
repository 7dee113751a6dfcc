/** deploy/compose.yaml: what it names is there, what it sets is known. Whether Docker itself reads it is asked where Docker Compose is found. */
import { spawnSync } from 'node:child_process';
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { parse } from 'yaml';
import { loadConfig } from '../../src/config.ts';

type Service = {
  image: string;
  command?: string[];
  environment?: Record<string, string>;
  volumes?: string[];
  ports?: string[];
  profiles?: string[];
  depends_on?: string[] | Record<string, object>;
  read_only?: boolean;
  cap_drop?: string[];
};

const DEPLOY = new URL('../../deploy', import.meta.url).pathname;
const FILE = join(DEPLOY, 'compose.yaml');
const { services, volumes } = parse(readFileSync(FILE, 'utf8'), { merge: true }) as {
  services: Record<string, Service>;
  volumes: Record<string, null>;
};
const OURS = ['setup', 'ingest', 'processor'];
const PARTS = [...OURS, 'redis', 'nats', 'postgres', 'clickhouse', 'prometheus', 'grafana'];
const hasCompose = spawnSync('docker', ['compose', 'version'], { stdio: 'ignore' }).status === 0;

/** `${NAME:-default}` as its default, which may hold another one. */
function withDefaults(text: string): string {
  const next = text.replace(/\$\{\w+:-([^${}]*)\}/g, '$1');
  return next === text ? text : withDefaults(next);
}

it('has every part, and depends on nothing else', () => {
  expect(Object.keys(services).sort()).toEqual([...PARTS].sort());
  for (const { depends_on = [] } of Object.values(services)) {
    const names = Array.isArray(depends_on) ? depends_on : Object.keys(depends_on);
    for (const name of names) expect(PARTS).toContain(name);
  }
});

it('starts ClickHouse only for those who ask for it, and needs it for nothing', () => {
  const withProfile = Object.entries(services).filter(([, { profiles }]) => profiles);
  expect(withProfile.map(([name, { profiles }]) => [name, profiles])).toEqual([
    ['clickhouse', ['clickhouse']],
  ]);
  expect(JSON.stringify(Object.values(services).map(({ depends_on }) => depends_on))).not.toContain(
    'clickhouse',
  );
  const [, setting = ''] = /SLUICE_SINK=(clickhouse:\S+)/.exec(readFileSync(FILE, 'utf8')) ?? [];
  expect(loadConfig({ SLUICE_SINK: setting }).config.sinks).toEqual([{ kind: 'clickhouse', url: setting }]);
});

it('mounts what is there', () => {
  for (const [source = ''] of Object.values(services).flatMap((service) =>
    (service.volumes ?? []).map((volume) => volume.split(':')),
  )) {
    if (source.startsWith('.')) expect(existsSync(join(DEPLOY, source)), source).toBe(true);
    else expect(Object.keys(volumes)).toContain(source);
  }
});

it('sets what sluice knows, and confines it', () => {
  for (const name of OURS) {
    const { environment = {}, read_only, cap_drop } = services[name] as Service;
    expect({ read_only, cap_drop }).toEqual({ read_only: true, cap_drop: ['ALL'] });
    const set = Object.entries(environment).map(([key, value]) => [key, withDefaults(value)]);
    expect(() => loadConfig(Object.fromEntries(set))).not.toThrow();
  }
  expect(withDefaults(services.processor?.environment?.SLUICE_SINK ?? '')).toBe(
    'postgres://sluice:sluice@postgres:5432/sluice',
  );
});

it('publishes nothing but the public port beyond this machine', () => {
  const ports = Object.values(services).flatMap((service) => service.ports ?? []);
  expect(ports.filter((port) => !port.startsWith('127.0.0.1:'))).toEqual(['8080:8080']);
});

it('gives Prometheus and Grafana files that name each other rightly', () => {
  const scraped = parse(readFileSync(join(DEPLOY, 'prometheus/prometheus.yml'), 'utf8')) as {
    scrape_configs: { job_name: string; static_configs: { targets: string[] }[] }[];
  };
  expect(scraped.scrape_configs.map(({ job_name }) => job_name)).toEqual([
    'sluice-ingest',
    'sluice-processor',
  ]);
  const targets = scraped.scrape_configs.flatMap(({ static_configs }) => static_configs[0]?.targets ?? []);
  for (const target of targets) expect(OURS).toContain(target.split(':')[0]);
  const { providers } = parse(
    readFileSync(join(DEPLOY, 'grafana/provisioning/dashboards/sluice.yaml'), 'utf8'),
  ) as { providers: { options: { path: string } }[] };
  const mounted = services.grafana?.volumes?.map((volume) => volume.split(':')[1]);
  expect(mounted).toContain(providers[0]?.options.path);
});

describe.each(hasCompose ? ['docker compose'] : [])('%s', () => {
  it('reads the file', () => {
    const { status, stderr } = spawnSync('docker', ['compose', '-f', FILE, 'config', '-q'], {
      encoding: 'utf8',
    });
    expect(`${status} ${stderr}`).toBe('0 ');
  });
});
