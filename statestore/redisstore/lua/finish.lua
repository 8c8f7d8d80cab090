-- finish.lua releases the session of its owner; the context stays.
-- KEYS     see session.lua
-- ARGV[3]  owner  [4] floors of its handle  [5] tombstone, in ms
-- Returns a receipt as session.lua makes it, or a refusal
session('finish', FREES, function()
  local owner, hand = ARGV[3], floors(ARGV[4])
  local r, t = find()
  if r and r[LASTCALL] == call then
    again()
    return receipt(r)
  end
  local no = named(r, t, hand)
  if no then return no end
  if r[OWNER] ~= owner or owner == '' then return { 'stale', r[OWNER], r[EPOCH] } end
  rebind(r, '', FINISHED)
  set_tail(r, '', 0)
  r[AFFINITY], r[TOMBLIFE] = now, tonumber(ARGV[5])
  save(r)
  return receipt(r)
end)
