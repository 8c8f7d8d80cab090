-- unstage.lua removes a staged write that no log links.
-- KEYS[1] staged writes  [2] log   ARGV[2] the write: digest, tag and number of chunks
-- Returns 1 if it was there
register('unstage', FREES, function()
  if rcall('ZREM', KEYS[1], ARGV[2]) == 0 then return 0 end
  logKey = KEYS[2]
  drop_chunks(unpack_at('>c8I4', ARGV[2], 17))
  return 1
end)
