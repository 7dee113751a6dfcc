-- Sets the count of one project's month to the count that the sink's tally has. The callers are
-- `usage reconcile`, and the processor after a loss of counts.
--
-- KEYS[1]  sluice:quota:{projectId}, see admit.lua
-- ARGV[1]  month, YYYY-MM
-- ARGV[2]  count, integer >= 0
-- ARGV[3]  the count that the caller saw, integer >= 0, or '' when it saw none: the script sets
--          nothing when the count has changed since; or 'lower': the script sets the count only
--          where the month has a lower one
--
-- Result   { 1 when the count was set, else 0; the count after the call (-1: none) }. When 'lower'
--          set the count, a third value is the count before the call
--
-- Example  98 counted:  ARGV  2026-02 120 98   -> { 1, 120 }

local KEEP_SEC = 500 * 86400

assert(#KEYS == 1 and #ARGV == 3, 'set-usage: 1 key and 3 arguments')
local count = assert(tonumber(ARGV[2]), 'set-usage: count')
local seen = tonumber(ARGV[3])
local current = tonumber(redis.call('HGET', KEYS[1], ARGV[1]))
local mustRaise = ARGV[3] == 'lower'
if mustRaise then
  if not current or current >= count then return { 0, current or -1 } end
elseif current ~= seen then
  return { 0, current or -1 }
end
redis.call('HSET', KEYS[1], ARGV[1], string.format('%.0f', count))
if not current then redis.call('EXPIRE', KEYS[1], KEEP_SEC) end
if mustRaise then return { 1, count, current } end
return { 1, count }
