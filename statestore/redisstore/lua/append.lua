-- append.lua judges a write of turns, an append or a replace, and stores it. Its chunks come with the call, or
-- were staged in the log key before, or were sent there by the transaction that the call is the end of. An
-- append by an instance that is no longer the owner is parked.
-- KEYS     see session.lua
-- ARGV[3]  the write, packed as WRITE says   [4] floors of the handle   [5] meta, '' for none
--     [6]  of each chunk its size, and the first turn that begins there or later, packed as LINK says
--     [7]  where a base cuts, packed as KEEPS says; '' when not looked up yet
--     [8...]  the chunks if they come with the call, and what follows them in pieces
-- Returns a receipt as session.lua makes it, or a refusal; {'locate'} when [7] is needed or out of date;
--          {'restage'} when a staged chunk is gone; {'full'} when the memory is, and nothing else was wrong
-- kind (1 append, 2 replace), place (0 at its version, 1 at the end), recreate, probe (judge only), where the
-- chunks are (0 in the call, 1 staged, 2 sent), turns, bytes, tokens, bytes of pieces, most bytes of a session, affinity, retention, tombstone, op,
-- content, base+1, affinity key, tag, by, op's name, names
local WRITE = '>BBBBBI4I6I4I4I4I6I6I6I6c8c16I6c16c8I2c0I2c0I2c0'
-- life, last rewrite, then as cut_stream in log.lua has them: bytes, entries, pieces, part, since, what stays
-- of the last entry's chunk when that is cut (else 0), and bytes and tokens of the turns that stay
local KEEPS = '>I6I6I6I4I4I4I4I4I6I4I4'

local affinity, retention, tombstone, affinity_key, names
local moved, arrived, first, cut

local function read_write()
  kind, place, recreate, probe, staged, turns, bytes, tokens_high, tokens, rest, most, affinity, retention, tombstone,
    op, content, base, affinity_key, tag, by, op_name, names = unpack_at(WRITE, ARGV[3])
  handle, meta, links = floors(ARGV[4]), ARGV[5], ARGV[6]
  chunks = #links / LINKSIZE
  first_piece = staged == 0 and 8 + chunks or 8
  sent = staged == 2
  staged = staged == 1 and digest .. tag .. pack('>I4', chunks)
  keep, kept_bytes, kept_high, kept_tokens = 0, 0, 0, 0
  moved, arrived, first, cut = false, false, false, nil
end

-- known finds a remembered op: its place in the ring, from 0.
local function known(r)
  local from = r[OPS]
  while true do
    local at = find_in(stored, op, from, true)
    if not at or at >= r[STRINGSAT] then return nil end
    if (at - r[OPS]) % OP == 0 then return (at - r[OPS]) / OP end
    from = at + 1
  end
end

-- repeated answers a known op as it was answered, if it says the same.
local function repeated(r, i)
  local version = r[VERSION] - (r[VERSION] - 1 - i) % OPS_REMEMBERED
  local at = r[OPS] + i * OP
  if sub(stored, at + 8, at + 23) ~= content then return { 'reused', version } end
  again()
  local of_tail = r[TAIL] ~= '' and r[TAIL] == by
  return receipt(r, version, op, of_tail and r[TAILEPOCH] or r[EPOCH], true, of_tail)
end

-- is_tail reports whether the write is one that the tail may still make.
local function is_tail(r)
  return r[TAIL] ~= '' and r[TAIL] == by and r[TAILEPOCH] == handle[1][1] and kind == 1 and base == 0
end

-- measure finds what stays below the turns of the write.
local function measure(r)
  if kind == 2 then
    if r[TURNS] > 0 then cut = { bytes = 0, entries = 0, pieces = 0, part = 0, since = 0, chunk = 0 } end
  elseif base == 0 or base - 1 == r[TURNS] then
    keep, kept_bytes, kept_high, kept_tokens = r[TURNS], r[BYTES], r[TOKENSHIGH], r[TOKENS]
  elseif base - 1 > r[TURNS] then
    return { 'conflict', r[VERSION], r[TURNS] }
  elseif ARGV[7] == '' then
    return { 'locate' }
  else
    local c, born, rewritten = {}, nil, nil
    born, rewritten, c.bytes, c.entries, c.pieces, c.part, c.since, c.chunk, kept_bytes, kept_high, kept_tokens =
      unpack_at(KEEPS, ARGV[7])
    if born ~= r[BORN] or rewritten ~= r[REWRITTEN] then return { 'locate' } end
    keep, cut = base - 1, c
  end
  if kept_bytes + bytes > most then return { 'too_large', most, kept_bytes + bytes } end
end

-- judge refuses the write, or returns nil and the record to write to.
local function judge(r, t)
  if r and (r[VERSION] > 0 or is_tail(r)) then
    if r[OWNER] ~= by or handle[1][1] ~= r[EPOCH] then
      if not is_tail(r) then return not_owner(r, by) end
      moved = true
    end
    if place == 0 and handle[1][2] ~= r[VERSION] then return { 'conflict', r[VERSION], r[TURNS] } end
    return measure(r), r
  end
  -- A record that is bound by reports only has nothing stored: this is the first append.
  local before = r and { epoch = r[BEFORE], why = r[BEFOREWHY] } or t
  if before.why == DELETED and recreate == 0 then return { 'ended', before.why, before.epoch } end
  if base > 1 then return { 'conflict', 0, 0 } end
  if bytes > most then return { 'too_large', most, bytes } end
  local made = fresh(before, names, affinity_key)
  if r then made[EPOCH], made[PARKED], made[SEQ] = r[EPOCH], r[PARKED], r[SEQ] end
  first = true
  return measure(made), made
end

-- extend_tail moves the recorded end of the tail's epoch, and of those after it, to the present version.
local function extend_tail(r)
  local list = changes(r)
  for _, c in ipairs(list) do
    if c[1] > r[TAILEPOCH] then c[2] = r[VERSION] end
  end
  set_changes(r, list, 1)
end

-- sha1_bytes is the digest that sha1hex spells.
local function sha1_bytes(text)
  local hex = redis.sha1hex(text)
  return pack('>I4I4I4I4I4', tonumber(sub(hex, 1, 8), 16), tonumber(sub(hex, 9, 16), 16), tonumber(sub(hex, 17, 24), 16),
    tonumber(sub(hex, 25, 32), 16), tonumber(sub(hex, 33, 40), 16))
end

-- accept changes the record, and returns the epoch of the writer's floor.
local function accept(r)
  if first then
    rebind(r, is_fenced(by) and '' or by, CREATED_BY_APPEND)
    r[BORN] = r[EPOCH]
  end
  r[VERSION] = r[VERSION] + 1
  if keep < r[TURNS] then r[REWRITTEN] = r[VERSION] end
  r[TURNS], r[BYTES] = keep + turns, kept_bytes + bytes
  local low, high = kept_tokens + tokens, kept_high + tokens_high
  if low >= WORD then low, high = low - WORD, high + 1 end
  r[TOKENSHIGH], r[TOKENS] = high % WORD, low
  r[CHAIN] = sha1_bytes(r[CHAIN] .. content)
  -- Understating what was kept is safe, and nobody keeps 16 million turns.
  next_op = op .. content .. pack('>I3', min(keep, 16777215))
  renew(r, affinity, retention, tombstone)
  r[LASTTURN] = now
  if moved then
    extend_tail(r)
    return r[TAILEPOCH]
  end
  if r[TAIL] ~= '' then
    arrived = instance_of(r[TAIL]) ~= instance_of(by)
    set_tail(r, '', 0)
  end
  return r[EPOCH]
end

local function store(r)
  if cut then
    cut_stream(r, cut)
    if cut.chunk > 0 then cut_chunk(r, cut.chunk) end
  end
  append_stream(r)
  take_chunks()
  if meta ~= '' then
    rcall('HSET', logKey, 'm', meta)
    touched = true
  end
end

-- decide judges the write, and stores or parks it if it is to be.
local function decide(r, t)
  local no = check_ended(r, t, handle)
  if no then return no end
  if r then
    no = check_lineage(r, handle)
    local i = known(r)
    if i then return no or repeated(r, i) end
    if r[VERSION] > handle[1][2] + OPS_REMEMBERED then return { 'forgotten', r[VERSION] } end
    if no then return no end
  end
  local to
  no, to = judge(r, t)
  if no and no[1] == 'not_owner' and kind == 1 then
    local kept, changed = park(r)
    if kept then no[5] = 1 end
    if changed then save(r) end
  end
  if no then return no end
  if probe == 1 then return { 'full' } end
  if not chunks_whole() then return { 'restage' } end
  local epoch = accept(to)
  store(to)
  local adopted = kind == 1 and adopt(to)
  save(to)
  return receipt(to, nil, op, epoch, false, moved, adopted, arrived)
end

local function run()
  read_write()
  local r, t = find()
  local out = decide(r, t)
  -- Staged chunks wait for the place of a base.
  if sent or out[1] ~= 'locate' then leave_chunks() end
  return out
end

session('append', WRITES, run)
-- judge is append while memory is full: it answers what was stored before, or refuses.
session('judge', FREES, run)
