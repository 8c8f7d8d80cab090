-- unstage.lua removes a staged write that no log links.
-- KEYS[1] staged writes  [2] log   ARGV[2] the write: digest, tag and number of chunks
-- Returns 1 if it was there
register('unstage', FREES, function()
  if redis.call('ZREM', KEYS[1], ARGV[2]) == 0 then return 0 end
  local tag, n = struct.unpack('>c8I4', ARGV[2], 17)
  for i = 0, n - 1 do redis.call('HDEL', KEYS[2], staged_name(tag, i)) end
  return 1
end)
