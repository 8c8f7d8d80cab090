-- append.lua judges a write of turns, an append or a replace, and stores it. Its chunks are in the log key:
-- written by commands of the same transaction, or staged before. An append by an instance that is no longer
-- the owner is parked.
-- KEYS     see session.lua
-- ARGV[6]  the write, packed as WRITE says   [7] floors of the handle   [8] meta, '' for none
--     [9]  of each chunk its size, and the first turn that begins there or later, '>I4I4I4I4c8'
--    [10]  where a base cuts, packed as KEEP says; '' when not looked up yet
--    [11...]  what follows the chunks, in pieces
-- Returns {'ok', now, version, epoch, turns, bytes, owner, affinity until, op, epoch of the writer's
--          floor, duplicate, moved, adopted}, or a refusal; {'locate'} when [10] is needed or out of
--          date; {'restage'} when a chunk is gone; {'full'} when the memory is, and nothing else was wrong
-- kind (1 append, 2 replace), at (0 version, 1 end), recreate, probe (judge only), staged, turns, bytes,
-- tokens, bytes of pieces, most bytes of a session, affinity, retention, tombstone, op, content, base+1,
-- affinity key, tag, by, op's name, names
local WRITE = '>BBBBBI4I6c8I4I6I6I6I6c8c16I6c16c8I2c0I2c0I2c0'
-- life, last rewrite, then as cut_stream in log.lua has them: bytes, entries, pieces, part, since, what stays
-- of the last entry's chunk when that is cut (else 0), and bytes and tokens of the turns that stay
local KEEP = '>I6I6I6I4I4I4I4I4I6c8'

local function read_write()
  page = {}
  local w = { first = 11, keep = 0, keptbytes = 0, kepttokens = NOTHING8 }
  w.kind, w.at, w.recreate, w.probe, w.staged, w.turns, w.bytes, w.tokens, w.rest, w.most, w.affinity, w.retention,
    w.tombstone, w.op, w.content, w.base, w.key, w.tag, w.by, w.name, w.names = struct.unpack(WRITE, ARGV[6])
  w.handle, w.meta, w.links = floors(ARGV[7]), ARGV[8], ARGV[9]
  w.chunks, w.probe = #w.links / LINKSIZE, w.probe == 1
  w.staged = w.staged == 1 and digest .. w.tag .. struct.pack('>I4', w.chunks)
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
  if w.kind == 2 then
    if r[TURNS] > 0 then w.cut = { bytes = 0, entries = 0, pieces = 0, part = 0, since = 0, chunk = 0 } end
  elseif w.base == 0 or w.base - 1 == r[TURNS] then
    w.keep, w.keptbytes, w.kepttokens = r[TURNS], r[BYTES], r[TOKENS]
  elseif w.base - 1 > r[TURNS] then
    return { 'conflict', r[VERSION], r[TURNS] }
  elseif ARGV[10] == '' then
    return { 'locate' }
  else
    local c, born, rewritten = {}, nil, nil
    born, rewritten, c.bytes, c.entries, c.pieces, c.part, c.since, c.chunk, w.keptbytes, w.kepttokens =
      struct.unpack(KEEP, ARGV[10])
    if born ~= r[BORN] or rewritten ~= r[REWRITTEN] then return { 'locate' } end
    w.keep, w.cut = w.base - 1, c
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
  if w.cut then
    cut_stream(r, w.cut)
    if w.cut.chunk > 0 then cut_chunk(r, w.cut.chunk) end
  end
  append_stream(r, w)
  if w.staged then redis.call('ZREM', stagedKey, w.staged) end
  if w.meta ~= '' then
    redis.call('HSET', logKey, 'm', w.meta)
    r.touch = true
  end
end

-- decide judges the write, and stores or parks it if it is to be.
local function decide(r, t, w)
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
    local kept, changed = park(r, w)
    if kept then no[5] = 1 end
    if changed then save(r) end
  end
  if no then return no end
  if w.probe then return { 'full' } end
  if not chunks_whole(w) then return { 'restage' } end
  local epoch = accept(to, w)
  store(to, w)
  local adopted = w.kind == 1 and adopt(to, w.op)
  save(to)
  local out = receipt(to)
  out[10], out[11], out[12], out[13] = epoch, 0, w.moved and 1 or 0, adopted and 1 or 0
  return out
end

local function run()
  local w = read_write()
  local r, t = find()
  local out = decide(r, t, w)
  -- A write that was stored took its chunks, and staged ones wait for the place of a base.
  local taken = out[1] == 'ok' and out[11] == 0
  if not taken and not (out[1] == 'locate' and w.staged) then leave_chunks(r, w) end
  return out
end

session('append', WRITES, run)
-- judge is append while memory is full: it answers what was stored before, or refuses.
session('judge', FREES, run)
