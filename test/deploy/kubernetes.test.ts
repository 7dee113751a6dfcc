/** Every overlay renders where kubectl is found, every object fits its published schema, and the objects fit each other. */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { parse } from 'yaml';
import { parseLoadCommand } from '../../bench/load/command/flags.ts';
import { parseProjectFile } from '../../src/commands/project/project-file.ts';
import { loadConfig } from '../../src/config.ts';
import {
  findKustomize,
  KUBERNETES,
  type KubernetesObject,
  OVERLAYS,
  parseObjects,
  render,
  renderFolder,
  renderInside,
  renderWith,
  schemaProblems,
  unknownFields,
  writtenObjects,
} from './kubernetes-objects.ts';

type Labels = Record<string, string>;
type Selector = { matchLabels?: Labels; matchExpressions?: { key: string; values: string[] }[] };
type Container = {
  name: string;
  image?: string;
  command?: string[];
  args?: string[];
  ports?: { name: string; containerPort: number }[];
  envFrom?: { configMapRef?: { name: string }; secretRef?: { name: string } }[];
  volumeMounts?: { name: string; mountPath: string }[];
  securityContext: Record<string, unknown>;
  resources: { requests: Labels; limits: Labels };
};
type Pod = {
  containers: Container[];
  initContainers?: Container[];
  topologySpreadConstraints?: object[];
  affinity?: object;
  enableServiceLinks: boolean;
  automountServiceAccountToken: boolean;
  securityContext: Record<string, unknown>;
  volumes?: {
    name: string;
    configMap?: { name: string };
    secret?: { secretName: string };
    emptyDir?: object;
    ephemeral?: { volumeClaimTemplate: { spec: { resources: { requests: Labels } } } };
  }[];
};
type Workload = KubernetesObject & {
  spec: {
    selector?: Selector;
    volumeClaimTemplates?: { metadata: { name: string } }[];
    template: { metadata: { labels: Labels }; spec: Pod };
  };
};

const containersOf = ({ containers, initContainers = [] }: Pod): Container[] => [
  ...containers,
  ...initContainers,
];
const WORKLOADS = ['Deployment', 'StatefulSet', 'Job'];
const isWorkload = (object: KubernetesObject): object is Workload => WORKLOADS.includes(object.kind);
const specOf = (object: KubernetesObject) => (object as unknown as { spec: Record<string, never> }).spec;
const podLabels = (workload: Workload): Labels => workload.spec.template.metadata.labels;

function selects({ matchLabels = {}, matchExpressions = [] }: Selector, labels: Labels): boolean {
  return (
    Object.entries(matchLabels).every(([key, value]) => labels[key] === value) &&
    matchExpressions.every(({ key, values }) => values.includes(labels[key] ?? ''))
  );
}

const kustomize = findKustomize();
const rendered = kustomize
  ? OVERLAYS.map((overlay) => ({ overlay, objects: render(kustomize, overlay) }))
  : [];
const expectedSecrets = parseObjects(
  readFileSync(join(KUBERNETES, 'overlays/production/secrets.example.yaml'), 'utf8'),
).map(({ metadata }) => metadata.name);

describe('what is written below deploy/kubernetes', () => {
  const objects = writtenObjects();

  it('fits the published schemas', async () => {
    expect(objects.length).toBeGreaterThan(25);
    expect((await Promise.all(objects.map(schemaProblems))).flat()).toEqual([]);
  });

  it('has no field that the schemas do not know', () => {
    expect(unknownFields(objects)).toEqual([]);
  });

  it('would not pass with a wrong type, a missing field or a misspelt one', async () => {
    const deployment = objects.find(
      ({ kind, metadata }) => kind === 'Deployment' && metadata.name === 'ingest',
    );
    const broken = JSON.parse(JSON.stringify(deployment)) as Workload & { spec: Record<string, unknown> };
    broken.spec.replicas = 'two';
    expect(await schemaProblems(broken)).toHaveLength(1);
    broken.spec.replicas = 2;
    expect(await schemaProblems(broken)).toEqual([]);
    const pod = broken.spec.template.spec as unknown as Record<string, unknown>;
    pod.enableServiceLink = false;
    expect(unknownFields([broken])[0]).toContain('enableServiceLink');
  });

  it('gives the minimal overlay the very configuration of the composition', () => {
    for (const [copy, original] of [
      ['redis.conf', 'redis/redis.conf'],
      ['nats.conf', 'nats/nats.conf'],
    ] as const)
      expect(readFileSync(join(KUBERNETES, 'overlays/minimal', copy), 'utf8')).toBe(
        readFileSync(join(KUBERNETES, '..', original), 'utf8'),
      );
  });

  it('has the rules of deploy/prometheus', () => {
    const rules = parse(readFileSync(join(KUBERNETES, '../prometheus/rules.yaml'), 'utf8')) as {
      groups: unknown;
    };
    const rule = objects.find(({ kind }) => kind === 'PrometheusRule');
    expect(rule && specOf(rule).groups).toEqual(rules.groups);
  });
});

describe.each(rendered)('the overlay $overlay', ({ overlay, objects }) => {
  const workloads = objects.filter(isWorkload);
  const named = (kind: string, name: string): boolean =>
    objects.some((object) => object.kind === kind && object.metadata.name === name);
  const pods = workloads.map((workload) => ({ workload, pod: workload.spec.template.spec }));

  it('renders into objects of its namespace that fit the published schemas', async () => {
    const kinds = ['ConfigMap', 'Service', 'Deployment', 'StatefulSet'];
    kinds.push('NetworkPolicy', 'PodDisruptionBudget');
    expect([...new Set(objects.map(({ kind }) => kind))]).toEqual(expect.arrayContaining(kinds));
    expect((await Promise.all(objects.map(schemaProblems))).flat()).toEqual([]);
    expect(unknownFields(objects)).toEqual([]);
    for (const { kind, metadata } of objects)
      expect(metadata.namespace, `${kind} ${metadata.name}`).toBe('sluice');
  });

  it('runs nothing as root, nothing that may write to its image, nothing with a capability', () => {
    for (const { pod } of pods) {
      expect(pod).toMatchObject({
        enableServiceLinks: false,
        automountServiceAccountToken: false,
        securityContext: { runAsNonRoot: true, seccompProfile: { type: 'RuntimeDefault' } },
      });
      for (const { securityContext, resources } of containersOf(pod)) {
        expect(securityContext).toEqual({
          allowPrivilegeEscalation: false,
          readOnlyRootFilesystem: true,
          capabilities: { drop: ['ALL'] },
        });
        expect(Object.keys(resources.requests).sort()).toEqual(['cpu', 'memory']);
        expect(resources.limits.memory).toBeDefined();
      }
    }
  });

  it('names no ConfigMap, Secret or volume that is not there', () => {
    const secret = (name: string): boolean =>
      named('Secret', name) || (overlay === 'production' && expectedSecrets.includes(name));
    for (const { workload, pod } of pods) {
      const claims = workload.spec.volumeClaimTemplates?.map(({ metadata }) => metadata.name) ?? [];
      const volumes = [...(pod.volumes ?? []).map(({ name }) => name), ...claims];
      for (const { configMap, secret: from } of pod.volumes ?? []) {
        if (configMap) expect(named('ConfigMap', configMap.name), configMap.name).toBe(true);
        if (from) expect(secret(from.secretName), from.secretName).toBe(true);
      }
      for (const { envFrom = [], volumeMounts = [] } of containersOf(pod)) {
        for (const { name } of volumeMounts) expect(volumes).toContain(name);
        for (const { configMapRef, secretRef } of envFrom) {
          if (configMapRef) expect(named('ConfigMap', configMapRef.name), configMapRef.name).toBe(true);
          if (secretRef) expect(secret(secretRef.name), secretRef.name).toBe(true);
        }
      }
    }
  });

  it('selects something with every service, budget and policy, and names only ports that exist', () => {
    for (const object of objects.filter(({ kind }) => /^(Service|PodDisruptionBudget)$/.test(kind))) {
      const spec = specOf(object) as unknown as {
        selector: Labels & Selector;
        ports?: { targetPort?: string }[];
      };
      const selector = object.kind === 'Service' ? { matchLabels: spec.selector } : spec.selector;
      const chosen = workloads.filter((workload) => selects(selector, podLabels(workload)));
      expect(chosen, `${object.kind} ${object.metadata.name}`).toHaveLength(1);
      const ports = chosen.flatMap(({ spec: { template } }) => template.spec.containers[0]?.ports ?? []);
      for (const { targetPort } of spec.ports ?? [])
        if (targetPort) expect(ports.map(({ name }) => name)).toContain(targetPort);
    }
    for (const policy of objects.filter(({ kind }) => kind === 'NetworkPolicy')) {
      const { podSelector } = specOf(policy) as unknown as { podSelector: Selector };
      expect(workloads.some((workload) => selects(podSelector, podLabels(workload)))).toBe(true);
    }
  });

  it('keeps the spool on a disk of its own, which holds what the workers may write', () => {
    const ingest = pods.find(({ workload }) => workload.metadata.name === 'ingest')?.pod;
    const spool = ingest?.volumes?.find(({ name }) => name === 'spool');
    expect(Object.keys(spool ?? {}).sort()).toEqual(['ephemeral', 'name']);
    const { storage = '' } = spool?.ephemeral?.volumeClaimTemplate.spec.resources.requests ?? {};
    const settings = objects.find(({ metadata }) => metadata.name.startsWith('sluice-settings'));
    const { SLUICE_SPOOL_MAX_BYTES: bound } = (settings as unknown as { data: Labels }).data;
    expect(storage).toMatch(/^\d+Gi$/);
    // A file system takes its part.
    expect(0.85 * Number.parseInt(storage, 10) * 1024 ** 3).toBeGreaterThanOrEqual(Number(bound));
  });

  it('makes the streams by a Job of its own; no pod of ingest or processor waits for it', () => {
    const podOf = (name: string) => pods.find(({ workload }) => workload.metadata.name === name)?.pod;
    const [setup] = podOf('setup')?.containers ?? [];
    expect(setup?.command).toEqual([
      'sh',
      '-c',
      'until sluice setup; do [ $? -ne 2 ] || exit 2; sleep 2; done',
    ]);
    for (const name of ['ingest', 'processor']) {
      expect(podOf(name)?.initContainers ?? [], name).toEqual([]);
      const [main] = podOf(name)?.containers ?? [];
      expect(setup?.image).toBe(main?.image);
      const paths = ({ volumeMounts = [] }: Container): string[] =>
        volumeMounts.map(({ mountPath }) => mountPath).filter((path) => /\/(tls|nats|redis)$/.test(path));
      expect(setup && paths(setup)).toEqual(main && paths(main));
    }
  });

  it('says no password in an argument', () => {
    for (const { pod } of pods)
      for (const { name, command = [], args = [] } of containersOf(pod))
        expect([...command, ...args].join(' '), name).not.toMatch(/--requirepass|\$\(\w*(AUTH|PASS)\w*\)/);
  });

  it('labels pods as it labels objects, and spreads and protects what has several', () => {
    for (const { workload, pod } of pods) {
      const { name } = workload.metadata;
      if (workload.kind === 'Deployment')
        expect(podLabels(workload)['app.kubernetes.io/name'], name).toBe('sluice');
      // A Job has one pod.
      if (workload.kind === 'Deployment' || (overlay === 'production' && workload.kind !== 'Job')) {
        const { topologySpreadConstraints = [], affinity } = pod;
        expect([...topologySpreadConstraints, ...(affinity ? [affinity] : [])], name).toHaveLength(2);
        expect(named('PodDisruptionBudget', name), name).toBe(true);
      }
    }
  });

  it('sets what sluice knows', () => {
    const settings = objects.find(
      ({ kind, metadata }) => kind === 'ConfigMap' && metadata.name.startsWith('sluice-settings'),
    ) as unknown as { data: Labels };
    // The files of a pod.
    const files = ['SLUICE_TLS_CA_FILE', 'SLUICE_REDIS_PASSWORD_FILE', 'SLUICE_NATS_CREDS'].filter(
      (name) => name in settings.data,
    );
    expect(files).toHaveLength(overlay === 'production' ? 3 : 0);
    const mounted = Object.fromEntries(files.map((name) => [name, import.meta.filename]));
    const { config } = loadConfig({ ...settings.data, ...mounted, SLUICE_REDIS_URL: 'redis://redis:6379' });
    expect(config.env).toBe('production');
    expect(config.natsUrls).toHaveLength(overlay === 'production' ? 3 : 1);
    expect(config.streamReplicas).toBe(overlay === 'production' ? 3 : 1);
  });
});

describe.each(kustomize ? [{ kustomize }] : [])('the component tcp-migrate-req', ({ kustomize: command }) => {
  it('gives the pods of ingest the kernel setting', async () => {
    const objects = renderWith(command, 'minimal', 'tcp-migrate-req');
    expect((await Promise.all(objects.map(schemaProblems))).flat()).toEqual([]);
    const pods = objects
      .filter(isWorkload)
      .map(({ metadata, spec }) => [metadata.name, spec.template.spec] as const);
    const changed = pods.filter(([, pod]) => 'sysctls' in pod.securityContext);
    expect(changed.map(([name]) => name)).toEqual(['ingest']);
  });
});

describe('the component projects', () => {
  it('has a file of projects that apply takes, where its Job looks for it', () => {
    const objects = writtenObjects();
    const isHere = ({ metadata }: KubernetesObject): boolean => metadata.name === 'projects';
    const files = objects.find((object) => isHere(object) && object.kind === 'ConfigMap') as unknown as {
      data: Labels;
    };
    const [file = '', content = ''] = Object.entries(files.data)[0] ?? [];
    expect(parseProjectFile(content, file).map(({ id }) => id)).toEqual(['1001', '1002']);
    const job = objects.filter(isHere).find(isWorkload)?.spec.template.spec;
    const [container] = job?.containers ?? [];
    const mount = container?.volumeMounts?.find(({ name }) => name === 'projects')?.mountPath;
    expect(container?.args?.slice(0, 4)).toEqual(['project', 'apply', '--file', `${mount}/${file}`]);
    expect(job?.volumes).toContainEqual({ name: 'projects', configMap: { name: 'projects' } });
  });

  it.each(kustomize ? OVERLAYS : [])('renders in the overlay %s with all that it needs', async (overlay) => {
    const objects = renderInside(kustomize ?? [], overlay, 'projects');
    expect((await Promise.all(objects.map(schemaProblems))).flat()).toEqual([]);
    expect(unknownFields(objects)).toEqual([]);
    const workloads = objects.filter(isWorkload);
    const job = workloads.find(({ metadata }) => metadata.name === 'projects') as Workload;
    const model = workloads.find(({ metadata }) => metadata.name === 'setup') as Workload;
    const { containers, volumes = [] } = model.spec.template.spec;
    const [setup] = containers as [Container];
    const { image, envFrom, volumeMounts = [] } = setup;
    const needed = volumes.filter((volume) => volumeMounts.some((mount) => mount.name === volume.name));
    // At NATS it has the rights of commands; kubernetes-parts.test.ts looks at whose seed is where.
    const sameFor = ({ name }: { name: string }): boolean => !name.startsWith('nats-');
    expect(job.spec.template.spec).toMatchObject({
      securityContext: needed.length > 0 ? { fsGroup: 1000 } : {},
      volumes: expect.arrayContaining(needed.filter(sameFor)),
      containers: [{ image, envFrom, volumeMounts: expect.arrayContaining(volumeMounts.filter(sameFor)) }],
    });
    const policies = objects.filter(({ metadata }) => metadata.name.endsWith('-from-projects'));
    expect(policies).toHaveLength(2);
    for (const policy of policies) {
      const { podSelector, ingress } = specOf(policy) as unknown as {
        podSelector: Selector;
        ingress: { from: { podSelector: Selector }[] }[];
      };
      const from = ingress[0]?.from[0]?.podSelector ?? {};
      expect(workloads.filter((workload) => selects(podSelector, podLabels(workload)))).toHaveLength(1);
      expect(workloads.filter((workload) => selects(from, podLabels(workload)))).toEqual([job]);
    }
  });
});

describe.each(kustomize ? [{ kustomize }] : [])('the component runbook-url', ({ kustomize: command }) => {
  it('puts its address before the heading in each alert, and leaves nothing else behind', () => {
    const objects = renderInside(command, 'production', 'runbook-url');
    const plain = render(command, 'production');
    const named = ({ kind, metadata }: KubernetesObject): string => `${kind} ${metadata.name}`;
    expect(objects.map(named).sort()).toEqual(plain.map(named).sort());
    const alertsIn = (all: readonly KubernetesObject[]) => {
      const rule = all.find(({ kind }) => kind === 'PrometheusRule') as KubernetesObject;
      const { groups } = specOf(rule) as unknown as {
        groups: { rules: { alert?: string; annotations: { runbook_url: string } }[] }[];
      };
      return groups.flatMap(({ rules }) => rules).filter(({ alert }) => alert !== undefined);
    };
    const address = writtenObjects().find(
      ({ metadata }) => metadata.name === 'sluice-runbook',
    ) as unknown as {
      data: { address: string };
    };
    const urls = alertsIn(objects).map(({ annotations }) => annotations.runbook_url);
    expect(urls).toEqual(
      alertsIn(plain).map(({ alert }) => `${address.data.address}#${alert?.toLowerCase()}`),
    );
    expect(urls.length).toBeGreaterThan(20);
  });
});

describe.each(kustomize ? [{ kustomize }] : [])('the load test', ({ kustomize: command }) => {
  it('is a Job whose arguments the load tester takes', () => {
    const [job, ...others] = renderFolder(command, 'load');
    expect([job?.kind, others]).toEqual(['Job', []]);
    const [container] = (job as Workload).spec.template.spec.containers;
    const [name, ...args] = container?.args ?? [];
    expect([name, container?.image]).toEqual(['load', 'sluice:local']);
    const { load, thresholds, output } = parseLoadCommand(
      args.map((arg) =>
        arg
          .replace('$(DSN)', 'http://key@ingest.sluice.svc:8080/42')
          .replace('$(JOB_COMPLETION_INDEX)', '0')
          .replace('$(START_AT)', '2026-01-31T12:00:00Z'),
      ),
    );
    expect(load.targets).toEqual([expect.objectContaining({ id: '42', key: 'key' })]);
    expect(load.segments?.length).toBeGreaterThan(1);
    // A part sees a tenth of the load: the merge of all, which the folder's file tells, holds the thresholds.
    expect([thresholds.maxP99Ms, thresholds.maxFailureShare, output.json]).toEqual([
      undefined,
      undefined,
      '-',
    ]);
    const told = readFileSync(join(KUBERNETES, 'load/kustomization.yaml'), 'utf8');
    expect(told).toMatch(/sluice load merge .*--max-p99 250 --max-failure-rate 0\.1%/);
  });

  it('is documented with a DSN of a port that the service has', () => {
    const text = readFileSync(join(KUBERNETES, 'load/kustomization.yaml'), 'utf8');
    const dsn = new URL(/dsn=(http\S+)/.exec(text)?.[1] ?? '');
    const service = renderFolder(command, 'overlays/minimal').find(
      ({ kind, metadata }) => kind === 'Service' && metadata.name === dsn.hostname.split('.')[0],
    ) as KubernetesObject & { spec: { ports: { port: number }[] } };
    expect(service.spec.ports.map(({ port }) => port)).toContain(Number(dsn.port || 80));
  });
});
