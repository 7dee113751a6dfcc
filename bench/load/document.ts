/** The JSON document of a run (`--json`): its result, and what a reader needs to judge it. */
import { readFileSync } from 'node:fs';
import { cpus, release, totalmem, type } from 'node:os';
import type { Knee } from './pace/knee.ts';
import type { LoadResult } from './result.ts';
import type { ServerFigures } from './show/server-watch.ts';
import type { Check } from './thresholds.ts';
import type { Verification } from './verify/verify.ts';

export type Machine = { cpu: string; cores: number; memoryGiB: number; kernel: string; node: string };
export type RunDocument = LoadResult & {
  /** Version of the form of this document. readDocument() refuses other versions. */
  version: 2;
  /** For each generator, the first 24 digits that all of its ids share. */
  runs: readonly string[];
  machine: Machine;
  /** The command line, without keys. */
  settings: Record<string, string>;
  checks: readonly Check[];
  missed: readonly string[];
  knee?: Knee | undefined;
  verification?: Verification | undefined;
  /** Why the verification failed to read the sink. In this case `verification` is absent. */
  unverified?: string | undefined;
  server?: ServerFigures | undefined;
};

export function machineOf(): Machine {
  const all = cpus();
  return {
    cpu: all[0]?.model.trim() ?? 'unknown',
    cores: all.length,
    memoryGiB: Math.round(totalmem() / 1024 ** 3),
    kernel: `${type()} ${release().split('-')[0]}`,
    node: process.version,
  };
}

const OPTION = /^--([a-z0-9-]+)(?:=(.*))?$/s;

/**
 * Returns the value of an option without keys, passwords and values of headers, so that everybody
 * may read a report.
 */
function shown(name: string, value: string): string {
  if (name === 'header') return `${value.split(':', 1)[0]}: …`;
  return value.replace(/\/\/[^/?\s]*@/g, '//…@').replace(/([?&]\w*(?:password|secret)\w*=)[^&\s]*/gi, '$1…');
}

/**
 * Turns arguments such as `--rate 5 --verify` into names and values. Values of an option that is
 * given several times are joined.
 */
export function settingsOf(args: readonly string[]): Record<string, string> {
  const settings: Record<string, string> = {};
  for (let at = 0; at < args.length; at++) {
    const [, name, given] = OPTION.exec(args[at] as string) ?? [];
    if (name === undefined) continue;
    const next = args[at + 1];
    const value = given ?? (next === undefined || OPTION.test(next) ? 'yes' : next);
    const before = settings[name];
    settings[name] = before === undefined ? shown(name, value) : `${before}, ${shown(name, value)}`;
  }
  return settings;
}

/** Thrown when a file is not a result of `sluice load --json`. */
export class DocumentError extends Error {
  override name = 'DocumentError';
}

/**
 * Reads a result of `sluice load --json`.
 * @throws DocumentError naming the file
 */
export function readDocument(path: string): RunDocument {
  try {
    return documentIn(readFileSync(path, 'utf8'), path);
  } catch (error) {
    if (error instanceof DocumentError) throw error;
    throw new DocumentError(`${path}: ${(error as Error).message}`);
  }
}

/**
 * Parses a result of `sluice load --json`.
 * @param path name of the text, for errors
 * @throws DocumentError naming `path`
 */
export function documentIn(text: string, path: string): RunDocument {
  let document: RunDocument;
  try {
    document = JSON.parse(text) as RunDocument;
  } catch (error) {
    throw new DocumentError(`${path}: ${(error as Error).message}`);
  }
  if (document?.version !== 2 || !Array.isArray(document.histograms) || !Array.isArray(document.runs))
    throw new DocumentError(`${path} is no result of sluice load --json`);
  return document;
}
