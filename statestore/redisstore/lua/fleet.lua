-- fleet.lua reads the registry at one moment.
-- KEYS[1] counters  [2] instances  [3] heartbeats  [4] policies
-- Returns {now, version, members, {id, instance, ...}, {id, heartbeats, ...}, {pool, policy, ...}}
register('fleet', READS, function()
  local counters = rcall('HMGET', KEYS[1], 'version', 'members')
  return {
    now, counters[1], counters[2], rcall('HGETALL', KEYS[2]), rcall('HGETALL', KEYS[3]), rcall('HGETALL', KEYS[4]),
  }
end)
