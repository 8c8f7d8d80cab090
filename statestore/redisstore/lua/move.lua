-- move.lua commits a planned change of owner. The last owner before a row of moves stays as the tail.
-- KEYS     see session.lua
-- ARGV[6]  owner from  [7] epoch of the session when the move was planned  [8] owner to, '' unbinds
--     [9]  job  [10] token of the job
-- Returns a receipt as session.lua makes it, or a refusal
local function run()
  local from, epoch, to = ARGV[6], tonumber(ARGV[7]), ARGV[8]
  local r, t = find()
  if r and r[LASTCALL] == call then
    again(r)
    return receipt(r)
  end
  local no = planned(r, t, ARGV[9], tonumber(ARGV[10]))
  if no then return no end
  if is_fenced(to) then return { 'fenced_target' } end
  if r[EPOCH] ~= epoch or r[OWNER] ~= from then return { 'stale', r[OWNER], r[EPOCH] } end
  if r[TAIL] == '' and r[OWNER] ~= '' then r[TAIL], r[TAILEPOCH] = r[OWNER], r[EPOCH] end
  rebind(r, to, to == '' and DETACHED or MOVED)
  save(r)
  return receipt(r)
end

session('move', FREES, run)
