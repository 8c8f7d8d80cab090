-- views.lua reads records of one partition.
-- KEYS[...] records   ARGV[1] ms added to the clock
-- Returns {now, {record, ...}}; what is not there is nil
local time = redis.call('TIME')
return { time[1] * 1000 + math.floor(time[2] / 1000) + ARGV[1], redis.call('MGET', unpack(KEYS)) }
