/** What outlives `kubectl delete -k`, and the components of the manifests for a gateway and for monitoring. */
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { loadConfig } from '../../src/config.ts';
import {
  findKustomize,
  KUBERNETES,
  type KubernetesObject,
  OVERLAYS,
  parseObjects,
  render,
  renderInside,
  renderOn,
  schemaProblems,
  unknownFields,
  writtenObjects,
} from './kubernetes-objects.ts';
import { ROLES, USERS_CONF } from './nats-roles.ts';

type Labels = Record<string, string>;
type Peer = { namespaceSelector?: { matchLabels: Labels } };
type Fields = {
  persistentVolumeClaimRetentionPolicy?: Labels;
  podSelector: { matchLabels?: Labels };
  ingress: { from?: Peer[]; ports: { port: number }[] }[];
  rules: { backendRefs: { name: string; port: number }[] }[];
  ports: { port: number }[];
};

const specOf = (object: KubernetesObject): Fields => (object as unknown as { spec: Fields }).spec;
const ofKind = (objects: readonly KubernetesObject[], kind: string, name?: string): KubernetesObject[] =>
  objects.filter((object) => object.kind === kind && (name === undefined || object.metadata.name === name));

const kustomize = findKustomize() ?? [];
const overlays = kustomize.length > 0 ? OVERLAYS : [];
const LASTING = ['Namespace', 'PersistentVolumeClaim'];

describe.each(overlays.length > 0 ? ['delete -k'] : [])('%s', () => {
  it.each(overlays)('of the overlay %s leaves the namespace and every volume', (overlay) => {
    const objects = render(kustomize, overlay);
    expect(objects.filter(({ kind }) => LASTING.includes(kind))).toEqual([]);
    const stores = ofKind(objects, 'StatefulSet');
    expect(stores.length).toBeGreaterThan(1);
    for (const store of stores)
      expect(specOf(store).persistentVolumeClaimRetentionPolicy, store.metadata.name).toEqual({
        whenDeleted: 'Retain',
        whenScaled: 'Retain',
      });
  });

  it.each(overlays)('finds all claims of the overlay %s among what is applied apart', (overlay) => {
    const lasting = writtenObjects().filter(({ kind }) => LASTING.includes(kind));
    const names = lasting.map(({ kind, metadata }) => `${kind} ${metadata.namespace ?? ''} ${metadata.name}`);
    expect(names.sort()).toEqual(['Namespace  sluice', 'PersistentVolumeClaim sluice sink']);
    const text = JSON.stringify(render(kustomize, overlay));
    const claims = [...text.matchAll(/"claimName":"([^"]+)"/g)].map(([, name]) => name);
    expect(claims).toEqual(overlay === 'minimal' ? ['sink'] : []);
  });
});

describe.each(overlays.length > 0 ? ['exporters'] : [])('%s', () => {
  it.each(overlays)(
    'of NATS and Redis can be scraped by the namespaces of the monitoring in %s',
    (overlay) => {
      const objects = render(kustomize, overlay);
      for (const [component, port] of [
        ['nats', 7777],
        ['redis', 9121],
      ] as const) {
        const open = ofKind(objects, 'NetworkPolicy').filter(
          (policy) => specOf(policy).podSelector.matchLabels?.['app.kubernetes.io/component'] === component,
        );
        const rules = open.flatMap((policy) => specOf(policy).ingress);
        expect(rules).toContainEqual({
          from: [{ namespaceSelector: { matchLabels: { 'sluice/monitoring': 'true' } } }],
          ports: [{ port }],
        });
        const others = rules.filter(({ from = [] }) =>
          from.some(({ namespaceSelector }) => namespaceSelector),
        );
        expect(others).toHaveLength(1);
      }
    },
  );
});

describe.each(overlays.length > 0 ? ['exporters'] : [])('the component %s', (component) => {
  it('puts an exporter beside each server, as a job that the rules know', async () => {
    const objects = renderInside(kustomize, 'production', component);
    expect((await Promise.all(objects.map(schemaProblems))).flat()).toEqual([]);
    expect(unknownFields(objects)).toEqual([]);
    const [monitor] = ofKind(objects, 'ServiceMonitor') as [KubernetesObject];
    const { selector, endpoints } = specOf(monitor) as unknown as {
      selector: { matchLabels: Labels };
      endpoints: { port: string }[];
    };
    const rules = readFileSync(join(KUBERNETES, '../prometheus/rules.yaml'), 'utf8');
    for (const [server, port] of [
      ['nats', 7777],
      ['redis', 9121],
    ] as const) {
      const [set] = ofKind(objects, 'StatefulSet', server) as [KubernetesObject];
      const { template } = specOf(set) as unknown as {
        template: { spec: { containers: { name: string; ports: object[]; securityContext: object }[] } };
      };
      const { containers } = template.spec;
      expect(containers.map(({ name }) => name)).toEqual([server, 'exporter']);
      expect(containers[1]?.ports).toEqual([{ name: 'exporter', containerPort: port }]);
      expect(containers[1]?.securityContext).toEqual(containers[0]?.securityContext);
      const [service] = ofKind(objects, 'Service', `${server}-exporter`) as [KubernetesObject];
      expect(service.metadata.labels).toMatchObject({
        ...selector.matchLabels,
        'app.kubernetes.io/component': server,
      });
      expect(specOf(service).ports).toEqual([{ name: 'exporter', port }]);
      expect(rules).toContain(`up{job="sluice-${server}"}`);
    }
    expect(endpoints.map((endpoint) => endpoint.port)).toEqual(['admin', 'exporter']);
  });
});

describe.each(overlays.length > 0 ? ['production'] : [])(
  "Secrets of an overlay of one's own on %s",
  (overlay) => {
    it('have another name when they change, so that what reads them starts anew', () => {
      const readBy = (sink: string): Labels => {
        const objects = renderOn(kustomize, overlay, {
          namespace: 'sluice',
          secretGenerator: [{ name: 'sluice-sink', literals: [`SLUICE_SINK=${sink}`] }],
        });
        return Object.fromEntries(
          ofKind(objects, 'Deployment').map((object) => [
            object.metadata.name,
            /"name":"(sluice-sink[^"]*)"/.exec(JSON.stringify(object))?.[1] ?? '',
          ]),
        );
      };
      const [one, other] = [readBy('postgres://a/one'), readBy('postgres://a/other')];
      expect(one).toEqual({ ingest: '', processor: expect.stringMatching(/^sluice-sink-\w{10}$/) });
      expect(other.processor).not.toBe(one.processor);
    });
  },
);

describe.each(overlays)('the servers of the overlay %s', (overlay) => {
  type Server = {
    env?: { name: string; value?: string }[];
    resources: { limits: { memory: string } };
    startupProbe?: { periodSeconds: number; failureThreshold: number };
  };
  const server = (name: string): Server => {
    const [set] = ofKind(render(kustomize, overlay), 'StatefulSet', name) as [KubernetesObject];
    return (specOf(set) as unknown as { template: { spec: { containers: [Server] } } }).template.spec
      .containers[0];
  };
  const bytes = (text: string): number => {
    const [, count, unit = ''] = /^(\d+)(\w)/.exec(text) ?? [];
    return Number(count) * 1024 ** (['k', 'm', 'g'].indexOf(unit.toLowerCase()) + 1);
  };

  it('have room for what they may hold: Go collects early, and Redis may copy all while it rewrites its log', () => {
    const { env = [], resources } = server('nats');
    const soft = bytes(env.find(({ name }) => name === 'GOMEMLIMIT')?.value ?? '');
    expect(soft).toBeGreaterThan(0);
    expect(soft).toBeLessThanOrEqual(0.8 * bytes(resources.limits.memory));
    const folder = overlay === 'production' ? overlay : 'minimal';
    const conf = readFileSync(join(KUBERNETES, 'overlays', folder, 'redis.conf'), 'utf8');
    const most = bytes(/^maxmemory (\S+)$/m.exec(conf)?.[1] ?? '');
    expect(most).toBeGreaterThan(0);
    expect(2 * most).toBeLessThanOrEqual(bytes(server('redis').resources.limits.memory));
  });

  it('give a NATS that reads full streams again a quarter of an hour', () => {
    const { periodSeconds = 0, failureThreshold = 0 } = server('nats').startupProbe ?? {};
    expect(periodSeconds * failureThreshold).toBeGreaterThanOrEqual(900);
  });
});

describe('the component gateway', () => {
  const written = (): KubernetesObject => ofKind(writtenObjects(), 'HTTPRoute')[0] as KubernetesObject;

  it.each(overlays)(
    'leads both paths to a port of ingest in the overlay %s, beside what is there',
    async (overlay) => {
      const objects = renderInside(kustomize, overlay, 'gateway');
      expect((await Promise.all(objects.map(schemaProblems))).flat()).toEqual([]);
      const [route] = ofKind(objects, 'HTTPRoute') as [KubernetesObject];
      expect(route.metadata.namespace).toBe('sluice');
      const paths = JSON.stringify(route).match(/"value":"[^"]+"/g);
      expect(paths).toEqual(['"value":"/api"', '"value":"/heartbeat"']);
      const backends = specOf(route).rules.flatMap(({ backendRefs }) => backendRefs);
      expect(backends).toHaveLength(1);
      for (const { name, port } of backends) {
        const [service] = ofKind(objects, 'Service', name) as [KubernetesObject];
        expect(specOf(service).ports.map((one) => one.port)).toContain(port);
      }
      expect(ofKind(objects, 'Ingress')).toEqual([]);
    },
  );

  it('would not pass with a misspelt field or another type', async () => {
    const route = structuredClone(written()) as unknown as { spec: { rules: Record<string, unknown>[] } };
    expect(await schemaProblems(route as unknown as KubernetesObject)).toEqual([]);
    (route.spec.rules[0] as Record<string, unknown>).timeout = { request: '190s' };
    expect(await schemaProblems(route as unknown as KubernetesObject)).toHaveLength(1);
  });
});

describe('the component monitoring', () => {
  it('has the dashboard of deploy/grafana, which a sidecar of Grafana takes by its label', () => {
    const copy = join(KUBERNETES, 'components/monitoring/sluice.json');
    const original = join(KUBERNETES, '../grafana/dashboards/sluice.json');
    expect(readFileSync(copy, 'utf8')).toBe(readFileSync(original, 'utf8'));
    if (kustomize.length === 0) return;
    const [map] = ofKind(render(kustomize, 'production'), 'ConfigMap', 'sluice-dashboard');
    expect(map?.metadata.labels).toMatchObject({ grafana_dashboard: '1' });
    const { data } = map as unknown as { data: Labels };
    expect(data).toEqual({ 'sluice.json': readFileSync(original, 'utf8') });
    // `kubectl apply` keeps the whole object in an annotation, which has this bound.
    expect(JSON.stringify(map).length).toBeLessThan(262_144);
  });
});

describe.each(overlays.length > 0 ? ['monitoring-labels'] : [])('the component %s', (component) => {
  it('labels the monitor and the rules, and leaves nothing else behind', () => {
    const objects = renderInside(kustomize, 'production', component);
    const plain = render(kustomize, 'production');
    const named = ({ kind, metadata }: KubernetesObject): string => `${kind} ${metadata.name}`;
    expect(objects.map(named).sort()).toEqual(plain.map(named).sort());
    const changed = objects.filter(({ metadata }) => metadata.labels?.release === 'kube-prometheus-stack');
    expect(changed.map(named).sort()).toEqual(['PrometheusRule sluice', 'ServiceMonitor sluice']);
    expect(unknownFields(changed)).toEqual([]);
  });
});

type Mounted = { containers: Mounts[]; initContainers?: Mounts[]; volumes: Volume[] };
type Mounts = { name: string; volumeMounts: { name: string; mountPath: string }[] };
type Volume = { name: string; secret?: { secretName: string; items?: { key: string; path: string }[] } };

describe.each(overlays.length > 0 ? ['production'] : [])('the overlay %s', (overlay) => {
  /** Whose seed a container sees, by folder. */
  function seeds(pod: Mounted, { volumeMounts }: Mounts): Labels {
    const found: Labels = {};
    for (const { name, mountPath } of volumeMounts) {
      const secret = pod.volumes.find((volume) => volume.name === name)?.secret;
      if (secret?.secretName !== 'sluice-nats-users') continue;
      const { items = [{ key: 'all of them', path: '' }] } = secret;
      found[`${mountPath}/${items.map(({ path }) => path)}`] = items.map(({ key }) => key).join();
    }
    return found;
  }

  it('shows to each container the seed of its role at NATS, where its settings look', () => {
    const objects = renderInside(kustomize, overlay, 'projects');
    const settings = objects.find(({ metadata }) => metadata.name.startsWith('sluice-settings'));
    const { SLUICE_NATS_CREDS: creds = '' } = (settings as unknown as { data: Labels }).data;
    const shown = objects
      .filter(({ kind }) => ['Deployment', 'Job'].includes(kind))
      .flatMap((object) => {
        const pod = (specOf(object) as unknown as { template: { spec: Mounted } }).template.spec;
        const { containers, initContainers = [] } = pod;
        return [...initContainers, ...containers].map((container) => [
          `${object.metadata.name}/${container.name}`,
          seeds(pod, container),
        ]);
      });
    expect(Object.fromEntries(shown)).toEqual({
      'ingest/ingest': { [creds]: 'ingest' },
      'setup/setup': { [creds]: 'setup' },
      'processor/processor': { [creds]: 'processor', '/etc/sluice/nats-cli/user.creds': 'cli' },
      'projects/projects': { [creds]: 'cli' },
    });
  });

  it('describes a Secret with the seeds of exactly the roles that deploy/nats/users.conf has', () => {
    const text = readFileSync(join(KUBERNETES, 'overlays', overlay, 'secrets.example.yaml'), 'utf8');
    const secret = parseObjects(text).find(({ metadata }) => metadata.name === 'sluice-nats-users');
    const { stringData } = secret as unknown as { stringData: Labels };
    // No pod makes backups or asks as `sys`: those seeds stay with the operator.
    const ofOperator: readonly string[] = ['backup', 'sys'];
    expect(Object.keys(stringData).sort()).toEqual(ROLES.filter((role) => !ofOperator.includes(role)).sort());
  });
});

it('the example Secret and users.conf fit: the management API is off, which needs more than ingest may', () => {
  const text = readFileSync(join(KUBERNETES, 'overlays/production/secrets.example.yaml'), 'utf8');
  const secret = parseObjects(text).find(({ metadata }) => metadata.name === 'sluice-credentials');
  const { stringData } = secret as unknown as { stringData: Labels };
  const user = /nkey: \$INGEST_KEY, permissions: \$(\w+)/.exec(readFileSync(USERS_CONF, 'utf8'))?.[1];
  expect([Object.keys(stringData), user]).toEqual([['SLUICE_REDIS_URL'], 'INGEST_RIGHTS']);
  const [, token = ''] = /^ {2}# SLUICE_ADMIN_TOKEN: (\S+)$/m.exec(text) ?? [];
  // Whoever takes the comment away and reads no further has no token that everybody knows.
  expect(() => loadConfig({ SLUICE_ADMIN_TOKEN: token })).toThrow('a token of fewer than');
});

it('commands may do at NATS all that ingest may, so that an ingest with the management API can have their rights', () => {
  const conf = readFileSync(USERS_CONF, 'utf8').replace(/^\s*#.*$/gm, '');
  const rights = (name: string, verb: string): string[] => {
    const block = new RegExp(`^${name}: \\{(.*?)^\\}`, 'ms').exec(conf)?.[1] ?? '';
    const list = new RegExp(`${verb}: \\[(.*?)\\]`, 's').exec(block)?.[1] ?? '';
    return [...list.matchAll(/"([^"]+)"/g)].map(([, subject]) => subject as string);
  };
  const covers = (wide: string, narrow: string): boolean => {
    const open = wide.endsWith('.>');
    const [wanted, tokens] = [wide.split('.').slice(0, open ? -1 : undefined), narrow.split('.')];
    if (open ? tokens.length <= wanted.length : tokens.length !== wanted.length) return false;
    return wanted.every((token, at) => token === tokens[at] || (token === '*' && tokens[at] !== '>'));
  };
  for (const verb of ['publish', 'subscribe']) {
    const [ingest, cli] = [rights('INGEST_RIGHTS', verb), rights('CLI_RIGHTS', verb)];
    expect(ingest.length).toBeGreaterThan(1);
    expect(ingest.filter((subject) => !cli.some((wide) => covers(wide, subject)))).toEqual([]);
  }
});

it('docs/kubernetes.md has each component in its table', () => {
  const document = readFileSync(join(KUBERNETES, '../../docs/kubernetes.md'), 'utf8');
  const [section = ''] = (document.split('\n## Components\n')[1] ?? '').split('\n## ');
  const named = section
    .split('\n')
    .flatMap((line) => (/^\| (`.*?) \|/.exec(line)?.[1] ?? '').match(/(?<=`)[a-z-]+(?=`)/g) ?? []);
  expect(named.sort()).toEqual(readdirSync(join(KUBERNETES, 'components')).sort());
});
