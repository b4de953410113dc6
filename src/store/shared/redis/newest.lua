-- Keeps the newest of what replicas have read. KEYS[1] the value; ARGV: 1 milliseconds that it is kept, 2 the value, which begins with the
-- revision that it was read at. A revision alone takes away what was read before it, and what is read before it is not taken any more.

local held = redis.call('GETRANGE', KEYS[1], 0, 7)
if #held == 8 then
  local before, now = struct.unpack('>i8', held), struct.unpack('>i8', ARGV[2])
  if before > now or (before == now and #ARGV[2] == 8) then return 0 end
end
redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[1])
return 1
