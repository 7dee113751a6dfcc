-- A rate token and the quota in one call: for requests whose body is whole, so that only these two stand between them and the stream.
-- It runs rate-window.lua and then, for those who got a token, quota.lua; scripts.ts puts both before it as functions of these names.
--
-- KEYS[1]  sluice:rate:{projectId}, see rate-window.lua
-- KEYS[2]  sluice:quota:{projectId}, see quota.lua
-- ARGV[1]  who of those that wait for a token is to be counted when he gets one: '1' or '0' for each, in their order
-- ARGV[2]  ARGV[3] of quota.lua: the quota, -1 = none
-- ARGV[3…] ARGV of rate-window.lua
--
-- Result   { what rate-window.lua returns, what quota.lua returns for those that were granted a token and are to be counted }
--          The second is empty when there are none: nothing was counted then. Where quota.lua fails (its key is none of ours) it is the
--          error as one text: the tokens are booked, and the answer is that of a quota that cannot be counted.
--
-- Example  three wait, the second has no whole body yet; 2 tokens are left; quota 100, 98 counted:  ARGV  101 100 '' 60 7 3 0 '' '' ''
--          -> { { 2, 4001, 0, 4002, 60, … }, { '2026-02', 98, 1 } }

assert(#KEYS == 2 and #ARGV >= 10, 'admit: 2 keys, 2 arguments and those of rate-window')
local window = rateWindow({ KEYS[1] }, { unpack(ARGV, 3) })
local _, counting = string.gsub(string.sub(ARGV[1], 1, window[1]), '1', '')
if counting == 0 then return { window, {} } end
local done, counted = pcall(quota, { KEYS[2] }, { window[8], counting, ARGV[2], '', '' }) -- window[8]: now, read once
if not done then counted = { type(counted) == 'table' and counted.err or tostring(counted) } end
return { window, counted }
