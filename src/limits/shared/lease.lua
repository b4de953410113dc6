-- Keeps or gives back the slot of one stream.
--
-- KEYS: the streams of each level.
-- ARGV: the lease's name, and for how many milliseconds it is kept; 0 gives it back.
--
-- A lease that is not there any more is put back: its stream is still open, whatever became of the server's memory.
local lease, life = ARGV[1], tonumber(ARGV[2])
local time = redis.call('TIME')
local at = math.floor((time[1] * 1000000 + time[2]) / 1000)
for _, key in ipairs(KEYS) do
  if life == 0 then
    redis.call('ZREM', key, lease)
  else
    redis.call('ZADD', key, at + life, lease)
    redis.call('PEXPIRE', key, life)
  end
end
return 0
