-- delete.lua ends the session.
-- KEYS     see session.lua
-- ARGV[6]  floors of the handle, '' for an operator  [7] tombstone, in ms
-- Returns {'ok', now, 1 if it existed, epoch of the tombstone, 1 if a call of before had done it} and
--          the placements it had, owner and value in turn; or a refusal
local function run()
  local handle = ARGV[6] ~= '' and floors(ARGV[6]) or nil
  local r, t = find()
  if not r and t.call == call and t.why == DELETED then
    redis.call('SET', tombKey, redis.call('GET', tombKey), 'KEEPTTL')
    return { 'ok', now, 1, t.epoch, 1, {} }
  end
  local no = handle and named(r, t, handle)
  if no then return no end
  if not r then return { 'ok', now, 0, t.epoch, 0, {} } end
  local placed = redis.call('HGETALL', placedKey)
  t = bury(r, DELETED, now, tonumber(ARGV[7]))
  return { 'ok', now, 1, t.epoch, 0, placed }
end

session('delete', FREES, run)
