-- Adds the counts of another cell to the months of one project. A cell is a whole installation of
-- sluice. The project moves to that cell or came from it, and both cells count its requests
-- meanwhile.
--
-- KEYS[1]  sluice:quota:{projectId}, see admit.lua. A field <YYYY-MM>:<cell> says how much of the
--          month's count came from that cell
-- ARGV[1]  name of the other cell
-- ARGV[2…] pairs: month, YYYY-MM; the other cell's count of this month, without the part that came
--          from this cell, integer >= 0. The script adds the growth since the last call, so the
--          same pair may come again
--
-- Result   { month, count, month, count, … } of all months, without the parts that came from the
--          other cell
--
-- Example  98 counted:  ARGV  paris 2026-02 20 -> { 2026-02, 98 }, and 118 are counted now

local KEEP_SEC = 500 * 86400

assert(#KEYS == 1 and #ARGV % 2 == 1, 'share-usage: 1 key, a cell, and pairs')
local cell = ARGV[1]
for at = 2, #ARGV, 2 do
  local month, figure = ARGV[at], assert(tonumber(ARGV[at + 1]), 'share-usage: figure')
  local field = month .. ':' .. cell
  local added = tonumber(redis.call('HGET', KEYS[1], field)) or 0
  if figure > added then
    local isNew = redis.call('EXISTS', KEYS[1]) == 0
    redis.call('HINCRBY', KEYS[1], month, string.format('%.0f', figure - added))
    redis.call('HSET', KEYS[1], field, string.format('%.0f', figure))
    if isNew then redis.call('EXPIRE', KEYS[1], KEEP_SEC) end
  end
end
local all, counts, added = redis.call('HGETALL', KEYS[1]), {}, {}
for at = 1, #all, 2 do
  local month, from = string.match(all[at], '^(%d+%-%d+):(.+)$')
  if not month then counts[all[at]] = tonumber(all[at + 1])
  elseif from == cell then added[month] = tonumber(all[at + 1]) end
end
local result = {}
for month, count in pairs(counts) do
  result[#result + 1] = month
  result[#result + 1] = math.max(0, count - (added[month] or 0))
end
return result
