-- log.lua holds how the context of a session is written: one stream of bytes, in which frame follows frame.
--
--   log key        name (12 bytes) -> chunk   large parts of writes; a name is never given twice, so what it
--                                             names never changes. And m -> meta of the context
--   open key       list of pieces             the small rest of each write, as it came
--   directory key  list of entries            one for each chunk, and now and then one for pieces alone
--
-- An entry says where a part of the stream begins, and which turn is the first that begins there or later.
-- Its part is its chunk, if it has one, with the end of the write where that is short enough to stand in the
-- entry, and then the pieces up to the next entry's. Every key that a write touches costs Redis as much as a
-- kilobyte does. Nothing that is stored is ever read to be joined: bytes that pass through Lua cost more than
-- storing them.
local ENTRY, LINK, LINKSIZE, PIECE = '>c12I6I4I4I6I4I6I4I4', '>I4I4I4I4I4I4', 24, 500
local NOCHUNK = '\0\0\0\0\0\0\0\0\0\0\0\0'
-- SHORT is how long an end of a write may be that stands in the entry of its last chunk.
local SHORT = 128
-- STRIDE is how many bytes of pieces may follow an entry before the next write has one of its own.
local STRIDE = 32768
local WORD = 4294967296

-- The write under way, as append.lua unpacks it: what it is, what its turns add, what stays below them.
local kind, place, recreate, probe, staged, sent, tag, chunks, links
local turns, bytes, tokens_high, tokens, rest, most, op, op_name, content, base, by, handle, meta
local keep, kept_bytes, kept_high, kept_tokens
local first_piece -- in ARGV

-- add_entry begins a part of the stream at its end, with a chunk or without. size is that of the chunk and of
-- the end of the write that follows it in the entry.
local function add_entry(r, name, size, turn, at, before, high, low, ending)
  if r[ENTRIES] == 0 then touched = true end
  rcall('RPUSH', dirKey, pack(ENTRY, name, r[STREAM], size, r[PIECES], turn, at, before, high, low) .. (ending or ''))
  r[ENTRIES], r[STREAM], r[SINCE] = r[ENTRIES] + 1, r[STREAM] + size, 0
end

-- add_pieces appends pieces of so many bytes to the open tail.
local function add_pieces(r, pieces, first, size)
  if size == 0 then return end
  if r[PIECES] == 0 then touched = true end
  r[PIECES] = rcall('RPUSH', openKey, spread(pieces, first))
  r[STREAM], r[SINCE] = r[STREAM] + size, r[SINCE] + size
end

local function chunk_name(t, i) return t .. pack('>I4', i) end

-- put_chunks writes the chunks that came with the call; others are there.
local function put_chunks()
  if staged or sent then return end
  for i = 0, chunks - 1 do rcall('HSET', logKey, chunk_name(tag, i), ARGV[first_piece - chunks + i]) end
end

-- append_stream appends the chunks of the write and then its pieces.
local function append_stream(r)
  put_chunks()
  local ending = chunks > 0 and rest <= SHORT and ARGV[first_piece] or ''
  for i = 0, chunks - 1 do
    local size, turn, at, before, high, low = unpack_at(LINK, links, i * LINKSIZE + 1)
    low, high = low + kept_tokens, high + kept_high
    if low >= WORD then low, high = low - WORD, high + 1 end
    local last = i == chunks - 1 and ending or ''
    add_entry(r, chunk_name(tag, i), size + #last, keep + turn, at, kept_bytes + before, high % WORD, low, last)
  end
  if chunks == 0 and r[SINCE] > STRIDE then add_entry(r, NOCHUNK, 0, keep, 0, kept_bytes, kept_high, kept_tokens) end
  add_pieces(r, ARGV, first_piece, rest - #ending)
end

local function drop(names)
  for i = 1, #names, 1000 do rcall('HDEL', logKey, spread(names, i, min(i + 999, #names))) end
end

-- keep_first trims a list to its first n elements.
local function keep_first(key, n)
  if n == 0 then rcall('DEL', key) else rcall('LTRIM', key, 0, n - 1) end
end

-- cut_stream keeps the first c.bytes of the stream: c.entries of the directory, c.pieces of the open tail, and of
-- the next piece c.part bytes. c.since is what pieces follow the last entry then.
local function cut_stream(r, c)
  local gone = {}
  for from = c.entries, r[ENTRIES] - 1, 500 do
    for _, entry in ipairs(rcall('LRANGE', dirKey, from, from + 499)) do
      local name = sub(entry, 1, 12)
      if name ~= NOCHUNK then gone[#gone + 1] = name end
    end
  end
  drop(gone)
  local piece = c.part > 0 and sub(rcall('LINDEX', openKey, c.pieces), 1, c.part)
  keep_first(openKey, c.pieces)
  keep_first(dirKey, c.entries)
  r[ENTRIES], r[PIECES], r[STREAM], r[SINCE] = c.entries, c.pieces, c.bytes - c.part, c.since - c.part
  if piece then add_pieces(r, { piece }, 1, c.part) end
end

-- cut_chunk makes pieces of the first bytes of the last entry's chunk and what stands in the entry.
local function cut_chunk(r, size)
  local entry = rcall('LINDEX', dirKey, -1)
  local name, from, _, _, turn, at, before, high, low, ending = unpack_at(ENTRY, entry)
  local text, pieces = sub(rcall('HGET', logKey, name) .. sub(entry, ending), 1, size), {}
  for i = 1, #text, PIECE do pieces[#pieces + 1] = sub(text, i, i + PIECE - 1) end
  drop({ name })
  rcall('RPOP', dirKey)
  r[ENTRIES], r[STREAM] = r[ENTRIES] - 1, from
  add_entry(r, NOCHUNK, 0, turn, at, before, high, low)
  add_pieces(r, pieces, 1, size)
end

-- chunks_whole reports whether all chunks of the write are there: what was sent goes with a session whose time
-- was over. Who takes a staged write off the list owns its chunks: the log that links them, or who removes them.
local function chunks_whole()
  if sent then return not buried end
  if not staged then return true end
  if not rcall('ZSCORE', stagedKey, staged) then return false end
  for i = 0, chunks - 1 do
    local size = unpack_at('>I4', links, i * LINKSIZE + 1)
    if rcall('HSTRLEN', logKey, chunk_name(tag, i)) ~= size then return false end
  end
  return true
end

local function drop_chunks(t, n)
  local names = {}
  for i = 0, n - 1 do names[#names + 1] = chunk_name(t, i) end
  drop(names)
end

-- take_chunks says that what is stored now links the chunks of the write.
local function take_chunks()
  if staged then rcall('ZREM', stagedKey, staged) end
  sent = false
end

-- leave_chunks removes the chunks of a write that is not taken.
local function leave_chunks()
  if sent or staged and rcall('ZREM', stagedKey, staged) == 1 then drop_chunks(tag, chunks) end
end

-- Parked writes: op -> seq, time, floor, base+1, writer, op's name, meta, tag and number of chunks, and then
-- the pieces. codec.go reads them.
local PARKEDLAYOUT = '>BI4I6I8I8c8I6I2c0I2c0I4c0c8I4'
local PARKEDLIMIT = 8

-- parked_chunks reads the tag and the number of chunks of the parked write of the op, if there is one.
local function parked_chunks(r)
  local value = r[PARKED] > 0 and rcall('HGET', parkedKey, op)
  if not value then return nil end
  local out = { unpack_at(PARKEDLAYOUT, value) }
  return out[#out - 2], out[#out - 1]
end

-- park keeps a refused append for the owner. It reports whether it is kept, and whether it was not before.
local function park(r)
  if parked_chunks(r) then return true, false end
  if r[PARKED] >= PARKEDLIMIT or bytes > most or probe == 1 or not chunks_whole() then return false, false end
  local f = handle[1]
  local value = pack(PARKEDLAYOUT, 1, r[SEQ], now, f[1], f[2], f[3], base, #by, by, #op_name, op_name, #meta, meta, tag, chunks)
  put_chunks()
  rcall('HSET', parkedKey, op, value .. concat(ARGV, '', first_piece))
  take_chunks()
  r[PARKED], r[SEQ], touched = r[PARKED] + 1, r[SEQ] + 1, true
  return true, true
end

-- adopt forgets the parked write of an op that was accepted, and reports whether there was one.
local function adopt(r)
  local t, n = parked_chunks(r)
  if not t then return false end
  drop_chunks(t, n)
  rcall('HDEL', parkedKey, op)
  r[PARKED] = r[PARKED] - 1
  return true
end
