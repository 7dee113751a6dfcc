-- Admits requests of one subject (a project, or a key or categories of it that have limits of their
-- own): takes rate tokens from its sliding 60-second windows, and counts requests in the project's
-- current UTC month, up to its quota. One call serves all requests that wait, in their order. A
-- refusal for the rate comes first: a request that gets no token is not counted.
--
-- Several windows, by number from 1. A token is booked in each of them, or in none: granted is what
-- all have room for. The result describes window 1.
--
-- The window. A token is booked at the END of its lease: the last moment at which a worker may
-- still use it. Every booking that ended less than a window ago counts, so whatever a worker does,
-- no 60-second interval holds more uses than the limit. Bookings are counted in buckets of 250 ms,
-- by their end rounded up: bucket b holds the leases that end in (b-1, b] * 250 ms. What requests
-- wait for (need) is leased for 250 ms, or for 750 ms while replies are slow; a reserve for 500 ms.
--
-- Contended. A full window becomes contended. It stays so until 65 s after it was last full or
-- scarce: by then each booking that filled it has left it. In a contended window workers take
-- turns: each gets a reserve, at most half of the room. One that wanted more than that half has
-- found the window scarce: it asks again 300 ms later at the earliest, as one does that found it
-- full. So an endless flood costs some three calls a second and worker, not one per token.
--
-- KEYS[1]  sluice:quota:{projectId}, a hash: <YYYY-MM> -> count. It stays for billing: the newest
--          month at least 500 days.
-- KEYS[2…] window 1 and the further ones: sluice:rate:{projectId}, or with :key:<id> or
--          :<category> behind it, a hash: sum, first, last (buckets), limit, rev, gen, seq, lost,
--          tight (when it was last full or scarce, to a second); <b> tokens booked in bucket b;
--          x<b> how many of them are reserve that is still outstanding. No bucket is kept at 0, so
--          the hash has at most some 500 fields. Expires by itself once the window is empty.
-- ARGV[1]  now, Unix ms; '' = Redis's own clock, which alone decides the month
-- ARGV[2]  who waits, a character each in arrival order: 't' needs a token; 'b' needs a token and
--          is to be counted; 'c' has a token, or needs none, and is to be counted. '' = none waits
-- ARGV[3]  limit of window 1, tokens, integer >= 1; '' = none: no window is touched, and only 'c'
--          may wait
-- ARGV[4]  registry revision of the record that says so; the newest that any worker brings is in
--          force
-- ARGV[5]  reserve wanted, integer >= 0; for limits up to 1000 only granted while the window is
--          contended
-- ARGV[6]  how long need is leased, ms, integer >= 1, at most 750
-- ARGV[7]  generation of window 1 that the caller saw last; '' = none
-- ARGV[8]  its sequence number then; '' = none
-- ARGV[9]  the moment, Unix ms, at which the window as the caller saw it would be empty; '' = none
-- ARGV[10] quota, integer >= 0; -1 = none, or overage is enabled: all are counted
-- ARGV[11] month that the start value belongs to, YYYY-MM; '' = no start value
-- ARGV[12] start value: the month's count before this call, taken only if the month has no count
--          yet, integer >= 0; '' = none
-- ARGV[13…] limits of the further windows, one each; then
--          triples (bucket, unused, used): reserve that the caller settles. Unused tokens were
--          never used and never will be: they leave the window. Used ones stay booked; they only
--          stop to count as outstanding. Need that came back too late is settled as (bucket, n,
--          -n): it never counted as outstanding.
--
-- Result   { window, month }
--          window: {} without a limit, else integers { granted, need's bucket, reserve, reserve's
--            bucket, tokens booked, limit in force, its revision, now (ms), empty at (ms), admits
--            at (ms; 0 while there is room), gen, seq, lost (0 or 1), scarce (0 or 1), refuses }
--            granted: the first so many of those that need a token have one.
--            admits at: for a caller that needed something and found or left a window full; of
--              several the one with the lowest number, so that one that is full for long hides no
--              other.
--            scarce: refuse for a while once the reserve is used up.
--            refuses: the number of the window of which admits at and scarce are said: it refuses
--              now, or once the reserve is used up; 0: none
--            lost: window 1 forgot bookings that the caller knows of. Said once in two minutes, to one
--              caller: others may know of them for a minute and a lease more.
--          month: {} when none is to be counted (but without limit and waiters: only looked at),
--            else { month, before, counted }: of those that have a token and are to be counted, the
--            first `counted` hold the positions before + 1 … before + counted. before = -1 means
--            MISSING: the month has no count and no start value came for it. No count is written;
--            the caller looks for a checkpoint and calls again. { error } when the count failed
--            (KEYS[1] is none of ours): tokens are booked all the same.
--
-- Example  limit 60, 58 booked, quota 100, 98 counted, at 2026-02-03:
--            ARGV  '' 'btbb' 60 7 0 250 '' '' '' 100 '' ''
--            -> { { 2, …, 0, …, 60, 60, 7, … }, { '2026-02', 98, 1 } }
--          tokens for the first two, a position for the first

local WINDOW_MS, BUCKET_MS, NEED_MS_MAX, RESERVE_MS = 60000, 250, 750, 500
local EXACT_LIMIT_MAX, RESERVE_SHARE = 1000, 0.005
local CONTENDED_MS, CONTENDED_RESERVE_SHARE = 65000, 0.02
local MARK_MS = 1000
-- The key outlives its window by this much, so that its absence proves an empty window.
local EXPIRY_SLACK_MS = 1000
-- Two fields for each bucket of a window and of the longest lease, and the named ones. A hash with
-- more has some of an earlier build.
local FIELDS_MAX, SWEEP_FIELDS = 2 * (WINDOW_MS + NEED_MS_MAX) / BUCKET_MS + 20, 1000
local KEEP_SEC = 500 * 86400

local further = #KEYS - 2 -- windows
assert(
  further >= 0 and #ARGV >= 12 + further and (#ARGV - further) % 3 == 0,
  'admit: 2 keys or more, 12 arguments, a limit for each further key, and triples'
)
local now = tonumber(ARGV[1])
if not now then
  local time = redis.call('TIME')
  now = tonumber(time[1]) * 1000 + tonumber(time[2]) / 1000
end
local waiting = ARGV[2]
local need = #string.gsub(waiting, 'c', '')

-- An earlier build kept buckets at 0 for ever. They leave a few at a time, so that no call takes
-- long.
local function removeLeftovers(key, firstBucket)
  if redis.call('HLEN', key) <= FIELDS_MAX then return end
  local found = redis.call('HSCAN', key, 0, 'COUNT', SWEEP_FIELDS)[2]
  local left = {}
  for i = 1, #found, 2 do
    local bucket = tonumber(string.match(found[i], '^x?(%d+)$'))
    local isDead = bucket and (not firstBucket or bucket < firstBucket or found[i + 1] == '0')
    if isDead then left[#left + 1] = found[i] end
  end
  if #left > 0 then redis.call('HDEL', key, unpack(left)) end
end

-- Places in the window's part of the result. No table by name: a list costs less, and it is what
-- Redis replies.
local GRANTED, RESERVE, ADMITS_AT, SCARCE, REFUSES = 1, 3, 10, 14, 15

-- Takes at most this many tokens, and this much reserve (wanted), from the window with this number
-- and from all behind it. Each asks the next one before it books, so all have decided when the last
-- one writes.
local function admitToWindow(number, tokens, wanted)
  local key = KEYS[number + 1]
  local limit = assert(tonumber(ARGV[number == 1 and 3 or 11 + number]), 'admit: limit')
  local revision = assert(tonumber(ARGV[4]), 'admit: revision')
  local needMs = assert(tonumber(ARGV[6]), 'admit: need is leased for')

  local needBucket = math.ceil((now + needMs) / BUCKET_MS)
  local reserveBucket = math.ceil((now + RESERVE_MS) / BUCKET_MS)
  local latestBucket = math.ceil((now + NEED_MS_MAX) / BUCKET_MS) -- no lease that is granted now ends later
  local deadBucket = math.floor((now - WINDOW_MS) / BUCKET_MS) -- it and all before it have left the window

  local needName = string.format('%d', needBucket)
  local stored = redis.call('HMGET', key, 'sum', 'first', 'last', 'limit', 'rev', 'gen', 'seq', 'lost',
    'tight', needName)
  local sum, firstBucket, lastBucket = tonumber(stored[1]) or 0, tonumber(stored[2]), tonumber(stored[3])
  local storedLimit, storedRevision = tonumber(stored[4]), tonumber(stored[5])
  local gen, seq, lostAt = tonumber(stored[6]), tonumber(stored[7]) or 0, tonumber(stored[8])
  local fullOrScarceAt = tonumber(stored[9])
  local exists = gen ~= nil

  local read = { [needName] = tonumber(stored[10]) or 0 } -- field -> value as stored
  local changed = {} -- field -> new value
  local dead = {} -- fields to delete

  local function field(name) -- the number in a bucket, with what this call changes
    if changed[name] then return changed[name] end
    read[name] = read[name] or tonumber(redis.call('HGET', key, name)) or 0
    return read[name]
  end

  local function buckets(from, to) -- the tokens of buckets from..to as stored, absent ones 0
    local names = {}
    for b = from, to do names[#names + 1] = string.format('%d', b) end
    local counts = redis.call('HMGET', key, unpack(names))
    for i = 1, #counts do counts[i] = tonumber(counts[i]) or 0 end
    return counts
  end

  -- ---- Decide: the clock stepped back. No lease can end later than one granted now, so what
  -- claims to is moved there; without this a step of an hour would close the window for an hour.
  if lastBucket and lastBucket > latestBucket then
    local all = redis.call('HGETALL', key)
    local moved = 0
    for i = 1, #all, 2 do
      local b = tonumber(all[i])
      if b and b > latestBucket then
        moved = moved + tonumber(all[i + 1])
        dead[#dead + 1] = all[i]
        dead[#dead + 1] = 'x' .. all[i]
      end
    end
    changed[string.format('%d', latestBucket)] = field(string.format('%d', latestBucket)) + moved
    firstBucket, lastBucket = math.min(firstBucket, latestBucket), latestBucket
  end

  -- ---- Decide: buckets that left the window
  -- After all have left, firstBucket is lastBucket + 1.
  if firstBucket and firstBucket <= math.min(deadBucket, lastBucket) then
    local to = math.min(deadBucket, lastBucket)
    for i, count in ipairs(buckets(firstBucket, to)) do
      if count > 0 then
        local name = string.format('%d', firstBucket + i - 1)
        sum = sum - count
        dead[#dead + 1] = name
        dead[#dead + 1] = 'x' .. name
      end
    end
    firstBucket = to + 1
  end

  -- ---- Decide: reserve is settled
  for i = 13 + further, #ARGV, 3 do
    local b, unused, used = tonumber(ARGV[i]), tonumber(ARGV[i + 1]), tonumber(ARGV[i + 2])
    if firstBucket and b >= firstBucket and b <= lastBucket then
      local name = string.format('%d', b)
      local back = math.min(unused, field(name))
      if back > 0 then changed[name] = field(name) - back end
      sum = sum - back
      local outstanding = field('x' .. name)
      if outstanding > 0 then
        local left = math.max(0, outstanding - unused - used)
        changed['x' .. name] = math.min(left, field(name))
      end
    end
  end

  -- ---- Decide: the limit in force
  local newer = not storedRevision or revision > storedRevision
  if not newer then limit, revision = storedLimit, storedRevision end

  -- ---- Decide: tokens
  local room = math.max(0, limit - sum)
  local granted = math.min(tokens, room)
  local contended = fullOrScarceAt ~= nil and math.abs(now - fullOrScarceAt) < CONTENDED_MS
  local reserve, scarce = 0, 0
  if wanted > 0 and granted == tokens and (contended or limit > EXACT_LIMIT_MAX) then
    local grantable = math.floor(limit * (contended and CONTENDED_RESERVE_SHARE or RESERVE_SHARE))
    for b = math.floor(now / BUCKET_MS) + 1, reserveBucket do
      grantable = grantable - field('x' .. string.format('%d', b))
    end
    -- Half of what may still be handed out: the next worker finds some too.
    local share = math.ceil(grantable / 2)
    if contended then
      share = math.ceil((room - granted) / 2)
      if share < wanted then scarce = 1 end
    end
    reserve = math.max(0, math.min(wanted, grantable, share, room - granted))
  end

  -- ---- Decide: what the windows behind this one have
  local rest = number <= further and admitToWindow(number + 1, granted, reserve)
  if rest then granted, reserve = rest[GRANTED], rest[RESERVE] end

  local function book(bucket, count)
    if count == 0 then return end
    local name = string.format('%d', bucket)
    changed[name] = field(name) + count
    sum = sum + count
    firstBucket = math.min(firstBucket or bucket, bucket)
    lastBucket = math.max(lastBucket or bucket, bucket)
  end
  local lastBucketBefore = tonumber(stored[3])
  book(needBucket, granted)
  book(reserveBucket, reserve)
  if reserve > 0 then
    local name = 'x' .. string.format('%d', reserveBucket)
    changed[name] = field(name) + reserve
  end

  -- ---- Decide: when the next token can be had
  local admitsAt = 0
  if need > 0 and sum >= limit then
    local left = sum
    for i, count in ipairs(buckets(firstBucket, lastBucket)) do
      local b = firstBucket + i - 1
      left = left - (changed[string.format('%d', b)] or count)
      if left < limit then
        admitsAt = b * BUCKET_MS + WINDOW_MS
        break
      end
    end
  end

  -- ---- Decide: is something missing that the caller knows of?
  local knownGen, knownSeq, knownEmptyAt = tonumber(ARGV[7]), tonumber(ARGV[8]), tonumber(ARGV[9])
  local lost = 0
  if number == 1 and knownGen and knownEmptyAt > now and (gen ~= knownGen or seq < knownSeq) then
    if not lostAt or now - lostAt > 2 * WINDOW_MS then lost = 1 end
  end

  -- ---- Write. First what can be refused for want of memory; nothing of a refused call remains.
  local taken = granted + reserve
  -- Not at every refusal: while no request gets a token, a flood shall not cost a write per call.
  local marked = fullOrScarceAt and math.abs(now - fullOrScarceAt) < MARK_MS
  local mark = not marked and (admitsAt > 0 or scarce == 1)
  if taken > 0 or lost == 1 or exists and (newer or mark or #dead > 0 or next(changed)) then
    if not gen then gen = math.floor(now) end
    if taken > 0 then seq = seq + 1 end
    local set = { 'sum', sum, 'gen', gen, 'seq', seq }
    local function put(name, value)
      set[#set + 1] = name
      set[#set + 1] = string.format('%.0f', value)
    end
    if firstBucket then put('first', firstBucket) end
    if lastBucket then put('last', lastBucket) end
    if newer then
      put('limit', limit)
      put('rev', revision)
    end
    if lost == 1 then put('lost', now) end
    if mark then put('tight', now) end
    for name, value in pairs(changed) do
      if value > 0 then put(name, value) else dead[#dead + 1] = name end
    end
    redis.call('HSET', key, unpack(set))
    if #dead > 0 then redis.call('HDEL', key, unpack(dead)) end
    if not exists or taken > 0 and lastBucket ~= lastBucketBefore then
      removeLeftovers(key, firstBucket)
      local ends = lastBucket and lastBucket * BUCKET_MS or now
      redis.call('PEXPIRE', key, math.ceil(ends + WINDOW_MS - now + EXPIRY_SLACK_MS))
    end
  end

  local emptyAt = sum > 0 and lastBucket * BUCKET_MS + WINDOW_MS or now
  local refuses = (admitsAt > 0 or scarce == 1) and number or 0
  if rest and admitsAt == 0 and rest[REFUSES] > 0 then
    admitsAt, scarce, refuses = rest[ADMITS_AT], rest[SCARCE], rest[REFUSES]
  end
  return {
    granted, needBucket, reserve, reserveBucket, sum, limit, revision,
    math.floor(now), math.ceil(emptyAt), admitsAt, gen or 0, seq, lost, scarce, refuses,
  }
end

-- Year and month of a Unix time (days to civil date, after the proleptic Gregorian calendar; no
-- os.date in scripts).
local function monthOf(ms)
  local days = math.floor(ms / 86400000) + 719468
  local era = math.floor(days / 146097)
  local day = days - era * 146097
  local leapDays = math.floor(day / 1460) - math.floor(day / 36524) + math.floor(day / 146096)
  local year = math.floor((day - leapDays) / 365)
  local dayOfYear = day - (365 * year + math.floor(year / 4) - math.floor(year / 100))
  local month = math.floor((5 * dayOfYear + 2) / 153) -- 0 = March
  local civil = month < 10 and month + 3 or month - 9
  return string.format('%04d-%02d', year + era * 400 + (civil <= 2 and 1 or 0), civil)
end

local function countInMonth(n)
  local quota = assert(tonumber(ARGV[10]), 'admit: quota')
  local month = monthOf(now)
  local before = tonumber(redis.call('HGET', KEYS[1], month))
  local fresh = before == nil
  if fresh then
    if ARGV[11] ~= month then return { month, -1, 0 } end
    before = assert(tonumber(ARGV[12]), 'admit: start value')
  end
  local counted = n
  if quota >= 0 then counted = math.max(0, math.min(n, quota - before)) end
  if counted > 0 or fresh then
    redis.call('HSET', KEYS[1], month, string.format('%.0f', before + counted))
    if fresh then redis.call('EXPIRE', KEYS[1], KEEP_SEC) end
  end
  return { month, before, counted }
end

local limited, window = ARGV[3] ~= '', {}
if limited then window = admitToWindow(1, need, assert(tonumber(ARGV[5]), 'admit: reserve wanted')) end
local tokens, n = window[GRANTED] or 0, 0
for kind in string.gmatch(waiting, '.') do
  local granted = kind == 'c' or tokens > 0
  if kind ~= 'c' then tokens = tokens - 1 end
  if granted and kind ~= 't' then n = n + 1 end
end
if n == 0 and (limited or waiting ~= '') then return { window, {} } end
local done, counted = pcall(countInMonth, n)
if not done then
  local reason = type(counted) == 'table' and counted.err or tostring(counted)
  if not string.find(reason, 'WRONGTYPE', 1, true) then error(counted, 0) end
  counted = { reason }
end
return { window, counted }
