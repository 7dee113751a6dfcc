-- Takes back the count of one request: the request was counted, but no part of it can have been
-- queued.
--
-- KEYS[1]  sluice:quota:{projectId}, see admit.lua
-- ARGV[1]  month in which the request was counted, YYYY-MM
--
-- Result   { 1 } when the month's count was lowered by one; { 0 } when the month's count is absent
--          or 0: then Redis has lost the count of this request, and there is nothing to do
--
-- Example  98 counted:  ARGV  2026-02   -> { 1 }, 97 remain

assert(#KEYS == 1 and #ARGV == 1, 'refund: 1 key and 1 argument')
local count = tonumber(redis.call('HGET', KEYS[1], ARGV[1]))
if not count or count <= 0 then return { 0 } end
redis.call('HSET', KEYS[1], ARGV[1], string.format('%.0f', count - 1))
return { 1 }
