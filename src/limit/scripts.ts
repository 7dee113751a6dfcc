/**
 * The Lua scripts of this folder. Each file opens with its contract: purpose, KEYS, ARGV, result, example.
 * Every script has exactly one key, so that in a cluster each runs where its project or token lives.
 */
import { readFileSync } from 'node:fs';

const FILES = {
  rateWindow: './rate-window.lua',
  quota: './quota.lua',
  refund: './refund.lua',
  setUsage: './set-usage.lua',
  heartbeat: './heartbeat.lua',
} as const;

export type ScriptName = keyof typeof FILES;
export const SCRIPT_NAMES = Object.keys(FILES) as ScriptName[];

/** The source of one script: beside this file both in the sources and in the build. */
export const scriptSource = (name: ScriptName): string =>
  readFileSync(new URL(FILES[name], import.meta.url), 'utf8');

// The braces are the hash tag: all that one project needs stands on one node of a cluster.
export const rateKey = (projectId: string): string => `sluice:rate:{${projectId}}`;
export const quotaKey = (projectId: string): string => `sluice:quota:{${projectId}}`;
export const heartbeatKey = (token: string): string => `sluice:heartbeat:{${token}}`;
