-- expire.lua ends the session if its time is over, or files it in the due list where it belongs.
-- KEYS     see session.lua
-- Returns {now, record or '', tombstone epoch, why, 1 if it ended}

-- forget takes a session whose keys are gone, not by us, out of the indexes. Its owner is unknown.
local function forget()
  rcall('ZREM', dueKey, digest)
  for _, member in ipairs(rcall('ZRANGE', indexKey, 0, -1)) do
    if sub(member, -#digest) == digest then rcall('ZREM', indexKey, member) end
  end
end

session('expire', FREES, function()
  local r, t = find()
  if r then
    if r[DUE] ~= r[EXPIRES] then
      r[DUE] = 0
      save(r)
    end
    return { now, encode(r), 0, 0, 0 }
  end
  local ended = t.call == call
  if not ended and rcall('ZSCORE', dueKey, digest) then forget() end
  return { now, '', t.epoch, t.why, ended and 1 or 0 }
end)
