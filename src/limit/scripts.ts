/**
 * The Lua scripts of this folder. Each file opens with its contract: purpose, KEYS, ARGV, result, example.
 * Every script has exactly one key, so that in a cluster each runs where its project or token lives; on one server those of a turn
 * run together (batchSource).
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

/**
 * A script for many keys at once: KEYS as many as there are calls; ARGV[1], in MessagePack, the list of their arguments.
 * Result, in MessagePack: each call's own result in order, or { err } in its place; one that fails changes nothing for the others.
 */
export const batchSource = (name: ScriptName): string => `
local function one(KEYS, ARGV)
${scriptSource(name)}
end
local results = {}
for i, args in ipairs(cmsgpack.unpack(ARGV[1])) do
  local done, result = pcall(one, { KEYS[i] }, args)
  if not done then
    result = { err = type(result) == 'table' and result.err or 'ERR ' .. tostring(result) }
  end
  results[i] = result
end
return cmsgpack.pack(results)
`;

// The braces are the hash tag: all that one project needs stands on one node of a cluster.
export const rateKey = (projectId: string): string => `sluice:rate:{${projectId}}`;
export const quotaKey = (projectId: string): string => `sluice:quota:{${projectId}}`;
export const heartbeatKey = (token: string): string => `sluice:heartbeat:{${token}}`;
