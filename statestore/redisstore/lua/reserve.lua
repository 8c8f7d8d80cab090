-- reserve.lua notes a job's plan for the session, or drops it. It binds nobody.
-- KEYS     see session.lua
-- ARGV[3]  epoch of the session when it was planned  [4] target  [5] job  [6] token of the job
--     [7]  ms to hold it, '' to drop it  [8] job whose reservation it takes away
-- Returns {'ok', now}, or a refusal
session('reserve', FREES, function()
  local epoch, target, job, token = tonumber(ARGV[3]), ARGV[4], ARGV[5], tonumber(ARGV[6])
  local r, t = find()
  local no = planned(r, t, job, token)
  if no then return no end
  if ARGV[7] == '' then
    if r[PLANUNTIL] > 0 and r[PLANJOB] == job then
      set_plan(r, 0, 0, '', '')
      save(r)
    end
    return { 'ok', now }
  end
  if is_fenced(target) then return { 'fenced_target' } end
  if r[EPOCH] ~= epoch then return { 'stale', r[OWNER], r[EPOCH] } end
  no = reserved(r, job, ARGV[8])
  if no then return no end
  set_plan(r, now + ARGV[7], token, job, target)
  save(r)
  return { 'ok', now }
end)
