-- Replaces Region A. ARGV: 3 token of the call, 4 epoch to be replaced, 5 name of Region A, 6 Region A, 7 its epoch, 8 its nonce's epoch,
-- 9 what becomes of the blocks: 'keep', 'drop' or 'swap'. For 'swap': 10 whose call made the lane that was looked at, 11 how many turns were
-- settled in it then, both nothing for a lane that was not there, 12 number of blocks to swap, then for each its name and the new one's or
-- nothing; then the new blocks, each behind its name.
--
-- The answer has name and content of the Region A that holds, nothing when it is this call's own. A lane without one has been lost since it
-- was read, and its turns with it: it is not opened here, because it would look whole.

local token, name, fate = ARGV[3], ARGV[5], ARGV[9]
if standing() ~= 'newer' and not (standing() == 'held' and call('HGET', lane, 'e')) then return {'rotated'} end
local before = call('HMGET', lane, 'u', 's')
-- A rotation mostly makes a lane smaller, and takes away what was forgotten: it may be done in a Redis that is full.
if not take_up(token, false) then return {'newer'} end

local meta = call('HMGET', lane, 'e', 'p', 'o')
if meta[1] ~= ARGV[4] then
  if meta[2] == token then return {'put', '', ''} end
  return {'put', meta[3], call('HGET', lane, 'b' .. meta[3])}
end
if fate == 'swap' and ((before[1] or '') ~= ARGV[10] or (before[2] or '') ~= ARGV[11]) then return {'again'} end

local gone, swaps = {}, {}
if meta[3] ~= name then gone[1] = 'b' .. meta[3] end
call('HSET', lane, 'o', name, 'b' .. name, ARGV[6], 'e', ARGV[7], 'n', ARGV[8], 'p', token)
if fate == 'swap' then
  local after = 13 + 2 * tonumber(ARGV[12])
  for at = 13, after - 1, 2 do
    swaps[ARGV[at]] = ARGV[at + 1]
    gone[#gone + 1] = 'b' .. ARGV[at]
  end
  for at = after, #ARGV, 2 do call('HSETNX', lane, 'b' .. ARGV[at], ARGV[at + 1]) end
end

-- The name that stands in the place of this one; nothing when it stays.
local function instead(of)
  if of == '' or of == NONE then return nil end
  if fate == 'drop' then return '' end
  return swaps[of]
end
local function change(field, value)
  local kind = #field > 1 and sub(field, 1, 1)
  if kind == 't' then
    local new = instead(sub(value, HEAD + 1))
    if new then call('HSET', lane, field, sub(value, 1, HEAD) .. new) end
  elseif kind == 'a' then
    local entries, changed = {}, false
    for at = 1, #value, ENTRY do
      local one = sub(value, at, at + ENTRY - 1)
      local new = instead(sub(one, ENTRY_HEAD + 1))
      if new then one, changed = sub(one, 1, ENTRY_HEAD) .. (new == '' and NONE or new), true end
      entries[#entries + 1] = one
    end
    if changed then call('HSET', lane, field, table.concat(entries)) end
  elseif kind == 'b' and fate == 'drop' and sub(field, 2) ~= name then
    gone[#gone + 1] = field
  end
end
if fate ~= 'keep' then
  local all = call('HGETALL', lane)
  for i = 1, #all, 2 do change(all[i], all[i + 1]) end
end
remove(gone)
return {'put', '', ''}
