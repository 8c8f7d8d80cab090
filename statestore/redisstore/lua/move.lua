-- move.lua commits a planned change of owner. The last owner before a row of moves stays as the tail.
-- KEYS     see session.lua
-- ARGV[3]  owner from  [4] epoch of the session when the move was planned  [5] owner to, '' unbinds
--     [6]  job  [7] token of the job  [8] job whose reservation it passes over
-- Returns a receipt as session.lua makes it, or a refusal
session('move', FREES, function()
  local from, epoch, to = ARGV[3], tonumber(ARGV[4]), ARGV[5]
  local r, t = find()
  if r and r[LASTCALL] == call then
    again()
    return receipt(r)
  end
  local no = planned(r, t, ARGV[6], tonumber(ARGV[7]))
  if no then return no end
  if is_fenced(to) then return { 'fenced_target' } end
  if r[EPOCH] ~= epoch or r[OWNER] ~= from then return { 'stale', r[OWNER], r[EPOCH] } end
  no = reserved(r, ARGV[6], ARGV[8])
  if no then return no end
  if r[TAIL] == '' and r[OWNER] ~= '' then set_tail(r, r[OWNER], r[EPOCH]) end
  rebind(r, to, to == '' and DETACHED or MOVED)
  save(r)
  return receipt(r)
end)
