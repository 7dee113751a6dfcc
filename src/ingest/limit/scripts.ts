/**
 * Loads the Lua scripts of this folder and joins them to one batch script. Each file opens with its
 * contract: purpose, KEYS, ARGV, result, example. All keys of a call belong to one project or
 * heartbeat token, so that in a cluster each call runs on the node that has its keys. A single
 * server runs all calls of a batch together ({@link BATCH_SOURCE}).
 */
import { readFileSync } from 'node:fs';
import { assert } from '../../lib/assert.ts';

type Script = { file: string; keys: number };
export type ScriptName = 'admit' | 'refund' | 'setUsage' | 'forgetUsage' | 'shareUsage' | 'heartbeat';

const SCRIPTS: Readonly<Record<ScriptName, Script>> = {
  admit: { file: './admit.lua', keys: 2 },
  refund: { file: './refund.lua', keys: 1 },
  setUsage: { file: './set-usage.lua', keys: 1 },
  forgetUsage: { file: './forget-usage.lua', keys: 2 },
  shareUsage: { file: './share-usage.lua', keys: 1 },
  heartbeat: { file: './heartbeat.lua', keys: 1 },
};
export const SCRIPT_NAMES = Object.keys(SCRIPTS) as ScriptName[];
/** Returns the fewest keys that a call of the script has. The call itself says how many it has. */
export const keysOf = (name: ScriptName): number => SCRIPTS[name].keys;

/**
 * Returns the source of one script. The file is beside this one, both in the sources and in the
 * build.
 */
export const scriptSource = (name: ScriptName): string =>
  readFileSync(new URL(SCRIPTS[name].file, import.meta.url), 'utf8');

const asFunction = (name: ScriptName): string => `
local function ${name}(KEYS, ARGV)
${scriptSource(name)}
end
`;

/** Factor by which {@link callCode} packs a script and its number of keys into one number. */
const KEYS_UNIT = 8;
assert(SCRIPT_NAMES.length < KEYS_UNIT, 'a script and its number of keys fit in one figure');
/**
 * Packs a script and its number of keys into one number, for {@link BATCH_SOURCE}.
 * @param place place of the script in {@link SCRIPT_NAMES}, from 1
 */
export const callCode = (place: number, keys: number): number => place + KEYS_UNIT * keys;

/**
 * Lua script that runs many calls, of any scripts. KEYS are the keys of all calls, one call after
 * the other. ARGV[1], in MessagePack: the list of {@link callCode}s, then the list of arguments of
 * each call. Result, in MessagePack: each call's own result in order, or { err } in its place. A
 * call that fails changes nothing for the others.
 */
export const BATCH_SOURCE = `${SCRIPT_NAMES.map(asFunction).join('')}
local scripts = { ${SCRIPT_NAMES.join(', ')} }
local calls = cmsgpack.unpack(ARGV[1])
local results, keysBefore = {}, 0
for i, code in ipairs(calls[1]) do
  local script = code % ${KEYS_UNIT}
  local keysEnd = keysBefore + (code - script) / ${KEYS_UNIT}
  local done, result = pcall(scripts[script], { unpack(KEYS, keysBefore + 1, keysEnd) }, calls[i + 1])
  if not done then
    result = { err = type(result) == 'table' and result.err or 'ERR ' .. tostring(result) }
  end
  results[i], keysBefore = result, keysEnd
end
return cmsgpack.pack(results)
`;

// The braces in the keys are the hash tag of a Redis cluster: all keys of one project are on one
// node.
/** Returns the key of a rate window. `window` '' is the window of the project itself. */
export const rateKey = (projectId: string, window = ''): string =>
  window === '' ? `sluice:rate:{${projectId}}` : `sluice:rate:{${projectId}}:${window}`;
export const quotaKey = (projectId: string): string => `sluice:quota:{${projectId}}`;
export const heartbeatKey = (token: string): string => `sluice:heartbeat:{${token}}`;
