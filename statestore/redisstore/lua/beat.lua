-- beat.lua counts heartbeats, each in the row of its instance.
-- KEYS[1] counters  [2] instances  [3] rows of heartbeats
-- ARGV[2] members that the caller knows
--     [3...] instance, incarnation, what its heartbeat tells, in turn
-- Returns {now, members, {count, ...}, {instance, ...}}: the count is 0 for another boot,
-- -1 for no such instance; instances only where the caller does not know the members
register('beat', FREES, function()
  local ids = {}
  for i = 3, #ARGV, 3 do ids[#ids + 1] = ARGV[i] end
  local rows = rcall('HMGET', KEYS[3], spread(ids))
  local last, counts, changes = {}, {}, {}
  for n, id in ipairs(ids) do
    local boot = ARGV[3 * n + 1]
    local who = pack('>Bc0Bc0', #id, id, #boot, boot)
    local row = last[id] or rows[n]
    local count
    if row then
      count = sub(row, 17, 16 + #who) == who and unpack_at('>I8', row) + 1 or 0
    else
      -- Nobody registers without a row; but one that was lost must stop no worker.
      local stored = rcall('HGET', KEYS[2], id)
      count = not stored and -1 or cjson.decode(stored).incarnation == boot and 1 or 0
    end
    counts[n] = count
    if count > 0 then
      last[id] = pack('>I8I8', count, now) .. who .. ARGV[3 * n + 2]
      changes[#changes + 1] = id
      changes[#changes + 1] = last[id]
    end
  end
  local counters = rcall('HMGET', KEYS[1], 'version', 'members')
  if #changes > 0 then
    rcall('HSET', KEYS[3], spread(changes))
    rcall('HSET', KEYS[1], 'version', max((counters[1] or 0) + 1, now))
  end
  local members = counters[2] or '0'
  return { now, members, counts, members == ARGV[2] and {} or rcall('HMGET', KEYS[2], spread(ids)) }
end)
