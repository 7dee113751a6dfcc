-- Removes all counts of one project: its usage of all months, and its rate windows.
--
-- KEYS[1]  sluice:quota:{projectId}, see admit.lua
-- KEYS[2…] sluice:rate:{projectId}, and the windows of its keys and categories, see admit.lua
--
-- Result   { month, count, month, count, … } before the removal; counts are text
--
-- Example  98 counted in February  -> { '2026-02', '98' }

assert(#KEYS >= 2 and #ARGV == 0, 'forget-usage: 2 keys or more and no argument')
local months = redis.call('HGETALL', KEYS[1])
redis.call('DEL', unpack(KEYS))
return months
