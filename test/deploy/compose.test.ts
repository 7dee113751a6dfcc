/** deploy/compose.yaml: what it names is there, what it sets is known. Whether Docker itself reads it is asked where Docker Compose is found. */
import { spawnSync } from 'node:child_process';
import { existsSync, readFileSync, rmSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import { parse } from 'yaml';
import { loadConfig } from '../../src/config.ts';
import { temporaryFolder } from '../support/servers.ts';

type Service = {
  image: string;
  command?: string[];
  entrypoint?: string[];
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
const PARTS = ['secrets', ...OURS, 'redis', 'nats', 'postgres', 'clickhouse', 'prometheus', 'grafana'];
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
    const set = Object.fromEntries(
      Object.entries(environment).map(([key, value]) => [key, withDefaults(value)]),
    );
    const { SLUICE_ADMIN_TOKEN_FILE: file, ...others } = set;
    expect(file).toBe('/run/sluice/admin-token');
    expect(() => loadConfig(others)).not.toThrow();
  }
  expect(withDefaults(services.processor?.environment?.SLUICE_SINK ?? '')).toBe(
    'postgres://sluice:sluice@postgres:5432/sluice',
  );
});

describe('its secrets', () => {
  const dir = temporaryFolder('compose-secrets');
  afterAll(() => rmSync(dir, { recursive: true }));
  const { entrypoint = [] } = services.secrets as Service;
  /** As the container runs it, but for the folder and the owners of files. */
  const start = (env: Record<string, string> = {}): string => {
    const script = (entrypoint[2] ?? '').replaceAll('$$', '$').replaceAll(/\/run\/sluice(?=[/" ]|$)/gm, dir);
    const given = { PATH: process.env.PATH ?? '', SLUICE_ADMIN_TOKEN: '', GRAFANA_PASSWORD: '', ...env };
    const { status, stdout, stderr } = spawnSync('sh', ['-euc', `chown() { :; }\n${script}`], {
      env: given,
      encoding: 'utf8',
    });
    expect(`${status} ${stderr}`).toBe('0 ');
    return stdout;
  };
  const read = (name: string): string => readFileSync(join(dir, name), 'utf8').trim();

  it('are made at the first start, differ, are kept, and can be given', () => {
    expect(start()).toContain('admin-token');
    const [token, password] = [read('admin-token'), read('grafana-password')];
    expect([token, password]).toEqual([
      expect.stringMatching(/^[0-9a-f]{64}$/),
      expect.stringMatching(/^[0-9a-f]{64}$/),
    ]);
    expect(token).not.toBe(password);
    expect(statSync(join(dir, 'admin-token')).mode & 0o777).toBe(0o600);
    expect(start()).not.toContain(token);
    expect([read('admin-token'), read('grafana-password')]).toEqual([token, password]);
    start({ SLUICE_ADMIN_TOKEN: 'ci=0123456789abcdef,fedcba9876543210', GRAFANA_PASSWORD: 'of mine' });
    expect([read('admin-token'), read('grafana-password')]).toEqual([
      'ci=0123456789abcdef\nfedcba9876543210',
      'of mine',
    ]);
    expect(
      loadConfig({ SLUICE_ADMIN_TOKEN_FILE: join(dir, 'admin-token') }).config.adminTokenFile,
    ).toBeDefined();
  });

  it('are known to nobody who has read the file: none has a default', () => {
    const text = readFileSync(FILE, 'utf8');
    for (const name of ['SLUICE_ADMIN_TOKEN', 'GRAFANA_PASSWORD'])
      expect([...text.matchAll(new RegExp(`\\$\\{${name}([^}]*)\\}`, 'g'))].map(([, rest]) => rest)).toEqual([
        ':-',
      ]);
  });
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
