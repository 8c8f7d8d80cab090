-- due.lua finds what a sweep of the partition should end.
-- KEYS[1] due  [2] staged writes   ARGV[2] at most so many of each
-- Returns {digests, staged writes}
register('due', READS, function()
  return {
    rcall('ZRANGE', KEYS[1], '-inf', now, 'BYSCORE', 'LIMIT', 0, ARGV[2]),
    rcall('ZRANGE', KEYS[2], '-inf', now, 'BYSCORE', 'LIMIT', 0, ARGV[2]),
  }
end)
