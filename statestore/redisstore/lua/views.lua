-- views.lua reads records of one partition.
-- KEYS[...] records
-- Returns {now, {record, ...}}; what is not there is nil
register('views', READS, function() return { now, redis.call('MGET', unpack(KEYS)) } end)
