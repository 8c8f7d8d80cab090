-- reserve.lua notes a job's plan for the session, or drops it. It binds nobody.
-- KEYS     see session.lua
-- ARGV[6]  epoch of the session when it was planned  [7] target  [8] job  [9] token of the job
--    [10]  ms to hold it, '' to drop it
-- Returns {'ok', now}, or a refusal
local function run()
  local epoch, target, job, token = tonumber(ARGV[6]), ARGV[7], ARGV[8], tonumber(ARGV[9])
  local r, t = find()
  local no = planned(r, t, job, token)
  if no then return no end
  if ARGV[10] == '' then
    if r[PLANUNTIL] > 0 and r[PLANJOB] == job then
      r[PLANUNTIL], r[PLANTOKEN], r[PLANJOB], r[PLANTARGET] = 0, 0, '', ''
      save(r)
    end
    return { 'ok', now }
  end
  if is_fenced(target) then return { 'fenced_target' } end
  if r[EPOCH] ~= epoch then return { 'stale', r[OWNER], r[EPOCH] } end
  if r[PLANJOB] ~= job and now < r[PLANUNTIL] then
    return { 'held', 'reservation', r[PLANJOB], r[PLANTOKEN] }
  end
  r[PLANUNTIL], r[PLANTOKEN], r[PLANJOB], r[PLANTARGET] = now + ARGV[10], token, job, target
  save(r)
  return { 'ok', now }
end

session('reserve', FREES, run)
