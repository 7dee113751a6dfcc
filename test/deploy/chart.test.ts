/** The chart renders what the overlays render, object for object, and its six files of values fit the published schemas. */
import { execFileSync, spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { parse } from 'yaml';
import { temporaryFolder } from '../support/servers.ts';
import {
  CHART,
  findHelm,
  findKustomize,
  KUBERNETES,
  type KubernetesObject,
  parseObjects,
  render,
  renderChart,
  renderInside,
  schemaProblems,
  unknownFields,
} from './kubernetes-objects.ts';

const VALUES = join(CHART, '../values');
const FILES = readdirSync(VALUES)
  .filter((name) => name.endsWith('.yaml'))
  .map((name) => name.replace('.yaml', ''));
/** What the overlays name as the image. */
const IMAGE = {
  minimal: 'image.repository=sluice,image.tag=local',
  production: 'image.repository=registry.example.com/sluice',
};
type Profile = keyof typeof IMAGE;

const helm = findHelm();
const kustomize = findKustomize();
const tools = helm && kustomize ? [{ helm, kustomize }] : [];
if (tools.length === 0)
  console.warn('LEFT OUT: the chart, which wants Helm (or Go, to build it) and kubectl');

type Fields = Record<string, unknown>;
const isFields = (value: unknown): value is Fields => typeof value === 'object' && value !== null;

/** In the order of names: volumes, mounts, variables and ports have none of their own. */
function sorted(value: unknown): unknown {
  if (Array.isArray(value)) {
    const items = value.map(sorted);
    const key = (item: unknown): string => (isFields(item) ? String(item.mountPath ?? item.name) : '');
    return items.every((item) => isFields(item) && 'name' in item)
      ? items.sort((one, other) => key(one).localeCompare(key(other)))
      : items;
  }
  if (!isFields(value)) return value;
  return Object.fromEntries(Object.entries(value).map(([name, inner]) => [name, sorted(inner)]));
}

/** Without what each of the two tools adds of its own: hashes in names, a Job's revision, checksums, labels of a release. */
function plain(objects: readonly KubernetesObject[]): Record<string, unknown> {
  // Kustomize writes an empty line more where a folded text has an indented one.
  let text = JSON.stringify(objects).replaceAll('\\n\\n', '\\n');
  for (const { kind, metadata } of objects) {
    const name = metadata.name.replace(kind === 'Job' ? /-\d+$/ : /-[b-z2-9]{10}$/, '');
    if (['ConfigMap', 'Secret', 'Job'].includes(kind))
      text = text.replaceAll(`"${metadata.name}"`, `"${name}"`);
  }
  text = text.replaceAll(/"checksum\/config":"\w+"/g, '').replaceAll(',"annotations":{}', '');
  text = text.replaceAll('"annotations":{},', '');
  const all = JSON.parse(text) as (KubernetesObject & {
    data?: Record<string, string>;
    stringData?: Fields;
  })[];
  return Object.fromEntries(
    all.map(({ metadata: { labels = {}, ...metadata }, ...object }) => {
      for (const label of ['name', 'instance', 'managed-by']) delete labels[`app.kubernetes.io/${label}`];
      delete labels['helm.sh/chart'];
      if (object.kind === 'Secret')
        object.stringData ??= Object.fromEntries(
          Object.entries(object.data ?? {}).map(([key, value]) => [
            key,
            Buffer.from(value, 'base64').toString(),
          ]),
        );
      if (object.kind === 'Secret') for (const field of ['data', 'type']) delete (object as Fields)[field];
      return [`${object.kind} ${metadata.name}`, sorted({ ...object, metadata: { ...metadata, labels } })];
    }),
  );
}

const projects = parse(
  (parse(readFileSync(join(KUBERNETES, 'components/projects/projects.yaml'), 'utf8')) as { data: Fields })
    .data['projects.yaml'] as string,
) as { projects: Fields[] };
const egress = parseObjects(readFileSync(join(KUBERNETES, 'components/egress/network.yaml'), 'utf8')).at(-1);
/** The values that stand for what somebody writes into the files of a component. */
const OF_COMPONENTS: Record<string, string[]> = {
  ingress: ['--set', 'components.ingress=true'],
  'envoy-gateway': ['--set', 'components.envoy-gateway=true'],
  egress: [
    '--set',
    'components.egress=true',
    '--set-json',
    `egress=${JSON.stringify((egress as unknown as { spec: Fields }).spec.egress)}`,
  ],
  projects: [
    '--set',
    'components.projects=true',
    '--set-json',
    `projects.list=${JSON.stringify(projects.projects)}`,
  ],
  sentinel: ['--set', 'components.sentinel=true'],
  reload: ['--set', 'components.reload=true'],
  exporters: ['--set', 'components.exporters=true'],
  'tcp-migrate-req': ['--set', 'components.tcp-migrate-req=true'],
  'runbook-url': ['--set', 'monitoring.runbook=https://runbooks.example.com/sluice/operations.md'],
  'monitoring-labels': ['--set', 'monitoring.labels.release=kube-prometheus-stack'],
};

describe.each(tools)('the chart', ({ helm, kustomize }) => {
  it.each(['minimal', 'production'] as const)('renders what the overlay %s does', (profile: Profile) => {
    const chart = plain(renderChart(helm, '-f', join(VALUES, `${profile}.yaml`), '--set', IMAGE[profile]));
    delete chart['Pod test'];
    if (profile === 'minimal') {
      const [sink] = parseObjects(readFileSync(join(KUBERNETES, 'lasting/sink.yaml'), 'utf8'));
      const { annotations } = (chart['PersistentVolumeClaim sink'] as { metadata: Fields }).metadata;
      // Helm takes away what a release no longer has, but for this.
      expect(annotations).toEqual({ 'helm.sh/resource-policy': 'keep' });
      expect(chart['PersistentVolumeClaim sink']).toMatchObject({ spec: (sink as unknown as Fields).spec });
      delete chart['PersistentVolumeClaim sink'];
    }
    expect(chart).toEqual(plain(render(kustomize, profile)));
  });

  it.each(Object.keys(OF_COMPONENTS))('renders what the component %s adds to production', (component) => {
    const values = join(VALUES, 'production.yaml');
    const chart = plain(
      renderChart(helm, '-f', values, '--set', IMAGE.production, ...(OF_COMPONENTS[component] ?? [])),
    );
    delete chart['Pod test'];
    const overlay = plain(renderInside(kustomize, 'production', component));
    if (component === 'projects') {
      // YAML in a text: the same projects, written differently.
      const read = (all: Fields): unknown =>
        parse((all['ConfigMap projects'] as { data: Record<string, string> }).data['projects.yaml'] ?? '');
      expect(read(chart)).toEqual(read(overlay));
      for (const all of [chart, overlay]) delete all['ConfigMap projects'];
    }
    expect(chart).toEqual(overlay);
  });

  it('fits the published schemas with each file of values', async () => {
    const all = FILES.flatMap((name) => renderChart(helm, '-f', join(VALUES, `${name}.yaml`)));
    expect(all.length).toBeGreaterThan(100);
    expect((await Promise.all(all.map(schemaProblems))).flat()).toEqual([]);
    expect(unknownFields(all)).toEqual([]);
    for (const { kind, metadata } of all) if (kind !== 'Pod') expect(metadata.namespace).toBe('sluice');
  });

  it('passes helm lint with each of them', () => {
    for (const name of FILES) {
      const { status, stdout } = spawnSync(
        helm,
        ['lint', '--strict', '--kube-version', '1.34.0', CHART, '-f', join(VALUES, `${name}.yaml`)],
        {
          encoding: 'utf8',
        },
      );
      expect([name, status, stdout]).toEqual([name, 0, expect.stringContaining('0 chart(s) failed')]);
    }
  });

  it('refuses a second processor where the first writes to a volume', () => {
    for (const value of ['processor.replicas=2', 'processor.scaling.kind=keda'])
      expect(() => renderChart(helm, '--set', value)).toThrow('one processor alone');
  });

  it.each(['sentinel', 'reload', 'exporters'])(
    'refuses the component %s for the servers of minimal, which have no Secret',
    (name) => {
      expect(() => renderChart(helm, '--set', `components.${name}=true`)).toThrow('profile production');
    },
  );

  it('has the version of the package', () => {
    const { version } = JSON.parse(readFileSync(join(CHART, '../../../package.json'), 'utf8')) as Fields;
    expect(parse(readFileSync(join(CHART, 'Chart.yaml'), 'utf8'))).toMatchObject({
      version,
      appVersion: version,
    });
  });

  it('runs the image of its release, as the release packs it', () => {
    const folder = mkdtempSync(join(tmpdir(), 'chart-'));
    const image = 'ghcr.io/owner/sluice';
    const digest = `sha256:${'ab'.repeat(32)}`;
    const PATH = `${dirname(helm)}:${process.env.PATH}`;
    const packed = spawnSync(join(CHART, '../../../.ci/release'), ['chart', image, digest, folder], {
      encoding: 'utf8',
      env: { ...process.env, PATH },
    });
    expect(packed.status, packed.stderr).toBe(0);
    const [file = ''] = readdirSync(folder);
    expect(file).toMatch(/^sluice-chart-[\d.]+\.tgz$/);
    const rendered = execFileSync(
      helm,
      ['template', 'sluice', join(folder, file), '--kube-version', '1.34.0'],
      { encoding: 'utf8' },
    );
    const own = [...rendered.matchAll(/^\s*(?:- )?image: "?(.*sluice.*?)"?$/gm)].map(([, name]) => name);
    expect([...new Set(own)]).toEqual([`${image}@${digest}`]);
    rmSync(folder, { recursive: true });
  });

  it('passes helm test where ingest is ready, and fails where it is not', async () => {
    const pod = renderChart(helm).find(({ kind }) => kind === 'Pod') as unknown as {
      spec: { containers: { command: string[] }[] };
    };
    let status = 200;
    const server = createServer((_request, answer) => answer.writeHead(status).end()).listen(0, '127.0.0.1');
    await once(server, 'listening');
    const here = `127.0.0.1:${(server.address() as AddressInfo).port}`;
    const [program = '', ...args] = pod.spec.containers[0]?.command ?? [];
    const ends = async (): Promise<unknown> => {
      const script = args.map((arg) => arg.replace('http://ingest/', `http://${here}/`));
      return (await once(spawn(program, script, { stdio: 'ignore' }), 'exit'))[0];
    };
    expect(await ends()).toBe(0);
    status = 503;
    expect(await ends()).toBe(1);
    server.close();
    expect(await ends()).toBe(1);
  });

  it('refuses a value that it does not know, and one of another form', () => {
    for (const [value, word] of [
      ['ingest.nodeSelecter.a=b', 'nodeSelecter'],
      ['profile=large', 'profile'],
      ['image.digest=sha256:1', 'digest'],
      ['settings.PATH=x', 'PATH'],
      ['ingest.replicas=two', 'replicas'],
      ['ingest.preStopSeconds=0', 'preStopSeconds'],
    ] as const)
      expect(() => renderChart(helm, '--set', value)).toThrow(word);
  });
});

describe.each(tools)('the values', ({ helm }) => {
  type Pod = {
    nodeSelector?: Fields;
    volumes?: { name: string }[];
    containers: { image: string; env?: Fields[]; resources: Fields; volumeMounts?: Fields[] }[];
  };
  const find = (objects: readonly KubernetesObject[], kind: string, name: string): Fields =>
    (objects.find((object) => object.kind === kind && object.metadata.name === name) ?? {}) as Fields;
  const podOf = (objects: readonly KubernetesObject[], kind: string, name: string): Pod =>
    (find(objects, kind, name).spec as { template: { spec: Pod } }).template.spec;
  const values = (name: string): KubernetesObject[] => renderChart(helm, '-f', join(VALUES, `${name}.yaml`));

  it('external: no server, no file of a credential, Secrets of another name', () => {
    const objects = values('external');
    expect(objects.filter(({ kind }) => kind === 'StatefulSet')).toEqual([]);
    expect(objects.filter(({ metadata }) => /^(redis|nats)/.test(metadata.name))).toEqual([]);
    for (const name of ['ingest', 'processor']) {
      const { volumes = [], containers } = podOf(objects, 'Deployment', name);
      expect(volumes.map((volume) => volume.name)).toEqual(name === 'ingest' ? ['spool'] : []);
      expect(JSON.stringify(containers)).toContain('{"secretRef":{"name":"team-redis"}}');
      expect(JSON.stringify(containers)).not.toContain('/etc/sluice');
    }
  });

  it('strict: reach every pod, and what they do not name stays', () => {
    const objects = values('strict');
    for (const [kind, name] of [
      ['Deployment', 'ingest'],
      ['Deployment', 'processor'],
      ['StatefulSet', 'nats'],
      ['StatefulSet', 'redis'],
      ['Job', 'setup-1'],
    ] as const)
      expect(podOf(objects, kind, name), name).toMatchObject({
        nodeSelector: { 'example.com/pool': 'sluice' },
        tolerations: [{ key: 'example.com/pool' }],
        priorityClassName: 'sluice',
        imagePullSecrets: [{ name: 'registry' }],
        securityContext: { runAsNonRoot: true },
      });
    const [ingest] = podOf(objects, 'Deployment', 'ingest').containers;
    expect(ingest).toMatchObject({
      image: expect.stringMatching(/^registry\.example\.com\/sluice@sha256:[0-9a-f]{64}$/),
      env: [{ name: 'SLUICE_WORKERS', value: '4' }],
      resources: { requests: { cpu: '4', memory: '2Gi' }, limits: { memory: '3Gi' } },
      livenessProbe: { httpGet: { path: '/healthz' } },
    });
    expect(find(objects, 'HorizontalPodAutoscaler', 'ingest').spec).toMatchObject({
      minReplicas: 6,
      maxReplicas: 12,
    });
    expect(find(objects, 'PodDisruptionBudget', 'ingest').spec).toMatchObject({ maxUnavailable: '25%' });
    expect(find(objects, 'Deployment', 'processor').spec).toMatchObject({ replicas: 3 });
    expect(objects.map(({ kind }) => kind)).not.toEqual(expect.arrayContaining(['ScaledObject']));
    expect(JSON.stringify(find(objects, 'StatefulSet', 'nats'))).toContain('"storageClassName":"fast"');
    for (const object of objects)
      if (object.kind !== 'Pod') expect(object.metadata.labels).toHaveProperty('example.com/owner');
  });

  it('sinks: no volume, and no pause between two processors', () => {
    const objects = values('sinks');
    expect(find(objects, 'PersistentVolumeClaim', 'sink')).toEqual({});
    expect(podOf(objects, 'Deployment', 'processor').volumes).toBeUndefined();
    expect(find(objects, 'Deployment', 'processor').spec).not.toHaveProperty('strategy');
    expect(find(objects, 'Secret', 'sluice-sink').stringData).toHaveProperty('AWS_ACCESS_KEY_ID');
  });

  it('cell: a short file is all that differs between ten cells', () => {
    const both = ['-f', join(VALUES, 'production.yaml'), '-f', join(VALUES, 'cell.yaml')];
    const oslo = renderChart(helm, ...both, '--namespace', 'oslo');
    expect(find(oslo, 'HTTPRoute', 'sluice').spec).toMatchObject({ hostnames: ['oslo.sluice.example.com'] });
    expect(find(oslo, 'ConfigMap', 'sluice-settings').data).toMatchObject({
      SLUICE_PUBLIC_URL: 'https://oslo.sluice.example.com',
    });
    const { query } = (
      find(oslo, 'ScaledObject', 'processor').spec as { triggers: { metadata: { query: string } }[] }
    ).triggers[0]?.metadata ?? { query: '' };
    expect(query.match(/\{[^}]*\}/g)).toEqual(Array(2).fill('{cluster="oslo",namespace="oslo"}'));
    const monitor = find(oslo, 'ServiceMonitor', 'sluice').spec as { endpoints: { relabelings: Fields[] }[] };
    for (const { relabelings } of monitor.endpoints)
      expect(relabelings.slice(1)).toEqual([{ targetLabel: 'cluster', replacement: 'oslo' }]);
    const folder = temporaryFolder('cells');
    for (let at = 1; at <= 10; at++) {
      const name = `c-${at}`;
      const file = join(folder, `${name}.yaml`);
      writeFileSync(file, readFileSync(join(VALUES, 'cell.yaml'), 'utf8').replaceAll('oslo', name));
      const other = renderChart(helm, ...both.slice(0, 3), file, '--namespace', name);
      expect(JSON.stringify(plain(other)).replaceAll(name, 'oslo'), name).toBe(JSON.stringify(plain(oslo)));
    }
    rmSync(folder, { recursive: true });
  });

  it('start pods anew that read what was changed, and no others', () => {
    const checksums = (...args: string[]): unknown[] =>
      ['ingest', 'processor', 'nats', 'redis'].map((name) => {
        const object = renderChart(helm, ...args).find(
          ({ kind, metadata }) => /^(Deployment|StatefulSet)$/.test(kind) && metadata.name === name,
        ) as unknown as { spec: { template: { metadata: { annotations: Fields } } } };
        return object.spec.template.metadata.annotations['checksum/config'];
      });
    const before = checksums();
    const isSame = (value: string): boolean[] =>
      checksums('--set', value).map((sum, at) => sum === before[at]);
    expect(isSame('settings.SLUICE_LOG_LEVEL=debug')).toEqual([false, false, true, true]);
    expect(isSame('secrets.sluice-sink.SLUICE_SINK=ndjson:/var/lib/sluice/other')).toEqual([
      true,
      false,
      true,
      true,
    ]);
  });

  it('let a pod of ingest serve on as long as a balancer needs, and stop in time afterwards', () => {
    const stop = (...args: string[]): unknown => {
      const { containers, terminationGracePeriodSeconds } = podOf(
        renderChart(helm, ...args),
        'Deployment',
        'ingest',
      ) as Pod & { terminationGracePeriodSeconds: number };
      const { lifecycle } = containers[0] as { lifecycle?: { preStop: { exec: { command: string[] } } } };
      return [lifecycle?.preStop.exec.command, terminationGracePeriodSeconds];
    };
    expect(stop()).toEqual([['sleep', '5'], 45]);
    expect(stop('--set', 'ingest.preStopSeconds=90')).toEqual([['sleep', '90'], 130]);
  });
});
