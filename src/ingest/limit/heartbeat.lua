-- Admits the first 5 pings of one heartbeat token in any one-second interval.
--
-- KEYS[1]  sluice:heartbeat:{token}, a string: the moments (Unix microseconds) of the newest
--          admitted pings, oldest first, separated by commas, at most 5
-- ARGV[1]  now, Unix microseconds; '' = Redis's own clock
-- ARGV[2]  how many pings wait, integer >= 1
--
-- Result   { how many of the waiting pings are admitted, microseconds until the next ping can be
--          admitted (0 when no ping was refused) }
--
-- Example  3 admitted a moment ago:  ARGV  '' 4   -> { 2, 999000 }

local PER_SECOND, INTERVAL_US = 5, 1000000
-- Longer than INTERVAL_US, because a test may pass a `now` that is slower than Redis's clock. A key
-- that expires late changes no decision: the script compares the moments in the key with `now`.
local KEEP_MS = 10000

assert(#KEYS == 1 and #ARGV == 2, 'heartbeat: 1 key and 2 arguments')
local now = tonumber(ARGV[1])
if not now then
  local time = redis.call('TIME')
  now = tonumber(time[1]) * 1000000 + tonumber(time[2])
end
local pings = assert(tonumber(ARGV[2]), 'heartbeat: pings')

-- ---- Decide. A moment in the future means that the clock stepped back: the ping of that moment
-- counts as admitted now.
local admitted, clockSteppedBack = {}, false
for text in string.gmatch(redis.call('GET', KEYS[1]) or '', '%d+') do
  local at = tonumber(text)
  if at > now then at, clockSteppedBack = now, true end
  if at > now - INTERVAL_US then admitted[#admitted + 1] = at end
end
local granted = math.min(pings, PER_SECOND - #admitted)
for _ = 1, granted do admitted[#admitted + 1] = now end
local waitUs = 0
if granted < pings then waitUs = admitted[1] + INTERVAL_US - now end

-- ---- Write
if granted > 0 or clockSteppedBack then
  for i = 1, #admitted do admitted[i] = string.format('%.0f', admitted[i]) end
  redis.call('SET', KEYS[1], table.concat(admitted, ','), 'PX', KEEP_MS)
end
return { granted, waitUs }
