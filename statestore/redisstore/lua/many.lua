-- many.lua runs appends to several sessions in one call: calling a function costs Redis as much as half of an
-- append does. Each is judged and stored by itself, and one that fails harms no other.
-- KEYS     of each append its keys in turn, as session.lua has them
-- ARGV[2...]  of each append in turn how many arguments it has, and then these
-- Returns the answer of each
local ITSKEYS = 11

register('many', WRITES, function()
  local keys, args, out = KEYS, ARGV, {}
  local append, key, arg = transition.append, 0, 2
  while arg <= #args do
    local n = tonumber(args[arg])
    KEYS, ARGV = { spread(keys, key + 1, key + ITSKEYS) }, { args[1], spread(args, arg + 1, arg + n) }
    key, arg = key + ITSKEYS, arg + n + 1
    local done, answer = pcall(append)
    if not done and type(answer) ~= 'table' then answer = { err = 'ERR ' .. tostring(answer) } end
    out[#out + 1] = answer
  end
  return out
end)
