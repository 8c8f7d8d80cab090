-- count.lua counts the sessions of a partition by pool and instance, at a cost by instance.
-- KEYS[1] index, whose members are pool NUL instance NUL digest
-- Returns {pool NUL instance NUL, count, ...}
register('count', READS, function()
  local out, from = {}, '-'
  while true do
    local first = rcall('ZRANGE', KEYS[1], from, '+', 'BYLEX', 'LIMIT', 0, 1)[1]
    if not first then return out end
    local name = string.match(first, '^[^%z]*%z[^%z]*%z')
    local past = sub(name, 1, -2) .. '\1'
    out[#out + 1] = name
    out[#out + 1] = rcall('ZLEXCOUNT', KEYS[1], '[' .. name, '(' .. past)
    from = '[' .. past
  end
end)
