-- bind.lua gives a session without stored turns to the instance that served it.
-- KEYS     see session.lua
-- ARGV[3]  owner  [4] floors of the handle it was hinted with  [5] affinity key  [6] names
--     [7]  affinity  [8] tombstone, in ms
-- Returns {'ok', now, 1 if it did}

-- bindable is the record to bind, if there is one or may be one.
local function bindable(r, t, owner, hand)
  if is_fenced(owner) or check_ended(r, t, hand) or hand[1][2] ~= 0 then return nil end
  if r then return r[VERSION] == 0 and r[EPOCH] == hand[1][1] and r or nil end
  return t.why ~= DELETED and fresh(t, ARGV[6], ARGV[5]) or nil
end

session('bind', WRITES, function()
  local owner, lasts = ARGV[3], tonumber(ARGV[7])
  local r, t = find()
  if r and r[LASTCALL] == call then return { 'ok', now, 1 } end
  r = bindable(r, t, owner, floors(ARGV[4]))
  if not r then return { 'ok', now, 0 } end
  rebind(r, owner, REPORTED)
  if not stored then r[BORN] = r[EPOCH] end
  -- Nothing is stored, so nothing is worth keeping longer than the affinity.
  renew(r, lasts, lasts, tonumber(ARGV[8]))
  save(r)
  return { 'ok', now, 1 }
end)
