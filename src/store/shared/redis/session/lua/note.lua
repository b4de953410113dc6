-- Notes something of a lane that is there, which is no use of it. ARGV: 3 'checked', 4 revision, 5 number of turns that were looked at;
-- or 3 'sent', 4 the last request; or 3 'damaged', 4 whose call made the lane that cannot be read: it goes.

local state = standing()
if state == 'newer' then return 'newer' end
if state ~= 'held' then return 'none' end
if ARGV[3] == 'sent' then
  call('HSET', lane, 'l', ARGV[4])
elseif ARGV[3] == 'damaged' then
  if call('HGET', lane, 'u') == ARGV[4] then call('DEL', lane) end
else
  local meta = call('HMGET', lane, 'c', 'k')
  if meta[1] == ARGV[5] and tonumber(ARGV[4]) > tonumber(meta[2]) then call('HSET', lane, 'k', ARGV[4]) end
end
return 'held'
