-- place.lua replaces what one boot of an instance said of its KV cache. It renews nothing.
-- KEYS     see session.lua
-- ARGV[6]  owner  [7] descriptors, '' to remove them  [8] most bytes a session
-- Returns {'ok', now}, {'none'} without a session, {'too_large', most, bytes}
local HEAD = 8 -- the time before the descriptors

local function run()
  local by, descriptors, most = ARGV[6], ARGV[7], tonumber(ARGV[8])
  local r = find()
  if not r then return { 'none' } end
  if descriptors == '' then
    redis.call('HDEL', placedKey, by)
    return { 'ok', now }
  end
  local size = #descriptors
  for _, other in ipairs(redis.call('HKEYS', placedKey)) do
    if other ~= by then size = size + redis.call('HSTRLEN', placedKey, other) - HEAD end
  end
  if size > most then return { 'too_large', most, size } end
  redis.call('HSET', placedKey, by, struct.pack('>I8', now) .. descriptors)
  redis.call('PEXPIREAT', placedKey, r[KEEP])
  return { 'ok', now }
end

session('place', WRITES, run)
