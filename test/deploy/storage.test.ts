/** What setup reserves fits what each nats.conf of deploy allows, and the disk below it. */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { parse, parseAllDocuments } from 'yaml';
import { loadConfig } from '../../src/config.ts';
import { wantedStreams } from '../../src/stream/topology.ts';
import { DEPLOYED } from './versions.ts';

const DEPLOY = new URL('../../deploy', import.meta.url).pathname;
const OVERLAYS = 'kubernetes/overlays';
const GIB = 1024 ** 3;
const text = (path: string): string => readFileSync(join(DEPLOY, path), 'utf8');

/** As the configMapGenerator of a kustomization sets them. */
function settingsOf(path: string): Record<string, string> {
  const { configMapGenerator } = parse(text(path)) as {
    configMapGenerator: { name: string; literals?: string[] }[];
  };
  const literals = configMapGenerator.find(({ name }) => name === 'sluice-settings')?.literals ?? [];
  return Object.fromEntries(literals.map((literal) => literal.split(/=(.*)/s).slice(0, 2)));
}

const base = settingsOf('kubernetes/base/kustomization.yaml');
const composed = (
  parse(text('compose.yaml'), { merge: true }) as {
    services: { setup: { environment: Record<string, string> } };
  }
).services.setup.environment;

/** Bytes that one server reserves: each has a copy of every stream. */
function reserved(settings: Record<string, string>): number {
  const names = ['SLUICE_STREAM_MAX_BYTES', 'SLUICE_STREAM_REPLICAS', 'SLUICE_STREAM_SHARDS'];
  const env = Object.fromEntries(names.map((name) => [name, settings[name]]));
  const { streamReplicas: replicas, streamShards: shards, streamMaxBytes: maxBytes } = loadConfig(env).config;
  return wantedStreams({ replicas, shards, maxBytes }).reduce((sum, { config }) => sum + config.max_bytes, 0);
}

/** nats-server counts a GB as 1024 to the third. */
const allowed = (path: string): number =>
  Number(/max_file_store: (\d+)GB/.exec(text(path))?.[1] ?? Number.NaN) * GIB;

function diskOf(path: string): number {
  const found = parseAllDocuments(text(path))
    .map((document) => JSON.stringify(document.toJS()))
    .flatMap((object) => /"storage":"(\d+)Gi"/.exec(object)?.[1] ?? []);
  return Number(found[0] ?? Number.NaN) * GIB;
}

it.each([
  ['compose.yaml', composed, 'nats/nats.conf', undefined],
  ['minimal', base, `${OVERLAYS}/minimal/nats.conf`, `${OVERLAYS}/minimal/nats.yaml`],
  [
    'production',
    { ...base, ...settingsOf(`${OVERLAYS}/production/kustomization.yaml`) },
    `${OVERLAYS}/production/nats.conf`,
    `${OVERLAYS}/production/nats.yaml`,
  ],
])('%s gives the streams the room that they reserve', (_name, settings, conf, volume) => {
  expect(settings.SLUICE_STREAM_MAX_BYTES).toBeDefined();
  expect(allowed(conf)).toBeGreaterThanOrEqual(reserved(settings));
  if (volume) expect(diskOf(volume)).toBeGreaterThan(allowed(conf));
});

it("gives NATS's own chart the room of production, and the version that deploy/ names", () => {
  const { config, container } = parse(text('helm/servers/nats.yaml')) as {
    config: { jetstream: { fileStore: { maxSize: string; pvc: { size: string } } } };
    container: { image: { tag: string } };
  };
  const { maxSize, pvc } = config.jetstream.fileStore;
  const bytes = (size: string): number => Number(/^(\d+)Gi$/.exec(size)?.[1] ?? Number.NaN) * GIB;
  const settings = { ...base, ...settingsOf(`${OVERLAYS}/production/kustomization.yaml`) };
  expect(bytes(maxSize)).toBeGreaterThanOrEqual(reserved(settings));
  expect(bytes(pvc.size)).toBeGreaterThan(bytes(maxSize));
  expect(container.image.tag).toBe(`${DEPLOYED.nats}-alpine`);
});

it('compose.yaml bounds the spool, which shares the disk of the machine', () => {
  const { services } = parse(text('compose.yaml'), { merge: true }) as {
    services: { ingest: { environment: Record<string, string> } };
  };
  const { environment } = services.ingest;
  const bound = /^\$\{SLUICE_SPOOL_MAX_BYTES:-(\d+)\}$/.exec(environment.SLUICE_SPOOL_MAX_BYTES ?? '')?.[1];
  const { config } = loadConfig({ SLUICE_SPOOL_MAX_BYTES: bound, SLUICE_WORKERS: '8' });
  expect(config.spoolMaxBytes).toBeLessThanOrEqual(8 * GIB);
  expect(environment.SLUICE_REDIS_URL).toBe(composed.SLUICE_REDIS_URL);
});
