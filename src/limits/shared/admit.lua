-- Counts cells at several levels from narrow to wide, and takes a stream's slot at several levels, in one step.
--
-- KEYS: the rate of each level, then the streams of each level.
-- ARGV: how many of the keys are rates, cells, the quota per minute of each rate, the most streams of each level, the lease's name and its
--       life in milliseconds.
-- Returns 0, or n when the n-th rate refused, or -n when the n-th level has no slot left; then for each rate in turn the cells that are
-- left, and for the one that refused the microseconds until it will not, or -1 if it always will.
--
-- A rate is one time: when all that has been counted will have drained. Times are whole microseconds of the server's clock, so that the
-- clocks of the replicas do not matter. A number in Lua holds them exactly until the year 2255.
local MINUTE = 60000000
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local rates, cells = tonumber(ARGV[1]), tonumber(ARGV[2])
local said = { 0 }

for i = 1, rates do
  local quota = tonumber(ARGV[2 + i])
  if cells > quota then
    said[1] = i
    said[#said + 1] = -1
    return said
  end
  local drained = tonumber(redis.call('GET', KEYS[i])) or now
  -- Nothing is ever counted so far ahead: the clock was set back by more than a minute. Counting begins anew.
  if drained > now + 2 * MINUTE then
    drained = now
  end
  local ahead = math.max(drained - now, 0) + math.floor(cells * MINUTE / quota)
  if ahead > MINUTE then
    said[1] = i
    said[#said + 1] = ahead - MINUTE
    return said
  end
  -- Value and lifetime in one command: there is no moment at which the key would stay for ever.
  redis.call('SET', KEYS[i], string.format('%.0f', now + ahead), 'PX', math.max(math.ceil(ahead / 1000), 1))
  said[#said + 1] = math.floor((MINUTE - ahead) * quota / MINUTE)
end

local streams = #KEYS - rates
if streams > 0 then
  local lease, life = ARGV[3 + #KEYS], tonumber(ARGV[4 + #KEYS])
  local at = math.floor(now / 1000)
  for i = 1, streams do
    local key = KEYS[rates + i]
    redis.call('ZREMRANGEBYSCORE', key, '-inf', at)
    local full = redis.call('ZCARD', key) >= tonumber(ARGV[2 + rates + i])
    -- Asked twice, because the first answer was lost, it is not refused for its own slot.
    if full and not redis.call('ZSCORE', key, lease) then
      said[1] = -i
      return said
    end
  end
  for i = 1, streams do
    redis.call('ZADD', KEYS[rates + i], at + life, lease)
    redis.call('PEXPIRE', KEYS[rates + i], life)
  end
end
return said
