-- delete.lua ends the session.
-- KEYS     see session.lua
-- ARGV[3]  floors of the handle, '' for an operator  [4] tombstone, in ms
-- Returns {'ok', now, 1 if it existed, epoch of the tombstone, 1 if a call of before had done it} and
--          the placements it had, owner and value in turn; or a refusal
session('delete', FREES, function()
  local hand = ARGV[3] ~= '' and floors(ARGV[3])
  local r, t = find()
  if not r and t.call == call and t.why == DELETED then
    rcall('SET', tombKey, rcall('GET', tombKey), 'KEEPTTL')
    return { 'ok', now, 1, t.epoch, 1, {} }
  end
  local no = hand and named(r, t, hand)
  if no then return no end
  if not r then return { 'ok', now, 0, t.epoch, 0, {} } end
  local placed = rcall('HGETALL', placedKey)
  t = bury(r, DELETED, now, tonumber(ARGV[4]))
  return { 'ok', now, 1, t.epoch, 0, placed }
end)
