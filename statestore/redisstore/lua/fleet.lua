-- fleet.lua reads the registry at one moment.
-- KEYS[1] counters  [2] instances  [3] heartbeats
-- Returns {now, version, members, {id, instance, ...}, {id, heartbeats, ...}}
register('fleet', READS, function()
  local counters = rcall('HMGET', KEYS[1], 'version', 'members')
  return { now, counters[1], counters[2], rcall('HGETALL', KEYS[2]), rcall('HGETALL', KEYS[3]) }
end)
