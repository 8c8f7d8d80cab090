-- stage.lua begins a staged write with its first chunk. It is announced, so that a sweep finds it if its
-- writer does not finish it; where there is no session yet, the log key ends by itself.
-- KEYS[1] staged writes  [2] log
-- ARGV[2] the write: digest, tag and number of chunks  [3] ms it may take
--     [4] name of the first chunk  [5] the chunk
-- Returns 1
register('stage', WRITES, function()
  rcall('ZADD', KEYS[1], now + ARGV[3], ARGV[2])
  rcall('HSET', KEYS[2], ARGV[4], ARGV[5])
  rcall('PEXPIRE', KEYS[2], 2 * ARGV[3], 'NX')
  return 1
end)
