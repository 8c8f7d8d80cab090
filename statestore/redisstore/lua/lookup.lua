-- lookup.lua reads a session.
-- KEYS[1] record  [2] tombstone
-- Returns {now, record, tombstone}; what is not there is nil
register('lookup', READS, function()
  local record = redis.call('GET', KEYS[1])
  return { now, record, not record and redis.call('GET', KEYS[2]) }
end)
