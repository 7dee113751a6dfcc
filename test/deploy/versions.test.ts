/** The images of deploy/ against the versions that the tests run on. */
import { spawnSync } from 'node:child_process';
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { ensureServers } from '../../src/commands/dev/install.ts';
import { hostEnvironment } from '../../src/config.ts';
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

/** Their content can change under the same name; all else is pinned by a hash. */
const FLOATING = [
  ...['20-bookworm', '22-trixie', '24-trixie', '26-bookworm', '26-trixie'].map((base) => `node:${base}-slim`),
  'clickhouse/clickhouse-server',
  'grafana/grafana',
  'nats',
  'postgres',
  'prom/prometheus',
  'redis',
];

it('names all that floats: images by tag', () => {
  const [, base = ''] = /^ARG NODE_IMAGE=(.*)$/m.exec(readFileSync(join(ROOT, 'Dockerfile'), 'utf8')) ?? [];
  const bases = workflows.flatMap((text) => /base: \[(.*)\]/.exec(text)?.[1]?.split(', ') ?? []);
  const packaged = readFileSync(join(ROOT, 'test', 'package.sh'), 'utf8').match(/node:\d+-[\w-]+/g) ?? [];
  const found = [
    ...images().flatMap(({ name, tag }) => (tag.includes('@sha256:') ? [] : [name])),
    ...[base, ...packaged, ...bases.map((one) => `node:${one}-slim`)].filter(
      (name) => !name.includes('@sha256:'),
    ),
  ];
  expect([...new Set(found)].sort()).toEqual([...FLOATING].sort());
});
