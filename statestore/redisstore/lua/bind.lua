-- bind.lua gives a session without stored turns to the instance that served it.
-- KEYS     see session.lua
-- ARGV[6]  owner  [7] floors of the handle it was hinted with  [8] affinity key  [9] names
--    [10]  affinity  [11] tombstone, in ms
-- Returns {'ok', now, 1 if it did}
local function bindable(r, t, owner, handle)
  if is_fenced(owner) or check_ended(r, t, handle, {}) or handle[1][2] ~= 0 then return nil end
  if r then return r[VERSION] == 0 and r[EPOCH] == handle[1][1] and r or nil end
  return t.why ~= DELETED and fresh(t, ARGV[9], ARGV[8]) or nil
end

local function run()
  local owner, handle = ARGV[6], floors(ARGV[7])
  local r, t = find()
  if r and r[LASTCALL] == call then return { 'ok', now, 1 } end
  r = bindable(r, t, owner, handle)
  if not r then return { 'ok', now, 0 } end
  rebind(r, owner, REPORTED)
  if not r.stored then r[BORN] = r[EPOCH] end
  -- Nothing is stored, so nothing is worth keeping longer than the affinity.
  renew(r, tonumber(ARGV[10]), tonumber(ARGV[10]), tonumber(ARGV[11]))
  save(r)
  return { 'ok', now, 1 }
end

session('bind', WRITES, run)
