-- views.lua reads records of one partition.
-- KEYS[...] records
-- Returns {now, {record, ...}}; what is not there is nil
register('views', READS, function() return { now, rcall('MGET', spread(KEYS)) } end)
