-- log.lua holds how the context of a session is written: one stream of bytes, in which frame follows
-- frame, cut into chunks.
--
--   log key   chunk names (12 bytes)   chunk; a name is never given twice, so what it names never changes
--             d0, d1, ...              the directory: PAGE entries a page, one for each chunk
--             m                        meta of the context
--   open key  list of pieces           what follows the last chunk
--
-- Sealed chunks have exactly the size of an allocator's class, wherever frames begin and end. An entry
-- says which turn is the first that begins in its chunk or after, where, and what came before that turn.
local PAGE, ENTRY, ENTRYSIZE, MARKSIZE, LINKSIZE = 64, '>c12I6I4I6I4I6c8', 46, 16, 24
local SMALLCHUNK, LARGECHUNK, SMALLLOG, PIECE = 16370, 65520, 1048576, 500

-- add64 adds two counts of 64 bits, which no number of Lua's can hold.
local function add64(a, b)
  local ah, al = struct.unpack('>I4I4', a)
  local bh, bl = struct.unpack('>I4I4', b)
  local low = al + bl
  if low >= 4294967296 then ah = ah + 1 end
  return struct.pack('>I4I4', (ah + bh) % 4294967296, low % 4294967296)
end

-- page is the page of the directory at hand.
local page = {}

local function flush_page()
  if page.dirty then redis.call('HSET', logKey, 'd' .. page.n, page.bytes) end
  page.dirty = false
end

local function open_page(r, n)
  if page.n == n then return end
  flush_page()
  page.n, page.bytes = n, n * PAGE < r[CHUNKS] and redis.call('HGET', logKey, 'd' .. n) or ''
end

-- add_chunk lists a chunk that begins where the last one ends.
local function add_chunk(r, name, size)
  open_page(r, math.floor(r[CHUNKS] / PAGE))
  page.bytes = page.bytes ..
    struct.pack(ENTRY, name, r[SEALED], size, r[NEXTTURN], r[NEXTAT], r[NEXTBYTES], r[NEXTTOKENS])
  page.dirty = true
  r[CHUNKS], r[SEALED] = r[CHUNKS] + 1, r[SEALED] + size
end

local function seal(r, bytes)
  local name = struct.pack('>I8I4', r[BORN], r[SEQ])
  r[SEQ] = r[SEQ] + 1
  redis.call('HSET', logKey, name, bytes)
  add_chunk(r, name, #bytes)
end

local function open_bytes() return table.concat(redis.call('LRANGE', openKey, 0, -1)) end

-- reopen makes bytes the open tail.
local function reopen(r, bytes)
  if r[OPEN] > 0 then redis.call('DEL', openKey) end
  local pieces = {}
  for i = 1, #bytes, PIECE do pieces[#pieces + 1] = string.sub(bytes, i, i + PIECE - 1) end
  if #pieces > 0 then redis.call('RPUSH', openKey, unpack(pieces)) end
  r[OPEN], r.touch = #bytes, true
end

-- next_at notes what begins at byte `at` of the payload of w, or after. It is asked in rising order.
local function next_at(r, w, at)
  while w.mark < w.turns do
    local offset, bytes, tokens = struct.unpack('>I4I4c8', w.marks, w.mark * MARKSIZE + 1)
    if offset >= at then
      r[NEXTTURN], r[NEXTAT] = w.keep + w.mark, offset - at
      r[NEXTBYTES], r[NEXTTOKENS] = w.keptbytes + bytes, add64(w.kepttokens, tokens)
      return
    end
    w.mark = w.mark + 1
  end
  r[NEXTTURN], r[NEXTAT], r[NEXTBYTES], r[NEXTTOKENS] = r[TURNS], w.size - at, r[BYTES], r[TOKENS]
end

-- write_inline appends the payload of w, which came with the call in pieces from ARGV[first] on.
local function write_inline(r, w, first)
  if w.size == 0 then return end
  if r[OPEN] == 0 then
    next_at(r, w, 0)
    r.touch = true
  end
  local limit = r[SEALED] < SMALLLOG and SMALLCHUNK or LARGECHUNK
  if r[OPEN] + w.size <= limit then
    redis.call('RPUSH', openKey, unpack(ARGV, first))
    r[OPEN] = r[OPEN] + w.size
    return
  end
  local held = r[OPEN]
  local stream = table.concat(ARGV, '', first)
  if held > 0 then stream = open_bytes() .. stream end
  -- The first cut lies within this payload: only there is it known what begins where.
  local at, size = 0, math.max(limit, held)
  while #stream - at >= size do
    seal(r, string.sub(stream, at + 1, at + size))
    at, size = at + size, limit
    next_at(r, w, at - held)
  end
  reopen(r, string.sub(stream, at + 1))
end

local function staged_name(tag, i) return tag .. struct.pack('>I4', i) end

-- staged_whole reports whether a staged write is there with all its chunks. Who takes it off the list owns
-- its chunks: the log that links them, or who removes them.
local function staged_whole(w)
  if not redis.call('ZSCORE', stagedKey, w.staged) then return false end
  for i = 0, w.chunks - 1 do
    local size = struct.unpack('>I4', w.links, i * LINKSIZE + 1)
    if redis.call('HSTRLEN', logKey, staged_name(w.tag, i)) ~= size then return false end
  end
  return true
end

-- write_staged links the chunks of w, which are in the log key.
local function write_staged(r, w)
  if r[OPEN] > 0 then
    seal(r, open_bytes())
    reopen(r, '')
  end
  for i = 0, w.chunks - 1 do
    local size, turn, at, bytes, tokens = struct.unpack('>I4I4I4I4c8', w.links, i * LINKSIZE + 1)
    r[NEXTTURN], r[NEXTAT] = w.keep + turn, at
    r[NEXTBYTES], r[NEXTTOKENS] = w.keptbytes + bytes, add64(w.kepttokens, tokens)
    add_chunk(r, staged_name(w.tag, i), size)
  end
  r[NEXTTURN], r[NEXTAT], r[NEXTBYTES], r[NEXTTOKENS] = r[TURNS], 0, r[BYTES], r[TOKENS]
  r.touch = true
end

local function drop(names)
  for i = 1, #names, 1000 do redis.call('HDEL', logKey, unpack(names, i, math.min(i + 999, #names))) end
end

-- cut drops the stream from byte x on. What stays of a chunk becomes the open tail.
local function cut(r, x)
  if x >= r[SEALED] then
    if x - r[SEALED] < r[OPEN] then reopen(r, string.sub(open_bytes(), 1, x - r[SEALED])) end
    return
  end
  local gone, rest = {}, ''
  while r[CHUNKS] > 0 do
    local n = r[CHUNKS] - 1
    local i = n % PAGE
    open_page(r, (n - i) / PAGE)
    local name, from, size, turn, at, bytes, tokens = struct.unpack(ENTRY, page.bytes, i * ENTRYSIZE + 1)
    if from + size <= x then break end
    if from < x then
      rest = string.sub(redis.call('HGET', logKey, name), 1, x - from)
      r[NEXTTURN], r[NEXTAT], r[NEXTBYTES], r[NEXTTOKENS] = turn, at, bytes, tokens
    end
    gone[#gone + 1] = name
    r[CHUNKS], r[SEALED] = n, from
    page.bytes, page.dirty = string.sub(page.bytes, 1, i * ENTRYSIZE), true
    if i == 0 then
      gone[#gone + 1] = 'd' .. page.n
      page = {}
    end
  end
  drop(gone)
  reopen(r, rest)
end

-- Parked writes: op -> '>BI4I6 I8I8c8 I6 I2c0 I2c0 I4c0 B', then frames (B 0) or 'c8I4', the tag and
-- number of staged chunks (B 1). codec.go reads them.
local PARKEDLAYOUT = '>BI4I6I8I8c8I6I2c0I2c0I4c0B'
local PARKEDLIMIT = 8

-- park keeps a refused append for the owner, and reports whether it is kept.
local function park(r, w, first)
  if r[PARKED] > 0 and redis.call('HEXISTS', parkedKey, w.op) == 1 then return true, false end
  if r[PARKED] >= PARKEDLIMIT or w.bytes > w.most or w.probe then return false, false end
  if w.chunks > 0 and not staged_whole(w) then return false, false end
  local f = w.handle[1]
  local value = struct.pack(PARKEDLAYOUT, 1, r[SEQ], now, f[1], f[2], f[3], w.base, #w.by, w.by, #w.name, w.name,
    #w.meta, w.meta, w.chunks > 0 and 1 or 0)
  if w.chunks > 0 then
    value = value .. w.tag .. struct.pack('>I4', w.chunks)
    redis.call('ZREM', stagedKey, w.staged)
  else
    value = value .. table.concat(ARGV, '', first)
  end
  redis.call('HSET', parkedKey, w.op, value)
  r[PARKED], r[SEQ], r.touch = r[PARKED] + 1, r[SEQ] + 1, true
  return true, true
end

-- adopt forgets the parked write of an op that was accepted, and reports whether there was one.
local function adopt(r, op)
  local value = r[PARKED] > 0 and redis.call('HGET', parkedKey, op)
  if not value then return false end
  local out = { struct.unpack(PARKEDLAYOUT, value) }
  if out[#out - 1] == 1 then
    local tag, n = struct.unpack('>c8I4', value, out[#out])
    local names = {}
    for i = 0, n - 1 do names[#names + 1] = staged_name(tag, i) end
    drop(names)
  end
  redis.call('HDEL', parkedKey, op)
  r[PARKED] = r[PARKED] - 1
  return true
end
