-- The answer of a keyed request. KEYS[1] its key; ARGV: 1 what is to be done, 2 the value that the claim has, 3 milliseconds, 4 the answer.
-- A value begins with 0 for a claim and 1 for an answer. No key is ever without a time to live.

local held = redis.call('GET', KEYS[1])
if ARGV[1] == 'claim' then
  if held then return held end
  redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3])
  return false
end
if not held or string.sub(held, 1, #ARGV[2]) ~= ARGV[2] then return false end
if ARGV[1] == 'complete' then
  redis.call('SET', KEYS[1], ARGV[4], 'PX', ARGV[3])
else
  redis.call('DEL', KEYS[1])
end
return false
