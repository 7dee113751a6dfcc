-- Admits requests of one scope: a project, or a key or categories of it that have limits of their
-- own. The script takes rate tokens from the scope's sliding 60-second windows, and counts requests
-- in the project's current UTC month, up to its quota. One call serves all requests that wait, in
-- their order. A request that gets no token is refused for the rate, and is not counted.
--
-- Windows. A call may name several windows, numbered from 1. A token is booked in each of them or
-- in none, so a call grants as many tokens as all windows have room for. The result describes
-- window 1.
--
-- Bookings. A worker leases tokens for some time. A token is booked at the END of its lease: the
-- last moment at which the worker may still use it. Each booking counts until 60 s after this
-- moment. So whatever a worker does, no 60-second interval holds more uses than the limit. Bookings
-- are counted in buckets of 250 ms, by the end of the lease, rounded up: bucket b holds the leases
-- that end in (b-1, b] * 250 ms.
--
-- Need and reserve. Need is the tokens that requests already wait for. They are leased for 250 ms,
-- or for 750 ms while replies are slow. Reserve is tokens for requests to come, leased for 500 ms.
--
-- Contended. A window becomes contended when it is full. It stays contended until 65 s after it was
-- last full or scarce: by then each booking that filled it has left it. In a contended window
-- workers take turns: each gets a reserve of at most half of the room. A worker that wanted more
-- than this half has found the window scarce. This worker, like one that found the window full,
-- asks again 300 ms later at the earliest. So an endless flood costs some three calls a second and
-- worker, not one call per token.
--
-- KEYS[1]  sluice:quota:{projectId}, a hash: <YYYY-MM> -> count. For billing the hash stays until
--          500 days after the first count of its newest month.
-- KEYS[2…] windows 1, 2, …: sluice:rate:{projectId}, or with :key:<id> or :<category> behind it. A
--          hash with the fields
--            sum          all tokens that are booked in the window
--            first, last  the buckets that may have bookings
--            limit, rev   the limit in force, and its revision
--            gen          when the hash was made, Unix ms
--            seq          grows with each call that takes tokens
--            lost         when the script last reported a loss, Unix ms
--            tight        when the window was last full or scarce, Unix ms, to a second
--            <b>          tokens that are booked in bucket b
--            x<b>         how many of them are reserve that is still outstanding
--          No bucket is kept at 0, so the hash has at most some 500 fields. It expires by itself
--          once the window is empty.
-- ARGV[1]  now, Unix ms; '' = Redis's own clock, which alone decides the month
-- ARGV[2]  who waits, a character for each request in arrival order: 't' needs a token; 'b' needs a
--          token and is to be counted; 'c' is to be counted, and has a token or needs none. '' =
--          nobody waits
-- ARGV[3]  limit of window 1, tokens, integer >= 1; '' = no limit: the script touches no window,
--          and only 'c' may wait
-- ARGV[4]  revision of the registry's record that has the limits. Of the limits that workers bring,
--          the one with the newest revision is in force
-- ARGV[5]  reserve wanted, integer >= 0. With a limit up to 1000 it is granted only while the
--          window is contended
-- ARGV[6]  how long need is leased, ms, integer >= 1, at most 750
-- ARGV[7]  gen of window 1 that the caller saw last; '' = none
-- ARGV[8]  seq of window 1 that the caller saw together with that gen; '' = none
-- ARGV[9]  when window 1, as the caller saw it, would be empty, Unix ms; '' = none
-- ARGV[10] quota, integer >= 0; -1 = no quota, or overage is enabled: all requests are counted
-- ARGV[11] month that the start value belongs to, YYYY-MM; '' = no start value
-- ARGV[12] start value: the month's count before this call, taken only if the month has no count
--          yet, integer >= 0; '' = none
-- ARGV[13…] limits of windows 2, 3, …, one each; then
--          triples (bucket, unused, used), with which the caller settles reserve. Unused tokens
--          were never used and never will be: they leave the window. Used tokens stay booked; they
--          only stop counting as outstanding. Need that came back too late is settled as (bucket,
--          n, -n), because it never counted as outstanding.
--
-- Result   { window, month }
--          window: {} without a limit, else integers { granted, need's bucket, reserve, reserve's
--            bucket, tokens booked, limit in force, its revision, now (ms), empty at (ms), admits
--            at (ms), gen, seq, lost (0 or 1), scarce (0 or 1), refusing window }
--            granted: how many requests got a token, the first of those that need one
--            admits at: when the next token can be had, if the caller needed a token and found or
--              left a window full; else 0. When several windows are full, it is about the one with
--              the lowest number, not about the one that stays full for longest
--            lost: 1 = window 1 forgot bookings that the caller knows of. The script reports this
--              once in two minutes, to one caller, because other callers know of the same bookings
--              until a minute and a lease later
--            scarce: 1 = the caller shall refuse for a while once its reserve is used up
--            refusing window: number of the window that `admits at` and `scarce` are about. It
--              refuses now, or once the reserve is used up. 0 = none
--          month: {} when the call has a limit or waiting requests, but no request is to be
--            counted; else { month, before, counted }. Without a limit and waiting requests, the
--            call only reads the count. Of the requests that have a token and are to be counted,
--            the first `counted` hold the positions before + 1 … before + counted.
--            before = -1 means MISSING: the month has no count, and no start value came for it. The
--            script writes no count; the caller looks for a checkpoint and calls again.
--            { error } when the count failed because KEYS[1] is not a hash. Tokens are booked all
--            the same.
--
-- Example  limit 60, 58 booked, quota 100, 98 counted, at 2026-02-03:
--            ARGV  '' 'btbb' 60 7 0 250 '' '' '' 100 '' ''
--            -> { { 2, …, 0, …, 60, 60, 7, … }, { '2026-02', 98, 1 } }
--          tokens for the first two, a position for the first

local WINDOW_MS, BUCKET_MS, NEED_MS_MAX, RESERVE_MS = 60000, 250, 750, 500
local EXACT_LIMIT_MAX, RESERVE_SHARE = 1000, 0.005
local CONTENDED_MS, CONTENDED_RESERVE_SHARE = 65000, 0.02
local MARK_MS = 1000
-- A window's hash expires this long after the window is empty. So when the hash is absent, the
-- window is certainly empty.
local EXPIRY_SLACK_MS = 1000
-- FIELDS_MAX: two fields for each bucket of a window and of the longest lease, and the named
-- fields. A hash with more has leftovers of an earlier build. SWEEP_FIELDS: how many fields one
-- call looks at.
local FIELDS_MAX, SWEEP_FIELDS = 2 * (WINDOW_MS + NEED_MS_MAX) / BUCKET_MS + 20, 1000
local KEEP_SEC = 500 * 86400

local furtherCount = #KEYS - 2
assert(
  furtherCount >= 0 and #ARGV >= 12 + furtherCount and (#ARGV - furtherCount) % 3 == 0,
  'admit: 2 keys or more, 12 arguments, a limit for each further key, and triples'
)
local now = tonumber(ARGV[1])
if not now then
  local time = redis.call('TIME')
  now = tonumber(time[1]) * 1000 + tonumber(time[2]) / 1000
end
local waiting = ARGV[2]
local needCount = #string.gsub(waiting, 'c', '')

-- Removes buckets that an earlier build kept at 0 for ever. A call removes a few of them, so that
-- no call takes long.
local function removeLeftovers(key, firstBucket)
  if redis.call('HLEN', key) <= FIELDS_MAX then return end
  local found = redis.call('HSCAN', key, 0, 'COUNT', SWEEP_FIELDS)[2]
  local leftovers = {}
  for i = 1, #found, 2 do
    local bucket = tonumber(string.match(found[i], '^x?(%d+)$'))
    local isDead = bucket and (not firstBucket or bucket < firstBucket or found[i + 1] == '0')
    if isDead then leftovers[#leftovers + 1] = found[i] end
  end
  if #leftovers > 0 then redis.call('HDEL', key, unpack(leftovers)) end
end

-- Places in the window's part of the result. The result is a list, because Redis replies a list and
-- a table by names would cost more.
local GRANTED, RESERVE, ADMITS_AT, SCARCE, REFUSING_WINDOW = 1, 3, 10, 14, 15

-- Takes at most tokensWanted tokens and reserveWanted reserve from the window with this number, and
-- as many from each window with a higher number. A window first decides; then it asks the next
-- window, which may grant less; then it writes. So the last window writes first, and nothing is
-- written before all windows have decided.
local function takeFromWindows(number, tokensWanted, reserveWanted)
  local key = KEYS[number + 1]
  local limit = assert(tonumber(ARGV[number == 1 and 3 or 11 + number]), 'admit: limit')
  local revision = assert(tonumber(ARGV[4]), 'admit: revision')
  local needMs = assert(tonumber(ARGV[6]), 'admit: need is leased for')

  local needBucket = math.ceil((now + needMs) / BUCKET_MS)
  local reserveBucket = math.ceil((now + RESERVE_MS) / BUCKET_MS)
  -- No lease that is granted now ends later than latestBucket. deadBucket and all buckets before it
  -- have left the window.
  local latestBucket = math.ceil((now + NEED_MS_MAX) / BUCKET_MS)
  local deadBucket = math.floor((now - WINDOW_MS) / BUCKET_MS)

  local needName = string.format('%d', needBucket)
  local stored = redis.call('HMGET', key, 'sum', 'first', 'last', 'limit', 'rev', 'gen', 'seq', 'lost',
    'tight', needName)
  local sum, firstBucket, lastBucket = tonumber(stored[1]) or 0, tonumber(stored[2]), tonumber(stored[3])
  local storedLimit, storedRevision = tonumber(stored[4]), tonumber(stored[5])
  local gen, seq, lostAt = tonumber(stored[6]), tonumber(stored[7]) or 0, tonumber(stored[8])
  local fullOrScarceAt = tonumber(stored[9])
  local exists = gen ~= nil

  local oldValues = { [needName] = tonumber(stored[10]) or 0 } -- by field, as stored
  local newValues = {} -- by field
  local fieldsToDelete = {}

  local function valueOf(name) -- the number in a field, with the changes of this call
    if newValues[name] then return newValues[name] end
    oldValues[name] = oldValues[name] or tonumber(redis.call('HGET', key, name)) or 0
    return oldValues[name]
  end

  local function buckets(from, to) -- the tokens of buckets from..to as stored, absent ones 0
    local names = {}
    for b = from, to do names[#names + 1] = string.format('%d', b) end
    local counts = redis.call('HMGET', key, unpack(names))
    for i = 1, #counts do counts[i] = tonumber(counts[i]) or 0 end
    return counts
  end

  -- ---- Decide: the clock stepped back. No lease can end later than one that is granted now. So
  -- bookings in later buckets move to the latest possible bucket. Otherwise a step of an hour would
  -- close the window for an hour.
  if lastBucket and lastBucket > latestBucket then
    local all = redis.call('HGETALL', key)
    local moved = 0
    for i = 1, #all, 2 do
      local b = tonumber(all[i])
      if b and b > latestBucket then
        moved = moved + tonumber(all[i + 1])
        fieldsToDelete[#fieldsToDelete + 1] = all[i]
        fieldsToDelete[#fieldsToDelete + 1] = 'x' .. all[i]
      end
    end
    newValues[string.format('%d', latestBucket)] = valueOf(string.format('%d', latestBucket)) + moved
    firstBucket, lastBucket = math.min(firstBucket, latestBucket), latestBucket
  end

  -- ---- Decide: buckets that left the window
  -- After all buckets have left, firstBucket is lastBucket + 1.
  if firstBucket and firstBucket <= math.min(deadBucket, lastBucket) then
    local to = math.min(deadBucket, lastBucket)
    for i, count in ipairs(buckets(firstBucket, to)) do
      if count > 0 then
        local name = string.format('%d', firstBucket + i - 1)
        sum = sum - count
        fieldsToDelete[#fieldsToDelete + 1] = name
        fieldsToDelete[#fieldsToDelete + 1] = 'x' .. name
      end
    end
    firstBucket = to + 1
  end

  -- ---- Decide: reserve is settled
  for i = 13 + furtherCount, #ARGV, 3 do
    local b, unused, used = tonumber(ARGV[i]), tonumber(ARGV[i + 1]), tonumber(ARGV[i + 2])
    if firstBucket and b >= firstBucket and b <= lastBucket then
      local name = string.format('%d', b)
      local returned = math.min(unused, valueOf(name))
      if returned > 0 then newValues[name] = valueOf(name) - returned end
      sum = sum - returned
      local outstanding = valueOf('x' .. name)
      if outstanding > 0 then
        local remaining = math.max(0, outstanding - unused - used)
        newValues['x' .. name] = math.min(remaining, valueOf(name))
      end
    end
  end

  -- ---- Decide: the limit in force
  local newer = not storedRevision or revision > storedRevision
  if not newer then limit, revision = storedLimit, storedRevision end

  -- ---- Decide: tokens
  local room = math.max(0, limit - sum)
  local granted = math.min(tokensWanted, room)
  local contended = fullOrScarceAt ~= nil and math.abs(now - fullOrScarceAt) < CONTENDED_MS
  local reserve, scarce = 0, 0
  if reserveWanted > 0 and granted == tokensWanted and (contended or limit > EXACT_LIMIT_MAX) then
    local grantable = math.floor(limit * (contended and CONTENDED_RESERVE_SHARE or RESERVE_SHARE))
    for b = math.floor(now / BUCKET_MS) + 1, reserveBucket do
      grantable = grantable - valueOf('x' .. string.format('%d', b))
    end
    -- Half of the reserve that may still be granted, so that the next worker finds some, too.
    local mostReserve = math.ceil(grantable / 2)
    if contended then
      mostReserve = math.ceil((room - granted) / 2)
      if mostReserve < reserveWanted then scarce = 1 end
    end
    reserve = math.max(0, math.min(reserveWanted, grantable, mostReserve, room - granted))
  end

  -- ---- Decide: tokens and reserve that the windows with higher numbers grant
  local behind = number <= furtherCount and takeFromWindows(number + 1, granted, reserve)
  if behind then granted, reserve = behind[GRANTED], behind[RESERVE] end

  local function book(bucket, count)
    if count == 0 then return end
    local name = string.format('%d', bucket)
    newValues[name] = valueOf(name) + count
    sum = sum + count
    firstBucket = math.min(firstBucket or bucket, bucket)
    lastBucket = math.max(lastBucket or bucket, bucket)
  end
  local lastBucketBefore = tonumber(stored[3])
  book(needBucket, granted)
  book(reserveBucket, reserve)
  if reserve > 0 then
    local name = 'x' .. string.format('%d', reserveBucket)
    newValues[name] = valueOf(name) + reserve
  end

  -- ---- Decide: when the next token can be had
  -- needCount, not tokensWanted: tokensWanted is 0 when an earlier window had no token left.
  local admitsAt = 0
  if needCount > 0 and sum >= limit then
    local booked = sum
    for i, count in ipairs(buckets(firstBucket, lastBucket)) do
      local b = firstBucket + i - 1
      booked = booked - (newValues[string.format('%d', b)] or count)
      if booked < limit then
        admitsAt = b * BUCKET_MS + WINDOW_MS
        break
      end
    end
  end

  -- ---- Decide: are bookings missing that the caller knows of?
  local knownGen, knownSeq, knownEmptyAt = tonumber(ARGV[7]), tonumber(ARGV[8]), tonumber(ARGV[9])
  local lost = 0
  if number == 1 and knownGen and knownEmptyAt > now and (gen ~= knownGen or seq < knownSeq) then
    if not lostAt or now - lostAt > 2 * WINDOW_MS then lost = 1 end
  end

  -- ---- Write. HSET comes first: Redis refuses HSET when memory is full, and then the script ends
  -- before it has written to this window.
  local taken = granted + reserve
  -- A refusal is marked at most once in MARK_MS, so that a flood of refused requests does not cost
  -- a write per call.
  local isMarked = fullOrScarceAt and math.abs(now - fullOrScarceAt) < MARK_MS
  local shouldMark = not isMarked and (admitsAt > 0 or scarce == 1)
  if taken > 0 or lost == 1 or exists and (newer or shouldMark or #fieldsToDelete > 0 or next(newValues)) then
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
    if shouldMark then put('tight', now) end
    for name, value in pairs(newValues) do
      if value > 0 then put(name, value) else fieldsToDelete[#fieldsToDelete + 1] = name end
    end
    redis.call('HSET', key, unpack(set))
    if #fieldsToDelete > 0 then redis.call('HDEL', key, unpack(fieldsToDelete)) end
    if not exists or taken > 0 and lastBucket ~= lastBucketBefore then
      removeLeftovers(key, firstBucket)
      local ends = lastBucket and lastBucket * BUCKET_MS or now
      redis.call('PEXPIRE', key, math.ceil(ends + WINDOW_MS - now + EXPIRY_SLACK_MS))
    end
  end

  local emptyAt = sum > 0 and lastBucket * BUCKET_MS + WINDOW_MS or now
  local refusingWindow = (admitsAt > 0 or scarce == 1) and number or 0
  if behind and admitsAt == 0 and behind[REFUSING_WINDOW] > 0 then
    admitsAt, scarce, refusingWindow = behind[ADMITS_AT], behind[SCARCE], behind[REFUSING_WINDOW]
  end
  return {
    granted, needBucket, reserve, reserveBucket, sum, limit, revision,
    math.floor(now), math.ceil(emptyAt), admitsAt, gen or 0, seq, lost, scarce, refusingWindow,
  }
end

-- Returns year and month of a Unix time, by the proleptic Gregorian calendar. Redis's scripts have
-- no os.date.
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

local function countInMonth(toCount)
  local quota = assert(tonumber(ARGV[10]), 'admit: quota')
  local month = monthOf(now)
  local before = tonumber(redis.call('HGET', KEYS[1], month))
  local hasNoCount = before == nil
  if hasNoCount then
    if ARGV[11] ~= month then return { month, -1, 0 } end
    before = assert(tonumber(ARGV[12]), 'admit: start value')
  end
  local counted = toCount
  if quota >= 0 then counted = math.max(0, math.min(toCount, quota - before)) end
  if counted > 0 or hasNoCount then
    redis.call('HSET', KEYS[1], month, string.format('%.0f', before + counted))
    if hasNoCount then redis.call('EXPIRE', KEYS[1], KEEP_SEC) end
  end
  return { month, before, counted }
end

local limited, window = ARGV[3] ~= '', {}
if limited then window = takeFromWindows(1, needCount, assert(tonumber(ARGV[5]), 'admit: reserve wanted')) end
local tokensLeft, toCount = window[GRANTED] or 0, 0
for kind in string.gmatch(waiting, '.') do
  local hasToken = kind == 'c' or tokensLeft > 0
  if kind ~= 'c' then tokensLeft = tokensLeft - 1 end
  if hasToken and kind ~= 't' then toCount = toCount + 1 end
end
if toCount == 0 and (limited or waiting ~= '') then return { window, {} } end
local done, month = pcall(countInMonth, toCount)
if not done then
  local reason = type(month) == 'table' and month.err or tostring(month)
  if not string.find(reason, 'WRONGTYPE', 1, true) then error(month, 0) end
  month = { reason }
end
return { window, month }
