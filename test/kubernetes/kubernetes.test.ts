/** What a real API server, its controllers and its scheduler say to the overlays and to the chart. No container runs there. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, describe, expect, it } from 'vitest';
import {
  CHART,
  KUBERNETES,
  type KubernetesObject,
  OVERLAYS,
  parseObjects,
  render,
  renderChart,
  renderInside,
} from '../deploy/kubernetes-objects.ts';
import { temporaryFolder } from '../support/servers.ts';
import {
  applyFolder,
  applyStrictly,
  applyText,
  get,
  helm,
  kubectl,
  LASTING,
  makeNamespace,
  manifestsOfRelease,
  names,
  ready,
  removeNamespaces,
  run,
  tryHelm,
  tryKubectl,
} from './kubectl.ts';

type Pod = {
  metadata: { name: string; uid: string; labels: Record<string, string> };
  spec: { nodeName?: string; initContainers?: object[]; containers: { image: string }[] };
  status: { phase: string };
};
type Fields = Record<string, unknown>;
type Claim = KubernetesObject & {
  metadata: { uid: string };
  spec: { volumeName: string };
  status: { phase: string };
};

const KUSTOMIZE = ['kubectl', 'kustomize'];
const VALUES = join(CHART, '../values');
const DOCUMENT = join(KUBERNETES, '../../docs/kubernetes.md');
/** Files of deploy/helm/values; `cell` comes behind the file that all cells share. */
const VALUES_OF = [
  ['minimal'],
  ['production'],
  ['external'],
  ['sinks'],
  ['strict'],
  ['production', 'cell'],
] as const;
const secrets = parseObjects(
  readFileSync(join(KUBERNETES, 'overlays/production/secrets.example.yaml'), 'utf8'),
);

const pods = (namespace: string, component: string): Pod[] =>
  get<{ items: Pod[] }>('pods', '-n', namespace, '-l', `app.kubernetes.io/component=${component}`).items;
/** Claims of servers and sinks, with the volume of each: not those of spools, which go with their pods. */
const claims = (namespace: string): string[] =>
  get<{ items: Claim[] }>('pvc', '-n', namespace)
    .items.filter(({ metadata }) => /^(data-|sink$)/.test(metadata.name))
    .map(({ metadata, spec }) => `${metadata.name} ${spec.volumeName}`)
    .sort();
/** The objects that a section of the document has, as texts. */
function objectsOf(heading: string): string[] {
  const [, section = ''] = readFileSync(DOCUMENT, 'utf8').split(`\n## ${heading}\n`);
  const blocks = section.split('\n## ')[0]?.matchAll(/^( *)```yaml\n(.*?)^ *```/gms) ?? [];
  return [...blocks].map(([, indent = '', text = '']) => text.replaceAll(new RegExp(`^${indent}`, 'gm'), ''));
}
const sink = (): KubernetesObject[] => parseObjects(readFileSync(join(LASTING, 'sink.yaml'), 'utf8'));

afterEach(() => {
  // A test that failed may have left a node that takes no pods.
  kubectl('uncordon', ...names('', 'nodes'));
  removeNamespaces(...names('', 'namespaces').filter((one) => !/^(default|kube-)/.test(one)));
});

describe('a server-side apply, where each field must be known', () => {
  it.each(OVERLAYS)('takes the overlay %s, and its pods become ready', async (overlay) => {
    makeNamespace('tried');
    const objects = [...render(KUSTOMIZE, overlay), ...sink()];
    if (overlay === 'production') applyStrictly(secrets, 'tried');
    expect(applyStrictly(objects, 'tried')).toEqual([]);
    await ready('tried');
    // A second apply of the same changes nothing.
    const generation = (): string =>
      kubectl('get', 'deploy,sts', '-n', 'tried', '-o', 'jsonpath={..generation}');
    const before = generation();
    applyStrictly(objects, 'tried');
    expect(generation()).toBe(before);
  });

  it('takes each component', () => {
    makeNamespace('tried');
    const components = readdirSync(join(KUBERNETES, 'components'));
    expect(components.length).toBeGreaterThan(8);
    // What the comment of the component says: this namespace would not take its pods.
    const told = /^Warning: would violate PodSecurity "restricted:latest": forbidden sysctls/;
    for (const component of components)
      expect(applyStrictly(renderInside(KUSTOMIZE, 'production', component), 'tried'), component).toEqual(
        component === 'tcp-migrate-req' ? [expect.stringMatching(told)] : [],
      );
  });

  it.each(VALUES_OF.map((files) => [files.join(' and '), files] as const))(
    'takes the chart with the values %s',
    async (title, files) => {
      makeNamespace('tried');
      const objects = renderChart('helm', ...files.flatMap((file) => ['-f', join(VALUES, `${file}.yaml`)]));
      expect(applyStrictly(objects, 'tried')).toEqual([]);
      if (['minimal', 'sinks'].includes(title)) await ready('tried');
    },
  );
});

const release = manifestsOfRelease();
if (!release) console.warn('LEFT OUT: upgrades from 0.2.0, whose commit this checkout does not have');

describe.each(release ? [{ release }] : [])('from the manifests of 0.2.0', ({ release: old }) => {
  it('apply -k of this version rolls the overlay minimal, keeps its volumes, and goes back', async () => {
    applyFolder(old, 'minimal');
    await ready('sluice');
    const before = claims('sluice');
    expect(before.map((claim) => claim.split(' ')[0])).toEqual(['data-nats-0', 'data-redis-0', 'sink']);
    kubectl('apply', '-f', LASTING);
    applyFolder(KUBERNETES, 'minimal');
    await ready('sluice');
    expect(claims('sluice')).toEqual(before);
    for (const component of ['ingest', 'processor'])
      for (const { spec } of pods('sluice', component)) expect(spec.initContainers ?? []).toEqual([]);
    applyFolder(old, 'minimal');
    await ready('sluice');
    expect(claims('sluice')).toEqual(before);
  });

  it('apply -k of this version rolls the overlay production and keeps its volumes', async () => {
    kubectl('apply', '-f', join(LASTING, 'namespace.yaml'));
    applyStrictly(secrets, 'sluice');
    applyFolder(old, 'production');
    await ready('sluice');
    const before = claims('sluice');
    expect(before).toHaveLength(4);
    applyFolder(KUBERNETES, 'production');
    await ready('sluice');
    expect(claims('sluice')).toEqual(before);
    applyFolder(old, 'production');
    await ready('sluice');
    expect(claims('sluice')).toEqual(before);
  });
});

describe('what is there', () => {
  it.each([
    ['minimal', 3],
    ['production', 4],
  ] as const)(
    'outlives delete -k of %s: the namespace and the volumes, which the next apply finds again',
    async (overlay, count) => {
      kubectl('apply', '-f', overlay === 'minimal' ? LASTING : join(LASTING, 'namespace.yaml'));
      if (overlay === 'production') applyStrictly(secrets, 'sluice');
      applyFolder(KUBERNETES, overlay);
      await ready('sluice');
      const before = claims('sluice');
      expect(before).toHaveLength(count);
      kubectl('delete', '-k', join(KUBERNETES, 'overlays', overlay), '--ignore-not-found', '--timeout=120s');
      await expect.poll(() => names('sluice', 'pods')).toEqual([]);
      expect(names('sluice', 'deploy,sts,svc,pdb,netpol,job,hpa,scaledobject,httproute')).toEqual([]);
      // The spools went with their pods.
      expect(names('sluice', 'pvc')).toEqual(before.map((claim) => claim.split(' ')[0]));
      expect(claims('sluice')).toEqual(before);
      applyFolder(KUBERNETES, overlay);
      await ready('sluice');
      expect(claims('sluice')).toEqual(before);
    },
  );

  it('refuses production over minimal, and runs beside it in a namespace of its own', async () => {
    kubectl('apply', '-f', LASTING);
    applyFolder(KUBERNETES, 'minimal');
    await ready('sluice');
    const args = ['apply', '--dry-run=server', '-k', join(KUBERNETES, 'overlays/production')];
    const { status, err } = tryKubectl(...args);
    expect([status, err]).toEqual([1, expect.stringMatching(/StatefulSet\.apps "nats" is invalid/)]);
    expect(err).toMatch(/StatefulSet\.apps "redis" is invalid/);
    makeNamespace('sluice-large');
    applyStrictly([...render(KUSTOMIZE, 'production'), ...secrets], 'sluice-large');
    await Promise.all([ready('sluice'), ready('sluice-large')]);
    // The objects that the way from one to the other adds.
    const written = objectsOf('Growing from minimal to production');
    expect(written).toHaveLength(2);
    for (const text of written) expect(applyText(text, '--validate=strict').err).toBe('');
  });
});

describe('production', () => {
  async function start(): Promise<void> {
    makeNamespace('tried');
    applyStrictly([...render(KUSTOMIZE, 'production'), ...secrets], 'tried');
    await ready('tried');
  }
  const nodes = (component: string): string[] =>
    pods('tried', component).map(({ spec }) => spec.nodeName ?? 'none');

  it('spreads what is scaled over the zones', async () => {
    await start();
    kubectl('-n', 'tried', 'scale', 'deployment/ingest', '--replicas=6');
    await ready('tried');
    expect(nodes('ingest').sort()).toEqual(['node-1', 'node-1', 'node-2', 'node-2', 'node-3', 'node-3']);
    expect(nodes('nats').sort()).toEqual(['node-1', 'node-2', 'node-3']);
    // The pods of the older version leave one by one, and those of the newer are as even.
    kubectl('-n', 'tried', 'rollout', 'restart', 'deployment/ingest');
    await ready('tried');
    await expect
      .poll(() => nodes('ingest').sort())
      .toEqual(['node-1', 'node-1', 'node-2', 'node-2', 'node-3', 'node-3']);
  });

  it('lets a node be drained, and no second server of NATS go before the first is back', async () => {
    await start();
    const server = (name: string): string | undefined =>
      pods('tried', 'nats').find(({ metadata }) => metadata.name === name)?.spec.nodeName;
    const [first, second] = [server('nats-0') ?? '', server('nats-1') ?? ''];
    kubectl('drain', first, '--ignore-daemonsets', '--delete-emptydir-data', '--timeout=90s');
    await expect
      .poll(() => pods('tried', 'nats').find(({ metadata }) => metadata.name === 'nats-0')?.status.phase)
      .toBe('Pending');
    const drain = tryKubectl(
      'drain',
      second,
      '--ignore-daemonsets',
      '--delete-emptydir-data',
      '--timeout=10s',
    );
    expect([drain.status, drain.err]).toEqual([1, expect.stringContaining('disruption budget')]);
    expect(server('nats-1')).toBe(second);
    kubectl('uncordon', first, second);
    await ready('tried');
    expect(nodes('nats').sort()).toEqual(['node-1', 'node-2', 'node-3']);
  });

  it('outlives a zone: two servers of NATS stay, and what has no volume moves; Redis and the third server return with the zone', async () => {
    await start();
    const before = claims('tried');
    const [lost = ''] = nodes('redis');
    const { metadata, spec, status } = get<KubernetesObject & { spec: object; status: Fields }>('node', lost);
    kubectl('delete', 'node', lost);
    const readyPods = (): Record<string, number> => {
      const { items } = get<{ items: (KubernetesObject & { status: { readyReplicas?: number } })[] }>(
        'deploy,sts',
        '-n',
        'tried',
      );
      return Object.fromEntries(items.map((item) => [item.metadata.name, item.status.readyReplicas ?? 0]));
    };
    await expect
      .poll(readyPods, { timeout: 150_000, interval: 1000 })
      .toEqual({ ingest: 3, nats: 2, processor: 1, redis: 0 });
    expect(nodes('ingest')).not.toContain(lost);
    const { name, labels } = metadata;
    const { allocatable, capacity } = status;
    applyText(
      JSON.stringify({
        apiVersion: 'v1',
        kind: 'Node',
        metadata: { name, labels },
        spec,
        status: { allocatable, capacity },
      }),
    );
    await ready('tried');
    expect(nodes('nats').sort()).toEqual(['node-1', 'node-2', 'node-3']);
    expect(nodes('redis')).toEqual([lost]);
    expect(claims('tried')).toEqual(before);
  });

  it('takes three Redis with sentinels in the place of the one that runs, one in each zone, and keeps its volume', async () => {
    await start();
    const before = claims('tried');
    applyStrictly(renderInside(KUSTOMIZE, 'production', 'sentinel'), 'tried');
    await ready('tried');
    expect(nodes('redis').sort()).toEqual(['node-1', 'node-2', 'node-3']);
    expect(claims('tried')).toEqual(expect.arrayContaining(before));
  });

  it('gives NATS larger volumes by the steps of docs/kubernetes.md, and its pods run on', async () => {
    await start();
    const before = [pods('tried', 'nats').map(({ metadata }) => metadata.uid), claims('tried')];
    const larger = render(KUSTOMIZE, 'production').map((object) =>
      object.kind === 'StatefulSet' && object.metadata.name === 'nats'
        ? (JSON.parse(
            JSON.stringify(object).replace('"storage":"110Gi"', '"storage":"220Gi"'),
          ) as typeof object)
        : object,
    );
    expect(() => applyStrictly(larger, 'tried')).toThrow(/StatefulSet "nats" is invalid/);
    const [, step = ''] = /^(for at in 0 1 2; .*)$/m.exec(readFileSync(DOCUMENT, 'utf8')) ?? [];
    const [, remove = ''] =
      /^(kubectl .*delete statefulset nats .*?) +#/m.exec(readFileSync(DOCUMENT, 'utf8')) ?? [];
    for (const line of [step, remove]) {
      const { status, err } = run('sh', ['-c', line.replaceAll('-n sluice', '-n tried')]);
      expect([status, err], line).toEqual([0, '']);
    }
    applyStrictly(larger, 'tried');
    await ready('tried');
    expect([pods('tried', 'nats').map(({ metadata }) => metadata.uid), claims('tried')]).toEqual(before);
    const sizes = get<{ items: { spec: { resources: { requests: { storage: string } } } }[] }>(
      'pvc',
      '-n',
      'tried',
      '-l',
      'app.kubernetes.io/component=nats',
    ).items.map(({ spec }) => spec.resources.requests.storage);
    expect(sizes).toEqual(['220Gi', '220Gi', '220Gi']);
  });
});

describe('ten cells', () => {
  const CELLS = ['oslo', 'paris', ...Array.from({ length: 8 }, (_, at) => `c-${at + 3}`)];
  const ROUTER = join(KUBERNETES, '../proxies/cells.cfg');
  function readyEndpoints(namespace: string, service: string): number {
    type Slice = { endpoints?: { conditions: { ready: boolean } }[] };
    const ofService = ['-l', `kubernetes.io/service-name=${service}`];
    return get<{ items: Slice[] }>('endpointslices', '-n', namespace, ...ofService)
      .items.flatMap(({ endpoints = [] }) => endpoints)
      .filter(({ conditions }) => conditions.ready).length;
  }

  it('are ten releases whose files differ by a host; the router finds each, a project may move, and one goes without the others', async () => {
    const folder = temporaryFolder('ten-cells');
    for (const cell of CELLS) {
      makeNamespace(cell);
      applyStrictly(secrets, cell);
      const file = join(folder, `${cell}.yaml`);
      writeFileSync(file, `host: ${cell}.sluice.example.com\n`);
      const values = ['-f', join(VALUES, 'production.yaml'), '-f', file];
      helm('upgrade', '--install', cell, CHART, '-n', cell, ...values);
    }
    rmSync(folder, { recursive: true });
    for (const cell of CELLS) await ready(cell);
    const routes = get<{ items: { spec: { hostnames: string[] } }[] }>('httproutes', '-A').items;
    expect(routes.flatMap(({ spec }) => spec.hostnames).sort()).toEqual(
      CELLS.map((cell) => `${cell}.sluice.example.com`).sort(),
    );
    // Each Service that the router names has the pods of its cell.
    const [, address = ''] = /^ {2}server paris (\S+)/m.exec(readFileSync(ROUTER, 'utf8')) ?? [];
    for (const cell of CELLS) {
      const [, service = '', namespace = '', port] =
        /^(\w+)\.([\w-]+)\.svc:(\d+)$/.exec(address.replace('paris', cell)) ?? [];
      const { spec } = get<{ spec: { ports: { port: number }[] } }>('service', service, '-n', namespace);
      expect(spec.ports.map((one) => one.port)).toContain(Number(port));
      // The autoscaler asks for one in each zone.
      await expect.poll(() => readyEndpoints(namespace, service), { message: cell }).toBe(3);
    }
    const [policy = ''] = objectsOf('Growing from minimal to production');
    const moving = policy
      .replace('namespace: sluice }', 'namespace: paris }')
      .replace('sluice-large', 'oslo');
    expect(applyText(moving, '--validate=strict').out).toContain('from-the-new-cell created');
    const uids = (): string[] =>
      CELLS.slice(1).flatMap((cell) => pods(cell, 'nats').map(({ metadata }) => metadata.uid));
    const before = uids();
    helm('uninstall', 'oslo', '-n', 'oslo', '--wait');
    expect(uids()).toEqual(before);
    expect(names('paris', 'deployments')).toEqual(['ingest', 'processor']);
  });
});

it('the gateway of docs/kubernetes.md fits the CRDs, and the route of production names it', async () => {
  makeNamespace('gateways');
  const [text = ''] = objectsOf('Gateways');
  expect(applyText(text, '--validate=strict').err).toBe('');
  const { metadata } = parseObjects(text)[0] as KubernetesObject;
  const route = render(KUSTOMIZE, 'production').find(({ kind }) => kind === 'HTTPRoute');
  expect(route).toMatchObject({
    spec: { parentRefs: [{ name: metadata.name, namespace: metadata.namespace }] },
  });
});

describe('the chart', () => {
  const install = (...args: string[]): string[] => [
    'upgrade',
    '--install',
    'sluice',
    CHART,
    '-n',
    'tried',
    '-f',
    join(VALUES, 'minimal.yaml'),
    ...args,
  ];

  it('is installed, rolls what a changed value concerns, goes back, and leaves the volumes', async () => {
    makeNamespace('tried');
    helm(...install());
    await ready('tried');
    const before = claims('tried');
    expect(before).toHaveLength(3);
    const uids = (component: string): string[] =>
      pods('tried', component).map(({ metadata }) => metadata.uid);
    const [ingest, nats] = [uids('ingest'), uids('nats')];
    helm(...install('--set', 'settings.SLUICE_LOG_LEVEL=debug,ingest.replicas=2'));
    await ready('tried');
    expect(uids('ingest')).toHaveLength(2);
    expect(uids('ingest').filter((uid) => ingest.includes(uid))).toEqual([]);
    expect(uids('nats')).toEqual(nats);
    helm('rollback', 'sluice', '1', '-n', 'tried');
    await ready('tried');
    expect(uids('ingest')).toHaveLength(1);
    helm('uninstall', 'sluice', '-n', 'tried', '--wait');
    expect(names('tried', 'deploy,sts,svc,pdb,netpol,job,secret')).toEqual([]);
    expect(claims('tried')).toEqual(before);
    helm(...install());
    await ready('tried');
    expect(claims('tried')).toEqual(before);
  });

  it('starts those pods anew that read a Secret of ours which changed', async () => {
    makeNamespace('tried');
    applyStrictly(secrets, 'tried');
    const upgrade = (): string => helm(...install('-f', join(VALUES, 'production.yaml')));
    const uids = (): string[][] =>
      ['ingest', 'processor', 'nats', 'redis'].map((component) =>
        pods('tried', component).map(({ metadata }) => metadata.uid),
      );
    upgrade();
    // The autoscaler asks for one in each zone.
    await expect.poll(() => pods('tried', 'ingest')).toHaveLength(3);
    await ready('tried');
    const before = uids();
    upgrade();
    await ready('tried');
    expect(uids()).toEqual(before);
    const sink = { stringData: { SLUICE_SINK: 'postgres://sluice:other@postgres.example.com/sluice' } };
    kubectl('-n', 'tried', 'patch', 'secret', 'sluice-sink', '-p', JSON.stringify(sink));
    upgrade();
    await ready('tried');
    const after = uids();
    expect(after.map((all, at) => all.some((uid) => before[at]?.includes(uid)))).toEqual([
      true,
      false,
      true,
      true,
    ]);
  });

  it('has a test that the namespace takes', async () => {
    makeNamespace('tried');
    helm(...install());
    await ready('tried');
    const dry = ['install', 'other', CHART, '-n', 'default', '--dry-run=client'];
    const notes = (file: string): string =>
      helm(...dry, '-f', join(VALUES, `${file}.yaml`)).split('\nNOTES:\n')[1] ?? '';
    // The command of the notes names a file that the pod has.
    expect(notes('production')).toContain('SLUICE_NATS_CREDS=/etc/sluice/nats-cli/user.creds sluice doctor');
    expect(notes('external')).toContain('deploy/processor -- sluice doctor');
    const child = spawn('helm', ['test', 'sluice', '-n', 'tried', '--timeout', '60s'], { stdio: 'ignore' });
    const ended = once(child, 'exit');
    await expect.poll(() => tryKubectl('-n', 'tried', 'get', 'pod', 'test').status).toBe(0);
    // Nothing runs here: the pod is told how it ended.
    kubectl(
      '-n',
      'tried',
      'patch',
      'pod',
      'test',
      '--subresource=status',
      '-p',
      '{"status":{"phase":"Succeeded"}}',
    );
    expect(await ended).toEqual([0, null]);
  });

  it('takes over what kustomize applied, without a new server of NATS or Redis', async () => {
    makeNamespace('tried');
    applyStrictly([...render(KUSTOMIZE, 'minimal'), ...sink()], 'tried');
    await ready('tried');
    const before = claims('tried');
    helm(...install('--take-ownership'));
    await ready('tried');
    expect(claims('tried')).toEqual(before);
  });

  it('refuses another profile over a running one, before it changes anything', async () => {
    makeNamespace('tried');
    helm(...install());
    await ready('tried');
    const settings = kubectl('-n', 'tried', 'get', 'configmap', 'sluice-settings', '-o', 'jsonpath={.data}');
    const { status, err } = tryHelm(...install('--set', 'profile=production'));
    expect([status, err]).toEqual([1, expect.stringContaining('a namespace of its own')]);
    expect(kubectl('-n', 'tried', 'get', 'configmap', 'sluice-settings', '-o', 'jsonpath={.data}')).toBe(
      settings,
    );
  });
});
