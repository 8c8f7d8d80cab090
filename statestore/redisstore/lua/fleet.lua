-- fleet.lua reads the registry at one moment.
-- KEYS[1] counters  [2] instances  [3] heartbeats   ARGV[1] ms added to the clock
-- Returns {now, version, members, {id, instance, ...}, {id, heartbeats, ...}}
local time = redis.call('TIME')
local counters = redis.call('HMGET', KEYS[1], 'version', 'members')
return {
  time[1] * 1000 + math.floor(time[2] / 1000) + ARGV[1], counters[1], counters[2],
  redis.call('HGETALL', KEYS[2]), redis.call('HGETALL', KEYS[3]),
}
