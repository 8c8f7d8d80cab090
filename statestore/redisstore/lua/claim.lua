-- claim.lua makes an instance the owner, if it may take the session.
-- KEYS     see session.lua
-- ARGV[3]  claimant  [4] floors of its handle, '' without one  [5] '1' when the handle names it
--     [6]  floor of its own copy, '' for none  [7] an owner that the fleet lost  [8] '1': accept a loss
--     [9]  affinity  [10] retention  [11] tombstone, in ms
-- Returns {'ok', now, changed, record, tombstone epoch, why} and, of an accepted loss, version and turns
--          that are here and the version that was promised (else 0); the record is '' when there is
--          nothing to claim. Or a refusal.
local by, handle, have

-- accepted turns the refusal of a store that lost something into the loss, if the claimant accepts it.
local function accepted(no)
  if no and no[1] == 'behind' and ARGV[8] == '1' then return nil, { no[2], no[3], no[4] } end
  return no, nil
end

local function answer(r, t, changed, lost)
  lost = lost or { 0, 0, 0 }
  return { 'ok', now, changed, r and encode(r) or '', t.epoch, t.why, lost[1], lost[2], lost[3] }
end

local function may_claim(r)
  if by == r[OWNER] or r[OWNER] == '' or r[OWNER] == ARGV[7] then return true end
  return handle and ARGV[5] == '1' and handle[1][1] == r[EPOCH]
end

local function told()
  local list = { have[1] }
  for _, f in ipairs(handle or {}) do list[#list + 1] = f end
  return list
end

local function take(r, lost)
  local why = CLAIMED
  if lost then
    why = LOST
  elseif instance_of(r[OWNER]) == instance_of(by) then
    why = REPLACED
  end
  rebind(r, by, why)
  renew(r, tonumber(ARGV[9]), tonumber(ARGV[10]), tonumber(ARGV[11]))
  set_tail(r, '', 0)
  if lost then r[LOSTEPOCH], r[LOSTWANT] = r[EPOCH], lost[3] end
  save(r)
end

session('claim', FREES, function()
  by, handle, have = ARGV[3], ARGV[4] ~= '' and floors(ARGV[4]) or nil, floors(ARGV[6])
  local r, t = find()
  if r and r[LASTCALL] == call then
    again()
    return answer(r, t, 1, r[LOSTEPOCH] == r[EPOCH] and { r[VERSION], r[TURNS], r[LOSTWANT] })
  end
  local no, lost = accepted(check_ended(r, t, handle, have))
  if no or not r then return no or answer(r, t, 0, lost) end
  no, lost = accepted(check_lineage(r, told()))
  if no then return no end
  if by == r[OWNER] and not lost then
    again()
    return answer(r, t, 0)
  end
  if by ~= r[OWNER] and is_fenced(by) then
    no = not_owner(r, by)
    no[2] = 'fenced'
    return no
  end
  if not may_claim(r) then return { 'stale', r[OWNER], r[EPOCH] } end
  take(r, lost)
  return answer(r, t, 1, lost)
end)
