-- library.lua begins the library of functions that Redis keeps for us. It is loaded once: what a call needs
-- anew stands in the variables that register fills. The files that follow share its names; each transition
-- is a file, whose own names end with it.
--
-- Flags say when Redis refuses a function before it begins: WRITES while memory is full, so that nothing is
-- stored by halves; FREES never, for what must work even then; READS on its first write.
local WRITES, FREES, READS = {}, { 'allow-oom' }, { 'no-writes' }

-- Names of Lua and Redis, which are not there yet when a library is loaded and cost a search each time they
-- are called by their full names. spread is Lua's own unpack.
local rcall, pack, unpack_at, spread, sub, find_in, concat, floor, max, min

local function name_all()
  rcall, pack, unpack_at, spread = redis.call, struct.pack, struct.unpack, unpack
  sub, find_in, concat, floor, max, min = string.sub, string.find, table.concat, math.floor, math.max, math.min
end

-- Of the call under way; ARGV[1] is always what tests add to the clock, in ms.
local KEYS, ARGV, now

local function register(name, flags, run)
  redis.register_function({
    function_name = LIBRARY .. '_' .. name,
    flags = flags,
    callback = function(keys, args)
      if not rcall then name_all() end
      KEYS, ARGV = keys, args
      local time = rcall('TIME')
      now = time[1] * 1000 + floor(time[2] / 1000) + ARGV[1]
      return run()
    end,
  })
end
