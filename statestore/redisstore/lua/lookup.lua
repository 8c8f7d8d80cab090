-- lookup.lua reads a session and the clock that its times are told by.
-- KEYS[1] record  [2] tombstone   ARGV[1] ms added to the clock
-- Returns {now, record, tombstone}; what is not there is nil
local time = redis.call('TIME')
local got = redis.call('MGET', KEYS[1], KEYS[2])
return { time[1] * 1000 + math.floor(time[2] / 1000) + ARGV[1], got[1], got[2] }
