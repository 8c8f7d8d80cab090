-- many.lua runs appends to several sessions in one call: calling a function costs Redis as much as half of an
-- append does. Each is judged and stored by itself, and one that fails harms no other. It is for one server, where
-- keys may be made of others: naming and passing them all would be a tenth of the work.
-- KEYS     the record of each append
-- ARGV[2...]  of each append in turn how many arguments it has, and then these; of one that the caller worked out
--     the negative number, and then what follow says
-- Returns the answer of each

-- keys_of are the keys of a transition, of which the first ends in 'r:' and 32 digits.
local function keys_of(record)
  local tag, id = sub(record, 1, -35), sub(record, -33)
  return {
    record, tag .. 't' .. id, tag .. 'o' .. id, tag .. 'l' .. id, tag .. 'd' .. id, tag .. 'k' .. id, tag .. 'w' .. id,
    tag .. 'due', tag .. 'index', tag .. 'fences', tag .. 'staged',
  }
end

-- follow stores an append that the caller judged by a copy of the record, if the record is still that copy: it
-- holds the numbers against it. images.go says what is judged there.
-- args[at]  the numbers   [at+1]  ms between which it holds, affinity, retention   [at+2]  what the record begins
--     with from BOUND on   [at+3]  its entry of the directory, '' for none   [at+4...]  its pieces
-- Returns the time, or 0 if it has to be judged again; then its chunk is gone.
local LIMITS, TIMES, CREATED_AT = '>I6I6I6I6', '>c13I6I6c6I6', 26
local function follow(record, args, at, n)
  local numbers, entry = args[at], args[at + 3]
  local from, till, affinity, retention = unpack_at(LIMITS, args[at + 1])
  local tag, id = sub(record, 1, -35), sub(record, -33)
  if now < from or now > till or rcall('GETRANGE', record, 0, #numbers - 1) ~= numbers then
    if entry ~= '' then rcall('HDEL', tag .. 'l' .. id, sub(entry, 1, 12)) end
    return 0
  end
  local times = pack(TIMES, numbers, now + retention, now + affinity, sub(numbers, CREATED_AT, CREATED_AT + 5), now)
  rcall('SETRANGE', record, 0, times .. args[at + 2])
  if entry ~= '' then rcall('RPUSH', tag .. 'd' .. id, entry) end
  if n > 4 then rcall('RPUSH', tag .. 'o' .. id, spread(args, at + 4, at + n - 1)) end
  return now
end

register('many', WRITES, function()
  local keys, args, out = KEYS, ARGV, {}
  local append, at = transition.append, 2
  for i = 1, #keys do
    local n = tonumber(args[at])
    at = at + 1
    if n < 0 then
      n = -n
      out[i] = follow(keys[i], args, at, n)
    else
      KEYS, ARGV = keys_of(keys[i]), { args[1], spread(args, at, at + n - 1) }
      local done, answer = pcall(append)
      if not done and type(answer) ~= 'table' then answer = { err = 'ERR ' .. tostring(answer) } end
      out[i] = answer
    end
    at = at + n
  end
  return out
end)
