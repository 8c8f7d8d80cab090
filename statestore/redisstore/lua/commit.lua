-- commit.lua makes the changes of a transaction on the fleet, if all it looked at is as it was.
-- KEYS[1] this transaction  [2...] hashes and sorted sets
-- ARGV[2] channel of the feed  [3] clock of the reads  [4] ms they are good for
--     [5] ms to remember that it was made
--     [6...] steps: 'is' key field value   the field has the value ('' for none)
--                   'set' key field value, 'del' key field
--                   'add' key member score, 'rem' key member
--                   'up' key field         a counter grows, at least to the clock
--                   'tell' event
-- Returns 1, or 0 when something changed meanwhile
local SIZE = { is = 4, set = 4, del = 3, add = 4, rem = 3, up = 3, tell = 2 }

local STEP = {
  set = function(key, field, value) rcall('HSET', key, field, value) end,
  del = function(key, field) rcall('HDEL', key, field) end,
  add = function(key, member, score) rcall('ZADD', key, score, member) end,
  rem = function(key, member) rcall('ZREM', key, member) end,
  up = function(key, field)
    rcall('HSET', key, field, max((rcall('HGET', key, field) or 0) + 1, now))
  end,
}

-- holds_still reports whether everything is as it was read.
local function holds_still()
  local i = 6
  while i <= #ARGV do
    if ARGV[i] == 'is' then
      local value = rcall('HGET', KEYS[tonumber(ARGV[i + 1])], ARGV[i + 2])
      if (value or '') ~= ARGV[i + 3] then return false end
    end
    i = i + SIZE[ARGV[i]]
  end
  return now - ARGV[3] <= tonumber(ARGV[4])
end

register('commit', FREES, function()
  -- A commit that is sent again, because no answer came, has been made.
  if rcall('EXISTS', KEYS[1]) == 1 then return 1 end
  if not holds_still() then return 0 end
  local i = 6
  while i <= #ARGV do
    if ARGV[i] == 'tell' then
      rcall('PUBLISH', ARGV[2], ARGV[i + 1])
    elseif ARGV[i] ~= 'is' then
      STEP[ARGV[i]](KEYS[tonumber(ARGV[i + 1])], ARGV[i + 2], ARGV[i + 3])
    end
    i = i + SIZE[ARGV[i]]
  end
  if ARGV[5] ~= '0' then rcall('SET', KEYS[1], 1, 'PX', ARGV[5]) end
  return 1
end)
