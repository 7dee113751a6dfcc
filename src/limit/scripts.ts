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
 * A script for many keys at once: KEYS as many as there are calls; ARGV, for each of them, how many arguments follow and these.
 * Result: each call's own result in order, or an error in its place; one that fails changes nothing for the others.
 */
export const batchSource = (name: ScriptName): string => `
local function one(KEYS, ARGV)
${scriptSource(name)}
end
local results, at = {}, 1
for i = 1, #KEYS do
  local count = tonumber(ARGV[at])
  local args = {}
  for n = 1, count do args[n] = ARGV[at + n] end
  at = at + count + 1
  local done, result = pcall(one, { KEYS[i] }, args)
  if not done then
    result = redis.error_reply(type(result) == 'table' and result.err or 'ERR ' .. tostring(result))
  end
  results[i] = result
end
return results
`;

// The braces are the hash tag: all that one project needs stands on one node of a cluster.
export const rateKey = (projectId: string): string => `sluice:rate:{${projectId}}`;
export const quotaKey = (projectId: string): string => `sluice:quota:{${projectId}}`;
export const heartbeatKey = (token: string): string => `sluice:heartbeat:{${token}}`;
