-- fence.lua changes a hash of fences.
-- KEYS[1] fences   ARGV[2] job, '' for none  [3] its token  [4] how many fields to set
--                  [5...] fields to set, then fields to drop: 'i' pool NUL instance NUL incarnation, 'j' job
-- Returns 1
register('fence', FREES, function()
  if ARGV[2] ~= '' then
    local seen = tonumber(rcall('HGET', KEYS[1], 'j' .. ARGV[2]) or 0)
    if tonumber(ARGV[3]) > seen then rcall('HSET', KEYS[1], 'j' .. ARGV[2], ARGV[3]) end
  end
  for i = 5, #ARGV do
    if i < 5 + ARGV[4] then
      rcall('HSET', KEYS[1], ARGV[i], 1)
    else
      rcall('HDEL', KEYS[1], ARGV[i])
    end
  end
  return 1
end)
