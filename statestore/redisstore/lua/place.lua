-- place.lua replaces what one boot of an instance said of its KV cache. It renews nothing.
-- KEYS     see session.lua
-- ARGV[3]  owner  [4] descriptors, '' to remove them  [5] most bytes a session
-- Returns {'ok', now}, {'none'} without a session, {'too_large', most, bytes}
local HEAD = 8 -- the time before the descriptors

session('place', WRITES, function()
  local owner, descriptors, limit = ARGV[3], ARGV[4], tonumber(ARGV[5])
  local r = find()
  if not r then return { 'none' } end
  if descriptors == '' then
    rcall('HDEL', placedKey, owner)
    return { 'ok', now }
  end
  local size = #descriptors
  for _, other in ipairs(rcall('HKEYS', placedKey)) do
    if other ~= owner then size = size + rcall('HSTRLEN', placedKey, other) - HEAD end
  end
  if size > limit then return { 'too_large', limit, size } end
  rcall('HSET', placedKey, owner, pack('>I8', now) .. descriptors)
  rcall('PEXPIREAT', placedKey, r[KEEP])
  return { 'ok', now }
end)
