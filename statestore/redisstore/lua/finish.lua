-- finish.lua releases the session of its owner; the context stays.
-- KEYS     see session.lua
-- ARGV[6]  owner  [7] floors of its handle  [8] tombstone, in ms
-- Returns a receipt as session.lua makes it, or a refusal
local function run()
  local by, handle = ARGV[6], floors(ARGV[7])
  local r, t = find()
  if r and r[LASTCALL] == call then
    again(r)
    return receipt(r)
  end
  local no = named(r, t, handle)
  if no then return no end
  if r[OWNER] ~= by or by == '' then return { 'stale', r[OWNER], r[EPOCH] } end
  rebind(r, '', FINISHED)
  r[TAIL], r[TAILEPOCH], r[AFFINITY], r[TOMBLIFE] = '', 0, now, tonumber(ARGV[8])
  save(r)
  return receipt(r)
end

session('finish', FREES, run)
