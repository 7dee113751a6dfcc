/** kubectl and Helm against the Kubernetes of test/kubernetes/cluster. */
import { spawnSync } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect } from 'vitest';
import { KUBERNETES, type KubernetesObject } from '../deploy/kubernetes-objects.ts';

const PROJECT = new URL('../..', import.meta.url).pathname;
/** The commit of release 0.2.0, whose manifests are in use. */
const RELEASE = 'b4263e7';

export type Answer = { status: number; out: string; err: string };

export function run(program: string, args: readonly string[], input?: string): Answer {
  const { status, stdout, stderr, error } = spawnSync(program, args, {
    encoding: 'utf8',
    maxBuffer: 64 * 1024 ** 2,
    ...(input !== undefined && { input }),
  });
  if (error) throw error;
  return { status: status ?? -1, out: stdout, err: stderr };
}

/** @throws with the program's own words */
function must({ status, out, err }: Answer): Answer {
  if (status !== 0) throw new Error(err || out);
  return { status, out, err };
}

export const kubectl = (...args: string[]): string => must(run('kubectl', args)).out;
export const tryKubectl = (...args: string[]): Answer => run('kubectl', args);
export const helm = (...args: string[]): string => must(run('helm', args)).out;
export const applyText = (text: string, ...args: string[]): Answer =>
  must(run('kubectl', ['apply', ...args, '-f', '-'], text));
export const tryHelm = (...args: string[]): Answer => run('helm', args);

export function get<T>(...args: string[]): T {
  return JSON.parse(kubectl('get', ...args, '-o', 'json')) as T;
}

/** Names of all objects of a kind, sorted. */
export const names = (namespace: string, kind: string): string[] =>
  get<{ items: KubernetesObject[] }>(kind, '-n', namespace)
    .items.map(({ metadata }) => metadata.name)
    .sort();

/** Applies as one field manager, with every field known. @returns the server's warnings */
export function applyStrictly(objects: readonly KubernetesObject[], namespace: string): string[] {
  // Helm runs what is a hook of its own accord.
  const own = objects.filter(({ metadata }) => !JSON.stringify(metadata).includes('helm.sh/hook'));
  const moved = own.map(({ metadata, ...object }) => ({
    ...object,
    metadata: { ...metadata, namespace },
  }));
  const list = JSON.stringify({ apiVersion: 'v1', kind: 'List', items: moved });
  const args = ['apply', '--server-side', '--validate=strict', '--field-manager=test', '-f', '-'];
  const { err } = must(run('kubectl', args, list));
  return [...new Set(err.split('\n').filter((line) => line !== ''))];
}

export function makeNamespace(name: string): void {
  kubectl('create', 'namespace', name);
  kubectl('label', 'namespace', name, 'pod-security.kubernetes.io/enforce=restricted');
}

export function removeNamespaces(...all: string[]): void {
  if (all.length > 0)
    kubectl('delete', 'namespace', ...all, '--ignore-not-found', '--wait', '--timeout=180s');
  // A volume that was in use takes no other claim until somebody has looked at it.
  for (const { metadata, status } of get<{ items: (KubernetesObject & { status: { phase: string } })[] }>(
    'pv',
  ).items)
    if (status.phase === 'Released')
      kubectl('patch', 'pv', metadata.name, '--type=json', '-p', '[{"op":"remove","path":"/spec/claimRef"}]');
}

/** Every Deployment and StatefulSet has all of its pods ready, in the form that was asked for last. */
export async function ready(namespace: string): Promise<void> {
  type Rolled = {
    metadata: { name: string; generation: number };
    spec: { replicas: number };
    status: {
      observedGeneration?: number;
      replicas?: number;
      updatedReplicas?: number;
      readyReplicas?: number;
    };
  };
  await expect
    .poll(
      () =>
        get<{ items: Rolled[] }>('deployments,statefulsets', '-n', namespace)
          .items.filter(({ metadata, spec, status }) => {
            const { observedGeneration, replicas = 0, updatedReplicas = 0, readyReplicas = 0 } = status;
            return (
              observedGeneration !== metadata.generation ||
              [replicas, updatedReplicas, readyReplicas].some((count) => count !== spec.replicas)
            );
          })
          .map(({ metadata }) => metadata.name),
      { timeout: 120_000, interval: 500 },
    )
    .toEqual([]);
}

/** A copy of deploy/kubernetes as 0.2.0 had it; undefined where the checkout has no history. */
export function manifestsOfRelease(): string | undefined {
  const archive = spawnSync('git', ['archive', RELEASE, 'deploy/kubernetes'], {
    cwd: PROJECT,
    maxBuffer: 2 ** 26,
  });
  if (archive.status !== 0) return undefined;
  const folder = mkdtempSync(join(tmpdir(), 'sluice-release-'));
  process.once('exit', () => rmSync(folder, { recursive: true, force: true }));
  spawnSync('tar', ['-x', '-C', folder], { input: archive.stdout });
  return join(folder, 'deploy/kubernetes');
}

/** What apply says in place of a Job that has not been gone for long is in the documents: it is deleted before. */
export function applyFolder(folder: string, overlay: string): void {
  kubectl('-n', 'sluice', 'delete', 'job', 'setup', '--ignore-not-found');
  kubectl('apply', '-k', join(folder, 'overlays', overlay));
}

export const LASTING = join(KUBERNETES, 'lasting');
