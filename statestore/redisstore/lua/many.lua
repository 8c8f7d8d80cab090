-- many.lua runs appends to several sessions in one call: calling a function costs Redis as much as half of an
-- append does. Each is judged and stored by itself, and one that fails harms no other. It is for one server, where
-- keys may be made of others: naming and passing them all would be a tenth of the work.
-- KEYS     the record of each append
-- ARGV[2...]  of each append in turn how many arguments it has, and then these
-- Returns the answer of each

-- keys_of are the keys of a transition, of which the first ends in 'r:' and 32 digits.
local function keys_of(record)
  local tag, id = sub(record, 1, -35), sub(record, -33)
  return {
    record, tag .. 't' .. id, tag .. 'o' .. id, tag .. 'l' .. id, tag .. 'd' .. id, tag .. 'k' .. id, tag .. 'w' .. id,
    tag .. 'due', tag .. 'index', tag .. 'fences', tag .. 'staged',
  }
end

register('many', WRITES, function()
  local keys, args, out = KEYS, ARGV, {}
  local append, arg = transition.append, 2
  for i = 1, #keys do
    local n = tonumber(args[arg])
    KEYS, ARGV = keys_of(keys[i]), { args[1], spread(args, arg + 1, arg + n) }
    arg = arg + n + 1
    local done, answer = pcall(append)
    if not done and type(answer) ~= 'table' then answer = { err = 'ERR ' .. tostring(answer) } end
    out[i] = answer
  end
  return out
end)
