/**
 * What SDKs do when they are refused, `npm run test:refusals`: each sends messages at a steady pace against a real sluice that answers 429
 * by the rate, 413, 503 with `Retry-After`, or is restarted. Prints a row for each; docs/clients.md sums them up. It fails where an SDK never
 * comes back; all else is the SDK's own matter, and is only told.
 */
import { setTimeout as pause } from 'node:timers/promises';
import { brotliDecompressSync, gunzipSync, inflateSync } from 'node:zlib';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { type Project, type StoredRecord, System, until } from '../support/system.ts';
import { textOf } from './cells.ts';
import { type Client, FLUSH, Pages } from './client.ts';
import { Forwarder, type Passed } from './forwarder.ts';
import type { Variant } from './scenario.ts';
import { build, isAsked, lacks, versionOf } from './sdks.ts';
import { JAVASCRIPT, OTHERS } from './variants.ts';

const PACE_MS = 500;
/** No SDK has sent for so long: what it still holds, it keeps. */
const QUIET_MS = 8_000;
const BODY_BYTES_MAX = 60_000;
/** Larger than that, before and after compression. */
const LARGE = Array.from({ length: 120_000 }, () => String.fromCharCode(97 + Math.random() * 26)).join('');

type Scene = {
  title: string;
  /** Messages of each SDK. */
  count: number;
  project?: { rateLimit: number };
  /** Which messages are {@link LARGE}. */
  isLarge?(n: number): boolean;
  meanwhile?(system: System): Promise<void>;
};

const SCENES: readonly Scene[] = [
  { title: '429 by the rate', count: 160, project: { rateLimit: 10 } },
  { title: '413', count: 20, isLarge: (n) => n === 5 },
  {
    title: '503 with `Retry-After: 5`',
    count: 50,
    meanwhile: async (system) => {
      await pause(5_000);
      await system.nats.stop();
      await pause(4_000);
      await system.restartNats();
    },
  },
  {
    title: 'restart',
    count: 50,
    meanwhile: async (system) => {
      await pause(5_000);
      await system.ingest.stop();
      system.ingest = system.startIngest();
      await system.ready();
    },
  },
];

/** One SDK of each package: frameworks send by the SDK below them. */
const all = [...JAVASCRIPT, ...OTHERS].filter(
  ({ sdk }, at, every) => every.findIndex((one) => one.sdk.package === sdk.package) === at,
);
const leftOut = all.filter(({ sdk }) => !isAsked(sdk) || lacks(sdk));
const variants = all.filter((variant) => !leftOut.includes(variant));

/** A message that came to sluice's door. `status` 0: there was no answer. */
type Arrival = { at: number; path: string; name: string; status: number };

const INFLATE: Record<string, (body: Buffer) => Buffer> = {
  gzip: gunzipSync,
  deflate: inflateSync,
  br: brotliDecompressSync,
};

/** A message's name, with which its text begins: SDKs cut long ones. */
const nameIn = (text: unknown): string | undefined => /^refusal \d+\.\d+/.exec(`${text}`)?.[0];

/** Names of the messages in an envelope. */
function namesIn(body: Buffer, encoding = ''): string[] {
  const lines = (INFLATE[encoding]?.(body) ?? body).toString().split('\n');
  return lines.flatMap((line) => {
    try {
      return nameIn(textOf({ payload: JSON.parse(line) } as StoredRecord)) ?? [];
    } catch {
      return [];
    }
  });
}

/** Notes the messages of a request that the forwarder handed on. */
function noteArrivals({ at, path, body, encoding, status }: Passed): void {
  came.push(...namesIn(body, encoding).map((name) => ({ at, path, name, status })));
}

let system: System;
let pages: Pages;
let forwarder: Forwarder;
/** The messages that came since the scene began. */
const came: Arrival[] = [];
const caption: string[] = [];
const cells = new Map<Variant, string[]>(variants.map((variant) => [variant, []]));

beforeAll(async () => {
  await Promise.all([...new Map(variants.map(({ sdk }) => [sdk.manifest, sdk.build])).values()].map(build));
  const env = {
    SLUICE_MAX_BODY_BYTES: `${BODY_BYTES_MAX}`,
    SLUICE_MAX_DECOMPRESSED_BYTES: `${BODY_BYTES_MAX}`,
  };
  [system, pages] = await Promise.all([System.start({ env }), Pages.start()]);
  forwarder = await Forwarder.before(system.port, noteArrivals);
}, 15 * 60_000);
afterAll(async () => {
  const titles = ['SDK', 'Version', ...SCENES.map(({ title }) => title)];
  const rows = [...cells].map(([{ sdk }, told]) => [`\`${sdk.package}\``, versionOf(sdk), ...told]);
  const lines = [titles, titles.map(() => '---'), ...rows].map((row) => `| ${row.join(' | ')} |`);
  process.stdout.write(`\n${[...lines, ...caption].join('\n')}\n`);
  for (const { sdk } of leftOut) process.stdout.write(`${sdk.package} was not measured\n`);
  forwarder?.close();
  await pages?.close();
  await system?.stop();
});

const seconds = (ms: number): string => `${(ms / 1_000).toFixed(1)} s`;

/** What became of one SDK's messages. */
type Told = { names: string[]; sentAt: number[]; arrivals: Arrival[]; stored: Set<string> };

function cellOf({ sentAt, arrivals, stored, names }: Told): string {
  const statuses = (name: string): number[] =>
    arrivals.filter((one) => one.name === name).map(({ status }) => status);
  const lost = names.filter((name) => !stored.has(name));
  const refused = lost.filter((name) => statuses(name).some((status) => status >= 400));
  const cut = lost.filter(
    (name) => statuses(name).length > 0 && statuses(name).every((status) => status === 0),
  );
  const unsent = lost.length - refused.length - cut.length;
  const again = names.filter((name) => statuses(name).length > 1);
  const parts = [`${stored.size} of ${names.length} stored`];
  if (refused.length > 0) parts.push(`${refused.length} refused`);
  if (cut.length > 0) parts.push(`${cut.length} cut`);
  if (unsent > 0) parts.push(`${unsent} dropped unsent`);
  // The longest pause from the first message that was not stored on: an SDK that goes on as before makes one of its pace.
  const firstLost = names.findIndex((name) => lost.includes(name));
  if (firstLost >= 0) {
    const from = sentAt[firstLost] as number;
    const times = arrivals
      .map(({ at }) => at)
      .filter((at) => at >= from)
      .sort((one, other) => one - other);
    const gaps = times.map((at, n) => at - (times[n - 1] ?? from));
    const silence = Math.max(0, ...gaps);
    parts.push(silence > 2.5 * PACE_MS ? `silent for ${seconds(silence)}` : 'never silent');
  }
  parts.push(again.length > 0 ? `${again.length} sent again` : 'none sent again');
  return parts.join(', ');
}

type Playing = { client: Client; project: Project; sentAt: number[] };

/** Resolves when the SDK has begun. */
async function open(scene: Scene, variant: Variant): Promise<Playing> {
  const project = await system.createProject(scene.project ?? {});
  const dsn = `http://${project.key}@127.0.0.1:${forwarder.port}/${project.alias ?? project.id}`;
  const client = await variant.open(dsn, pages);
  await client.step(FLUSH);
  return { client, project, sentAt: [] };
}

function storedOf({ id }: Project): Set<string> {
  const own = system.stored().filter(({ project_id }) => project_id === id);
  return new Set(own.flatMap((record) => nameIn(textOf(record)) ?? []));
}

it.each(SCENES)('$title', { timeout: 10 * 60_000 }, async (scene) => {
  const names = Array.from({ length: scene.count }, (_, n) => `refusal ${SCENES.indexOf(scene)}.${n}`);
  const opened = variants.map(async (variant) => [variant, await open(scene, variant)] as const);
  const playing = new Map(await Promise.all(opened));
  came.length = 0;
  const happening = scene.meanwhile?.(system);
  const steps: Promise<unknown>[] = [];
  for (const [n, name] of names.entries()) {
    const text = scene.isLarge?.(n) ? `${name} ${LARGE}` : name;
    for (const { client, sentAt } of playing.values()) {
      sentAt.push(performance.now());
      // A program that sends one message says so itself when it is refused.
      steps.push(client.step({ do: 'message', text }).catch(() => undefined));
    }
    await pause(PACE_MS);
  }
  await Promise.all([happening, ...steps]);
  for (const { client } of playing.values()) void client.step(FLUSH).catch(() => undefined);
  await until(() => performance.now() - (came.at(-1)?.at ?? 0) > QUIET_MS, 120_000);
  const failed = came.filter(({ status }) => status === 0 || status >= 500).map(({ at }) => at);
  if (failed.length > 0)
    caption.push(
      `${scene.title}: from the first failure to the last ${seconds(Math.max(...failed) - Math.min(...failed))}`,
    );
  for (const [variant, { client, project, sentAt }] of playing) {
    await client.close();
    const path = `/api/${project.alias ?? project.id}/`;
    const arrivals = came.filter((one) => one.path.startsWith(path));
    const accepted = arrivals.flatMap(({ name, status }) => (status === 200 ? [name] : []));
    await until(() => accepted.every((name) => storedOf(project).has(name)));
    const stored = storedOf(project);
    cells.get(variant)?.push(cellOf({ names, sentAt, arrivals, stored }));
    const isBack = names.slice(names.length / 2).some((name) => stored.has(name));
    expect.soft(isBack, variant.title).toBe(true);
  }
});
