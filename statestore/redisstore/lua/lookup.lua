-- lookup.lua reads a session.
-- KEYS[1] record  [2] tombstone
-- Returns {now, record, tombstone}; what is not there is nil
register('lookup', READS, function()
  local record = rcall('GET', KEYS[1])
  return { now, record, not record and rcall('GET', KEYS[2]) }
end)
