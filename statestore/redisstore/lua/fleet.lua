-- fleet.lua reads at one moment what the caller does not know of the registry.
-- KEYS[1] counters  [2] instances  [3] rows of heartbeats  [4] policies
-- ARGV[2] version and [3] members that the caller knows, '' for none
-- Returns {now, version, members}, if another version {..., rows in a row}, if also
-- other members {..., {id, instance, ...}, {pool, policy, ...}}
register('fleet', READS, function()
  local counters = rcall('HMGET', KEYS[1], 'version', 'members')
  local version, members = counters[1] or '0', counters[2] or '0'
  if version == ARGV[2] then return { now, version, members } end
  local rows = concat(rcall('HVALS', KEYS[3]))
  if members == ARGV[3] then return { now, version, members, rows } end
  return { now, version, members, rows, rcall('HGETALL', KEYS[2]), rcall('HGETALL', KEYS[4]) }
end)
