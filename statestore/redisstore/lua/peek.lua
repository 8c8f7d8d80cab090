-- peek.lua reads what a transaction on the fleet looks at, at one moment.
-- KEYS[...] hashes   ARGV[2...] number of a hash and a field of it, in turn; the field '*' is the whole hash
-- Returns {now, value, ...}; what is not there is nil
register('peek', READS, function()
  local out = { now }
  for i = 2, #ARGV, 2 do
    local key = KEYS[tonumber(ARGV[i])]
    out[#out + 1] = ARGV[i + 1] == '*' and rcall('HGETALL', key) or rcall('HGET', key, ARGV[i + 1])
  end
  return out
end)
