-- Counts accepted requests of one project in the current UTC month, up to its quota.
--
-- KEYS[1]  sluice:quota:{projectId}, a hash: <YYYY-MM> -> count. It stays for billing: the newest month at least 500 days.
-- ARGV[1]  now, Unix ms; '' = Redis's own clock. It alone decides the month.
-- ARGV[2]  n, how many wait to be counted, integer >= 0 (0: only look)
-- ARGV[3]  quota, integer >= 0; -1 = none, or overage is enabled: all n are counted
-- ARGV[4]  month that the start value belongs to, YYYY-MM; '' = no start value
-- ARGV[5]  start value: the month's count before n, taken only if the month has no count yet, integer >= 0; '' = none
--
-- Result   { month, before, granted }: of the n the first `granted` hold the positions before + 1 … before + granted.
--          before = -1 means MISSING: the month has no count and no start value came for it. Nothing is written; the caller
--          looks for a checkpoint and calls again.
--
-- Example  quota 100, 98 counted, at 2026-02-03:  ARGV  '' 5 100 '' ''   -> { '2026-02', 98, 2 }

local KEEP_SEC = 500 * 86400

assert(#KEYS == 1 and #ARGV == 5, 'quota: 1 key and 5 arguments')
local now = tonumber(ARGV[1]) or tonumber(redis.call('TIME')[1]) * 1000
local n = assert(tonumber(ARGV[2]), 'quota: n')
local quota = assert(tonumber(ARGV[3]), 'quota: quota')

-- Year and month of a Unix time (days to civil date, after the proleptic Gregorian calendar; no os.date in scripts).
local function monthOf(ms)
  local days = math.floor(ms / 86400000) + 719468
  local era = math.floor(days / 146097)
  local day = days - era * 146097
  local year = math.floor((day - math.floor(day / 1460) + math.floor(day / 36524) - math.floor(day / 146096)) / 365)
  local dayOfYear = day - (365 * year + math.floor(year / 4) - math.floor(year / 100))
  local month = math.floor((5 * dayOfYear + 2) / 153) -- 0 = March
  local civil = month < 10 and month + 3 or month - 9
  return string.format('%04d-%02d', year + era * 400 + (civil <= 2 and 1 or 0), civil)
end

-- ---- Decide
local month = monthOf(now)
local before = tonumber(redis.call('HGET', KEYS[1], month))
local fresh = before == nil
if fresh then
  if ARGV[4] ~= month then return { month, -1, 0 } end
  before = assert(tonumber(ARGV[5]), 'quota: start value')
end
local granted = n
if quota >= 0 then granted = math.max(0, math.min(n, quota - before)) end

-- ---- Write
if granted > 0 or fresh then
  redis.call('HSET', KEYS[1], month, string.format('%.0f', before + granted))
  if fresh then redis.call('EXPIRE', KEYS[1], KEEP_SEC) end
end
return { month, before, granted }
