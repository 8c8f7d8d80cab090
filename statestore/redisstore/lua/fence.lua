-- fence.lua changes a hash of fences.
-- KEYS[1] fences   ARGV[1] job, '' for none  [2] its token  [3] how many fields to set
--                  [4...] fields to set, then fields to drop: 'i' pool NUL instance NUL incarnation, 'j' job
-- Returns 1
if ARGV[1] ~= '' then
  local seen = tonumber(redis.call('HGET', KEYS[1], 'j' .. ARGV[1]) or 0)
  if tonumber(ARGV[2]) > seen then redis.call('HSET', KEYS[1], 'j' .. ARGV[1], ARGV[2]) end
end
for i = 4, #ARGV do
  if i < 4 + ARGV[3] then
    redis.call('HSET', KEYS[1], ARGV[i], 1)
  else
    redis.call('HDEL', KEYS[1], ARGV[i])
  end
end
return 1
