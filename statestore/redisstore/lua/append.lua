-- append.lua judges a write of turns, an append or a replace, and stores it. Its turns come with the
-- call, or were staged in the log key before. An append by an instance that is no longer the owner is
-- parked.
-- KEYS     see session.lua
-- ARGV[6]  the write, packed as WRITE says   [7] floors of the handle   [8] meta, '' for none
--     [9]  of each turn where its frame begins and what came before, '>I4I4c8'
--    [10]  of each staged chunk its size and what begins in it, '>I4I4I4I4c8', '' when nothing is staged
--    [11]  where a base cuts: '>I6I6I6I6c8' life, last rewrite, bytes of the stream, of values, tokens;
--          '' when not looked up yet
--    [12...]  the frames in pieces, when nothing is staged
-- Returns {'ok', now, version, epoch, turns, bytes, owner, affinity until, op, epoch of the writer's
--          floor, duplicate, moved, adopted}, or a refusal; {'locate'} when [11] is needed or out of
--          date; {'restage'} when a staged chunk is gone; {'full'} when the memory is, and nothing else
--          was wrong
-- kind (1 append, 2 replace), at (0 version, 1 end), recreate, probe (judge only: the memory is full),
-- turns, bytes, tokens, frames' bytes, most bytes of a session, affinity, retention, tombstone, op,
-- content, base+1, affinity key, tag, by, op's name, names
local WRITE = '>BBBBI4I6c8I4I6I6I6I6c8c16I6c16c8I2c0I2c0I2c0'

local function read_write()
  local w = { mark = 0, keep = 0, keptbytes = 0, kepttokens = NOTHING8 }
  w.kind, w.at, w.recreate, w.probe, w.turns, w.bytes, w.tokens, w.size, w.most, w.affinity, w.retention, w.tombstone,
    w.op, w.content, w.base, w.key, w.tag, w.by, w.name, w.names = struct.unpack(WRITE, ARGV[6])
  w.handle, w.meta, w.marks, w.links = floors(ARGV[7]), ARGV[8], ARGV[9], ARGV[10]
  w.chunks, w.probe = #w.links / LINKSIZE, w.probe == 1
  w.staged = digest .. w.tag .. struct.pack('>I4', w.chunks)
  return w
end

-- known finds a remembered op: its place in OPS, from 0.
local function known(r, op)
  local from = 1
  while true do
    local at = string.find(r[OPS], op, from, true)
    if not at then return nil end
    if (at - 1) % OP == 0 then return (at - 1) / OP end
    from = at + 1
  end
end

-- repeated answers a known op as it was answered, if it says the same.
local function repeated(r, w, i)
  local version = r[VERSION] - (#r[OPS] / OP - 1 - i)
  if string.sub(r[OPS], i * OP + 9, i * OP + 24) ~= w.content then return { 'reused', version } end
  again(r)
  local out = receipt(r)
  out[3], out[9], out[10], out[11], out[12], out[13] = version, w.op, r[EPOCH], 1, 0, 0
  if r[TAIL] ~= '' and r[TAIL] == w.by then out[10], out[12] = r[TAILEPOCH], 1 end
  return out
end

-- is_tail reports whether the write is one that the tail may still make.
local function is_tail(r, w)
  return r[TAIL] ~= '' and r[TAIL] == w.by and r[TAILEPOCH] == w.handle[1][1] and w.kind == 1 and w.base == 0
end

-- measure finds what stays below the turns of the write.
local function measure(r, w)
  w.cut = -1
  if w.kind == 2 then
    if r[TURNS] > 0 then w.cut = 0 end
  elseif w.base == 0 or w.base - 1 == r[TURNS] then
    w.keep, w.keptbytes, w.kepttokens = r[TURNS], r[BYTES], r[TOKENS]
  elseif w.base - 1 > r[TURNS] then
    return { 'conflict', r[VERSION], r[TURNS] }
  elseif ARGV[11] == '' then
    return { 'locate' }
  else
    local born, rewritten
    w.keep = w.base - 1
    born, rewritten, w.cut, w.keptbytes, w.kepttokens = struct.unpack('>I6I6I6I6c8', ARGV[11])
    if born ~= r[BORN] or rewritten ~= r[REWRITTEN] then return { 'locate' } end
  end
  if w.keptbytes + w.bytes > w.most then return { 'too_large', w.most, w.keptbytes + w.bytes } end
end

-- judge refuses the write, or returns nil and the record to write to.
local function judge(r, t, w)
  local before, epoch = t, t.epoch
  if r then
    if r[VERSION] > 0 or is_tail(r, w) then
      local moved = false
      if r[OWNER] ~= w.by or w.handle[1][1] ~= r[EPOCH] then
        if not is_tail(r, w) then return not_owner(r, w.by) end
        moved = true
      end
      if w.at == 0 and w.handle[1][2] ~= r[VERSION] then return { 'conflict', r[VERSION], r[TURNS] } end
      w.moved = moved
      return measure(r, w), r
    end
    -- Bound by reports only: nothing is stored, so this is the first append.
    before, epoch = { epoch = r[BEFORE], why = r[BEFOREWHY] }, r[EPOCH]
  end
  if before.why == DELETED and w.recreate == 0 then return { 'ended', before.why, before.epoch } end
  if w.base > 1 then return { 'conflict', 0, 0 } end
  if w.bytes > w.most then return { 'too_large', w.most, w.bytes } end
  local made = fresh(before, w.names, w.key)
  if r then made.stored, made.found, made[PARKED], made[SEQ] = r.stored, r.found, r[PARKED], r[SEQ] end
  made[EPOCH], made.first = epoch, true
  return measure(made, w), made
end

-- extend_tail moves the recorded end of the tail's epoch, and of those after it, to the present version.
local function extend_tail(r)
  local list = changes(r)
  for _, c in ipairs(list) do
    if c[1] > r[TAILEPOCH] then c[2] = r[VERSION] end
  end
  r[CHANGES] = pack_changes(list, 1)
end

-- sha1_bytes is the digest that sha1hex spells.
local function sha1_bytes(text)
  local hex = redis.sha1hex(text)
  local function part(i) return tonumber(string.sub(hex, i, i + 7), 16) end
  return struct.pack('>I4I4I4I4I4', part(1), part(9), part(17), part(25), part(33))
end

local function accept(r, w)
  if r.first then
    rebind(r, is_fenced(w.by) and '' or w.by, CREATED_BY_APPEND)
    r[BORN] = r[EPOCH]
  end
  r[VERSION] = r[VERSION] + 1
  if w.keep < r[TURNS] then r[REWRITTEN] = r[VERSION] end
  r[TURNS], r[BYTES], r[TOKENS] = w.keep + w.turns, w.keptbytes + w.bytes, add64(w.kepttokens, w.tokens)
  r[CHAIN] = sha1_bytes(r[CHAIN] .. w.content)
  -- Understating what was kept is safe, and nobody keeps 16 million turns.
  r[OPS] = string.sub(r[OPS], -OP * (OPS_REMEMBERED - 1)) .. struct.pack('>c8c16I3', w.op, w.content, math.min(w.keep, 16777215))
  renew(r, w.affinity, w.retention, w.tombstone)
  r[LASTTURN] = now
  local epoch = r[EPOCH]
  if w.moved then
    epoch = r[TAILEPOCH]
    extend_tail(r)
  else
    r[TAIL], r[TAILEPOCH] = '', 0
  end
  return epoch
end

local function store(r, w)
  if w.cut >= 0 then cut(r, w.cut) end
  if w.chunks > 0 then
    write_staged(r, w)
    redis.call('ZREM', stagedKey, w.staged)
  else
    write_inline(r, w, 12)
  end
  flush_page()
  if w.meta ~= '' then
    redis.call('HSET', logKey, 'm', w.meta)
    r.touch = true
  end
end

local function run()
  page = {}
  local w = read_write()
  local r, t = find()
  local no = check_ended(r, t, w.handle, {})
  if no then return no end
  if r then
    no = check_lineage(r, w.handle)
    local i = known(r, w.op)
    if i then return no or repeated(r, w, i) end
    if r[VERSION] > w.handle[1][2] + OPS_REMEMBERED then return { 'forgotten', r[VERSION] } end
    if no then return no end
  end
  local to
  no, to = judge(r, t, w)
  if no and no[1] == 'not_owner' and w.kind == 1 then
    local kept, changed = park(r, w, 12)
    if kept then no[5] = 1 end
    if changed then save(r) end
  end
  if no then return no end
  if w.probe then return { 'full' } end
  if w.chunks > 0 and not staged_whole(w) then return { 'restage' } end
  local epoch = accept(to, w)
  store(to, w)
  local adopted = w.kind == 1 and adopt(to, w.op)
  save(to)
  local out = receipt(to)
  out[10], out[11], out[12], out[13] = epoch, 0, w.moved and 1 or 0, adopted and 1 or 0
  return out
end

session('append', WRITES, run)
-- judge is append while memory is full: it answers what was stored before, or refuses.
session('judge', FREES, run)
