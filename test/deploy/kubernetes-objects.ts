/** Kubernetes objects of deploy/kubernetes: read from files, or rendered by kubectl where there is one. */
import { execFileSync, spawnSync } from 'node:child_process';
import { cpSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join, relative } from 'node:path';
import { parse, parseAllDocuments } from 'yaml';
import { z } from 'zod';
import { goProgram } from '../support/tools.ts';

const PROJECT = new URL('../..', import.meta.url).pathname;
export const KUBERNETES = join(PROJECT, 'deploy/kubernetes');
export const CHART = join(PROJECT, 'deploy/helm/sluice');
/** What the chart is tried with where the machine has no Helm. */
export const HELM = '3.22.0';
export const OVERLAYS = ['minimal', 'clickhouse', 'production'] as const;

export type KubernetesObject = {
  apiVersion: string;
  kind: string;
  metadata: { name: string; namespace?: string; labels?: Record<string, string> };
};

export const parseObjects = (text: string): KubernetesObject[] =>
  parseAllDocuments(text)
    .map((document) => document.toJS() as KubernetesObject | null)
    .filter((object) => object !== null);

/** Every object that stands in a file of its own right: no kustomization, no patch, no configuration of a server. */
export function writtenObjects(): KubernetesObject[] {
  const files = readdirSync(KUBERNETES, { recursive: true, encoding: 'utf8' });
  return files
    .filter((file) => file.endsWith('.yaml') && !/(kustomization|\.patch)\.yaml$/.test(file))
    .flatMap((file) => parseObjects(readFileSync(join(KUBERNETES, file), 'utf8')));
}

/** kustomize 5 is in kubectl from 1.27 on; undefined where there is none. */
export function findKustomize(): string[] | undefined {
  for (const command of [
    ['kubectl', 'kustomize'],
    ['kustomize', 'build'],
  ]) {
    const probe = spawnSync(command[0] ?? '', [...command.slice(1), join(KUBERNETES, 'base')], {
      encoding: 'utf8',
    });
    if (probe.status === 0) return command;
  }
  return undefined;
}

/** Helm of the machine, else one that Go builds; undefined where there is neither. */
export function findHelm(): string | undefined {
  const runs = (program: string, ...args: string[]): boolean =>
    spawnSync(program, args, { stdio: 'ignore' }).status === 0;
  if (runs('helm', 'version')) return 'helm';
  return runs('go', 'version') ? goProgram('helm', 'helm.sh/helm/v3/cmd/helm', HELM) : undefined;
}

/** @param args values and flags @throws with Helm's own words */
export function renderChart(helm: string, ...args: string[]): KubernetesObject[] {
  const all = ['template', 'sluice', CHART, '--namespace', 'sluice', '--kube-version', '1.34.0', ...args];
  return parseObjects(execFileSync(helm, all, { encoding: 'utf8', stdio: ['ignore', 'pipe', 'pipe'] }));
}

/** @throws with kustomize's own words */
export const render = (command: readonly string[], overlay: string): KubernetesObject[] =>
  renderFolder(command, `overlays/${overlay}`);

/** @param name below deploy/kubernetes */
export function renderFolder(command: readonly string[], name: string): KubernetesObject[] {
  const [program = '', ...args] = command;
  return parseObjects(execFileSync(program, [...args, join(KUBERNETES, name)], { encoding: 'utf8' }));
}

/** An overlay with a component on top, as an operator would add it. */
export const renderWith = (
  command: readonly string[],
  overlay: string,
  component: string,
): KubernetesObject[] => renderOn(command, overlay, {}, component);

/** An overlay of an operator's own on top of one. @param more its other fields */
export function renderOn(
  command: readonly string[],
  overlay: string,
  more: object,
  component?: string,
): KubernetesObject[] {
  const folder = mkdtempSync(join(PROJECT, 'node_modules/.kustomization-'));
  try {
    const base = relative(folder, KUBERNETES);
    const kustomization = {
      resources: [`${base}/overlays/${overlay}`],
      ...(component && { components: [`${base}/components/${component}`] }),
      ...more,
    };
    writeFileSync(join(folder, 'kustomization.yaml'), JSON.stringify(kustomization));
    const [program = '', ...args] = command;
    return parseObjects(execFileSync(program, [...args, folder], { encoding: 'utf8' }));
  } finally {
    rmSync(folder, { recursive: true });
  }
}

/** An overlay that names a component among its own, as an operator would write it. */
export function renderInside(
  command: readonly string[],
  overlay: string,
  component: string,
): KubernetesObject[] {
  const folder = mkdtempSync(join(PROJECT, 'node_modules/.kustomization-'));
  try {
    cpSync(KUBERNETES, folder, { recursive: true });
    const file = join(folder, 'overlays', overlay, 'kustomization.yaml');
    const kustomization = parse(readFileSync(file, 'utf8')) as { components?: string[] };
    const components = new Set([...(kustomization.components ?? []), `../../components/${component}`]);
    writeFileSync(file, JSON.stringify({ ...kustomization, components: [...components] }));
    const [program = '', ...args] = command;
    return parseObjects(
      execFileSync(program, [...args, join(folder, 'overlays', overlay)], { encoding: 'utf8' }),
    );
  } finally {
    rmSync(folder, { recursive: true });
  }
}

/** Where npm has the schema of a group and version. */
function schemaModule(apiVersion: string): string {
  if (apiVersion.startsWith('keda.sh/')) return `@kubernetes-models/keda/${apiVersion}`;
  if (apiVersion.startsWith('monitoring.coreos.com/'))
    return `@kubernetes-models/prometheus-operator/${apiVersion}`;
  return `kubernetes-models/${apiVersion}`;
}

/**
 * npm has no schema of the Gateway API among what this project depends on: the fields of its v1 that are used here, as its CRD has them.
 * No other field passes.
 */
const httpRoute = z.strictObject({
  apiVersion: z.literal('gateway.networking.k8s.io/v1'),
  kind: z.literal('HTTPRoute'),
  metadata: z.strictObject({
    name: z.string(),
    namespace: z.string().optional(),
    labels: z.record(z.string(), z.string()).optional(),
  }),
  spec: z.strictObject({
    parentRefs: z.array(z.strictObject({ name: z.string(), namespace: z.string().optional() })).max(32),
    hostnames: z.array(z.string().regex(/^(\*\.)?[a-z0-9]([-a-z0-9.]*[a-z0-9])?$/)).max(16),
    rules: z.array(
      z.strictObject({
        matches: z.array(
          z.strictObject({
            path: z.strictObject({
              type: z.enum(['Exact', 'PathPrefix']),
              value: z.string().startsWith('/'),
            }),
          }),
        ),
        backendRefs: z.array(z.strictObject({ name: z.string(), port: z.int().min(1).max(65_535) })),
        timeouts: z.strictObject({ request: z.string().regex(/^([0-9]{1,5}(h|m|s|ms)){1,4}$/) }),
      }),
    ),
  }),
});
/** npm has no schema of these: test/kubernetes gives them to an API server that has their CRDs. */
const isOfGateways = ({ apiVersion }: KubernetesObject): boolean => apiVersion.startsWith('gateway.');

type Model = new (data: KubernetesObject) => { validate(): void };

/** What the published schema says against an object: types, required fields, formats and allowed values. */
export async function schemaProblems(object: KubernetesObject): Promise<string[]> {
  const { apiVersion, kind, metadata } = object;
  if (isOfGateways(object)) {
    const { error } = kind === 'HTTPRoute' ? httpRoute.safeParse(object) : { error: undefined };
    return error ? [`${kind} ${metadata.name}: ${z.prettifyError(error)}`] : [];
  }
  const models = (await import(schemaModule(apiVersion))) as Record<string, Model>;
  const Kind = models[kind];
  if (!Kind) return [`${kind} ${metadata.name}: ${apiVersion} has no such kind`];
  try {
    new Kind(object).validate();
    return [];
  } catch (error) {
    return [`${kind} ${metadata.name}: ${(error as Error).message}`];
  }
}

/**
 * Fields that the schemas do not know. The published schemas let them pass, as the API server does, so the objects are written out as
 * TypeScript literals and the compiler looks for excess properties: a misspelt field is one.
 */
export function unknownFields(objects: readonly KubernetesObject[]): string[] {
  // Below the project, so that packages are found from there.
  const folder = mkdtempSync(join(PROJECT, 'node_modules/.kubernetes-objects-'));
  try {
    const known = objects.filter((object) => !isOfGateways(object));
    const lines = known.flatMap((object, at) => {
      const model = `I${object.kind} as Kind${at}`;
      return [
        `import type { ${model} } from '${schemaModule(object.apiVersion)}';`,
        `export const object${at}: Kind${at} = ${JSON.stringify(object)}; // ${object.kind} ${object.metadata.name}`,
      ];
    });
    const file = join(folder, 'objects.ts');
    writeFileSync(file, `${lines.join('\n')}\n`);
    const options = [
      '--noEmit',
      '--strict',
      '--skipLibCheck',
      '--ignoreConfig',
      '--module',
      'nodenext',
      '--types',
      '',
    ];
    const { status, stdout, stderr } = spawnSync(join(PROJECT, 'node_modules/.bin/tsc'), [...options, file], {
      encoding: 'utf8',
    });
    return status === 0 ? [] : [`${stdout}${stderr}`];
  } finally {
    rmSync(folder, { recursive: true });
  }
}
