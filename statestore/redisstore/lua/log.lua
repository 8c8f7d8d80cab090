-- log.lua holds how the context of a session is written: one stream of bytes, in which frame follows frame.
--
--   log key   name (12 bytes) -> chunk   large parts of writes; a name is never given twice, so what it
--                                        names never changes
--             d0, d1, ...                the directory: PAGE entries a page
--             m                          meta of the context
--   open key  list of pieces             the small rest of each write, as it came
--
-- An entry of the directory says where a part of the stream begins, and which turn is the first that begins
-- there or later. Its part is its chunk, if it has one, and then the pieces up to the next entry's. So the
-- bytes of a chunk never pass through Lua, which would cost more than storing them.
local PAGE, ENTRY, ENTRYSIZE, LINKSIZE, PIECE = 64, '>c12I6I4I4I6I4I6c8', 50, 24, 500
local NOCHUNK = '\0\0\0\0\0\0\0\0\0\0\0\0'
-- STRIDE is how many bytes of pieces may follow an entry before the next write has one of its own.
local STRIDE = 32768

-- add64 adds two counts of 64 bits, which no number of Lua's can hold.
local function add64(a, b)
  local ah, al = struct.unpack('>I4I4', a)
  local bh, bl = struct.unpack('>I4I4', b)
  local low = al + bl
  if low >= 4294967296 then ah = ah + 1 end
  return struct.pack('>I4I4', (ah + bh) % 4294967296, low % 4294967296)
end

-- page is the page of the directory at hand; read_write clears it.
local page = {}

local function flush_page()
  if page.dirty then redis.call('HSET', logKey, 'd' .. page.n, page.bytes) end
  page.dirty = false
end

local function open_page(r, n)
  if page.n == n then return end
  flush_page()
  page.n, page.bytes = n, n * PAGE < r[ENTRIES] and redis.call('HGET', logKey, 'd' .. n) or ''
end

-- add_entry begins a part of the stream at its end, with a chunk or without.
local function add_entry(r, name, size, turn, at, bytes, tokens)
  if r[ENTRIES] == 0 then r.touch = true end
  open_page(r, math.floor(r[ENTRIES] / PAGE))
  page.bytes = page.bytes .. struct.pack(ENTRY, name, r[STREAM], size, r[PIECES], turn, at, bytes, tokens)
  page.dirty = true
  r[ENTRIES], r[STREAM], r[SINCE] = r[ENTRIES] + 1, r[STREAM] + size, 0
end

-- add_pieces appends pieces to the open tail.
local function add_pieces(r, pieces, first, size)
  if size == 0 then return end
  redis.call('RPUSH', openKey, unpack(pieces, first))
  if r[PIECES] == 0 then r.touch = true end
  r[PIECES], r[STREAM], r[SINCE] = r[PIECES] + #pieces - first + 1, r[STREAM] + size, r[SINCE] + size
end

local function chunk_name(tag, i) return tag .. struct.pack('>I4', i) end

-- append_stream links the chunks of w, which are in the log key, and appends its pieces.
local function append_stream(r, w)
  for i = 0, w.chunks - 1 do
    local size, turn, at, bytes, tokens = struct.unpack('>I4I4I4I4c8', w.links, i * LINKSIZE + 1)
    add_entry(r, chunk_name(w.tag, i), size, w.keep + turn, at, w.keptbytes + bytes, add64(w.kepttokens, tokens))
  end
  if w.chunks == 0 and r[SINCE] > STRIDE then add_entry(r, NOCHUNK, 0, w.keep, 0, w.keptbytes, w.kepttokens) end
  add_pieces(r, ARGV, w.first, w.rest)
  flush_page()
end

local function drop(names)
  for i = 1, #names, 1000 do redis.call('HDEL', logKey, unpack(names, i, math.min(i + 999, #names))) end
end

-- cut_stream keeps the first keep.bytes of the stream: keep.entries of the directory, keep.pieces of the open
-- tail, and of the next piece keep.part bytes. keep.since is what pieces follow the last entry then.
local function cut_stream(r, keep)
  local gone = {}
  while r[ENTRIES] > keep.entries do
    local n = r[ENTRIES] - 1
    local i = n % PAGE
    open_page(r, (n - i) / PAGE)
    local name = string.sub(page.bytes, i * ENTRYSIZE + 1, i * ENTRYSIZE + 12)
    if name ~= NOCHUNK then gone[#gone + 1] = name end
    page.bytes, page.dirty, r[ENTRIES] = string.sub(page.bytes, 1, i * ENTRYSIZE), true, n
    if i == 0 then
      gone[#gone + 1] = 'd' .. page.n
      page = {}
    end
  end
  local piece = keep.part > 0 and string.sub(redis.call('LINDEX', openKey, keep.pieces), 1, keep.part)
  if keep.pieces == 0 then
    redis.call('DEL', openKey)
  else
    redis.call('LTRIM', openKey, 0, keep.pieces - 1)
  end
  drop(gone)
  r[PIECES], r[STREAM], r[SINCE] = keep.pieces, keep.bytes - keep.part, keep.since - keep.part
  if piece then add_pieces(r, { piece }, 1, keep.part) end
end

-- cut_chunk makes pieces of what stays of the last entry's chunk.
local function cut_chunk(r, size)
  local n = r[ENTRIES] - 1
  local i = n % PAGE
  open_page(r, (n - i) / PAGE)
  local name, from, _, _, turn, at, bytes, tokens = struct.unpack(ENTRY, page.bytes, i * ENTRYSIZE + 1)
  local rest, pieces = string.sub(redis.call('HGET', logKey, name), 1, size), {}
  page.bytes, r[ENTRIES], r[STREAM] = string.sub(page.bytes, 1, i * ENTRYSIZE), n, from
  add_entry(r, NOCHUNK, 0, turn, at, bytes, tokens)
  for j = 1, #rest, PIECE do pieces[#pieces + 1] = string.sub(rest, j, j + PIECE - 1) end
  add_pieces(r, pieces, 1, size)
  drop({ name })
end

-- chunks_whole reports whether all chunks of the write are there. Who takes a staged write off the list
-- owns its chunks: the log that links them, or who removes them.
local function chunks_whole(w)
  if w.staged and not redis.call('ZSCORE', stagedKey, w.staged) then return false end
  for i = 0, w.chunks - 1 do
    local size = struct.unpack('>I4', w.links, i * LINKSIZE + 1)
    if redis.call('HSTRLEN', logKey, chunk_name(w.tag, i)) ~= size then return false end
  end
  return true
end

local function drop_chunks(tag, n)
  local names = {}
  for i = 0, n - 1 do names[#names + 1] = chunk_name(tag, i) end
  drop(names)
end

-- Parked writes: op -> '>BI4I6 I8I8c8 I6 I2c0 I2c0 I4c0 c8I4', the last the tag and number of its chunks,
-- and then its pieces. codec.go reads them.
local PARKEDLAYOUT = '>BI4I6I8I8c8I6I2c0I2c0I4c0c8I4'
local PARKEDLIMIT = 8

-- parked_chunks reads the tag and the number of chunks of a parked write, if there is one.
local function parked_chunks(r, op)
  local value = r[PARKED] > 0 and redis.call('HGET', parkedKey, op)
  if not value then return nil end
  local out = { struct.unpack(PARKEDLAYOUT, value) }
  return out[#out - 2], out[#out - 1]
end

-- park keeps a refused append for the owner. It reports whether it is kept, and whether it was not before.
local function park(r, w)
  if parked_chunks(r, w.op) then return true, false end
  if r[PARKED] >= PARKEDLIMIT or w.bytes > w.most or w.probe or not chunks_whole(w) then return false, false end
  local f = w.handle[1]
  local value = struct.pack(PARKEDLAYOUT, 1, r[SEQ], now, f[1], f[2], f[3], w.base, #w.by, w.by, #w.name, w.name,
    #w.meta, w.meta, w.tag, w.chunks)
  redis.call('HSET', parkedKey, w.op, value .. table.concat(ARGV, '', w.first))
  if w.staged then redis.call('ZREM', stagedKey, w.staged) end
  r[PARKED], r[SEQ], r.touch = r[PARKED] + 1, r[SEQ] + 1, true
  return true, true
end

-- adopt forgets the parked write of an op that was accepted, and reports whether there was one.
local function adopt(r, op)
  local tag, n = parked_chunks(r, op)
  if not tag then return false end
  drop_chunks(tag, n)
  redis.call('HDEL', parkedKey, op)
  r[PARKED] = r[PARKED] - 1
  return true
end

-- linked reports whether the session has the chunks of the write: its log, or the parked write of the op.
local function linked(r, w)
  for n = 0, math.ceil(r[ENTRIES] / PAGE) - 1 do
    if string.find(redis.call('HGET', logKey, 'd' .. n), w.tag, 1, true) then return true end
  end
  return parked_chunks(r, w.op) == w.tag
end

-- leave_chunks removes the chunks of a write that is not taken, unless a copy of it was.
local function leave_chunks(r, w)
  if w.chunks == 0 or (w.staged and redis.call('ZREM', stagedKey, w.staged) == 0) then return end
  if not (r and linked(r, w)) then drop_chunks(w.tag, w.chunks) end
end
