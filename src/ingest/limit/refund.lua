-- Takes one increment back: a request was counted, and nothing of it can have been queued.
--
-- KEYS[1]  sluice:quota:{projectId}, see admit.lua
-- ARGV[1]  month that it was counted in, YYYY-MM
--
-- Result   { 1 } when the month's count was lowered by one; { 0 } when the month has no count or
--          is at 0: then Redis lost what is to be taken back, and there is nothing to do.
--
-- Example  98 counted:  ARGV  2026-02   -> { 1 }, 97 remain

assert(#KEYS == 1 and #ARGV == 1, 'refund: 1 key and 1 argument')
local count = tonumber(redis.call('HGET', KEYS[1], ARGV[1]))
if not count or count <= 0 then return { 0 } end
redis.call('HSET', KEYS[1], ARGV[1], string.format('%.0f', count - 1))
return { 1 }
