-- unstage.lua removes a staged write that no log links.
-- KEYS[1] staged writes  [2] log   ARGV[1] the write: digest, tag and number of chunks
-- Returns 1 if it was there
if redis.call('ZREM', KEYS[1], ARGV[1]) == 0 then return 0 end
local tag, n = struct.unpack('>c8I4', ARGV[1], 17)
for i = 0, n - 1 do redis.call('HDEL', KEYS[2], tag .. struct.pack('>I4', i)) end
return 1
