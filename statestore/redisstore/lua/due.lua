-- due.lua finds what a sweep of the partition should end.
-- KEYS[1] due  [2] staged writes   ARGV[1] ms added to the clock  [2] at most so many of each
-- Returns {digests, staged writes}
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000) + ARGV[1]
return {
  redis.call('ZRANGE', KEYS[1], '-inf', now, 'BYSCORE', 'LIMIT', 0, ARGV[2]),
  redis.call('ZRANGE', KEYS[2], '-inf', now, 'BYSCORE', 'LIMIT', 0, ARGV[2]),
}
