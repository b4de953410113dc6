-- Opens, restores and settles. ARGV: 3 token of the call, 4 'open', 'restore' or 'settle', 5 nonce's epoch, 6 name of Region A, 7 its epoch,
-- 8 most turns, 9 most entries of an anchor, 10 number of turns, then for each its chain, its message and anchor, the name of its block or
-- nothing, the revision at which the block is known; then the values, each behind its name.
--
-- What is there stays. The answer has name and content of the Region A that holds, nothing when it is this call's own; for each turn the
-- name of the block that it holds; and those of these blocks that were not offered, each behind its name.

local token, mode, nonce = ARGV[3], ARGV[4], ARGV[5]
if not take_up(token, true) then return {'newer'} end

local answer, needed = {'put', '', ''}, {}
if mode ~= 'settle' then
  local opened = call('HEXISTS', lane, 'o') == 1
  if opened and mode == 'restore' then return answer end
  if not opened then
    call('HSET', lane, 'o', ARGV[6], 'e', ARGV[7], 'n', nonce, 'p', token, 'k', '0')
    if mode == 'restore' then call('HSET', lane, 'r', '1') end
    needed[ARGV[6]] = true
  elseif call('HGET', lane, 'p') ~= token then
    answer[2] = call('HGET', lane, 'o')
    answer[3] = call('HGET', lane, 'b' .. answer[2])
  end
end
local holds = call('HGET', lane, 'n')
if holds and holds ~= nonce then return {'rotated'} end

local meta = call('HMGET', lane, 's', 'c', 'k')
local settled, held, checked = tonumber(meta[1]), tonumber(meta[2]), meta[3]
local most, most_entries, count = tonumber(ARGV[8]), tonumber(ARGV[9]), tonumber(ARGV[10])

local appended = {}
for turn = 1, count do
  local at = 7 + 4 * turn
  local chain, place, name, known = ARGV[at], ARGV[at + 1], ARGV[at + 2], ARGV[at + 3]
  if call('HSETNX', lane, 't' .. chain, struct.pack('>I8', settled) .. place .. name) == 1 then
    local anchor = sub(place, 5)
    appended[anchor] = appended[anchor] or {}
    table.insert(appended[anchor], entry(settled, chain, name))
    settled, held = settled + 1, held + 1
    if name ~= '' then
      needed[name] = true
      if tonumber(known) < tonumber(checked) then checked = known end
    end
  else
    name = sub(call('HGET', lane, 't' .. chain), HEAD + 1)
  end
  answer[3 + turn] = name
end
local told = {[''] = true}
for at = 11 + 4 * count, #ARGV, 2 do
  told[ARGV[at]] = true
  if needed[ARGV[at]] then call('HSETNX', lane, 'b' .. ARGV[at], ARGV[at + 1]) end
end
for turn = 1, count do
  local name = answer[3 + turn]
  if not told[name] then
    told[name] = true
    answer[#answer + 1] = name
    answer[#answer + 1] = call('HGET', lane, 'b' .. name)
  end
end
for anchor, entries in pairs(appended) do
  local all = (call('HGET', lane, 'a' .. anchor) or '') .. table.concat(entries)
  call('HSET', lane, 'a' .. anchor, sub(all, -most_entries * ENTRY))
end

-- Of very many turns the oldest half goes; what has a block goes last, because other branches of a conversation may be longer.
local function drop_oldest()
  local all = call('HGETALL', lane)
  local turns, gone, used = {}, {}, {}
  for i = 1, #all, 2 do
    local field, value = all[i], all[i + 1]
    local kind = #field == 1 and field or sub(field, 1, 1)
    if kind == 'o' then used[value] = true
    elseif kind == 't' then
      local turn = {chain = sub(field, 2), number = struct.unpack('>I8', value)}
      turn.anchor, turn.block = sub(value, 13, HEAD), sub(value, HEAD + 1)
      turns[#turns + 1] = turn
    elseif kind == 'a' then gone[field] = true end
  end
  table.sort(turns, function(x, y) return x.number < y.number end)
  local least = turns[math.floor(#turns / 2) + 1].number
  local function without(old)
    local kept = {}
    for _, turn in ipairs(turns) do
      if old(turn) then gone['t' .. turn.chain] = true else kept[#kept + 1] = turn end
    end
    turns = kept
  end
  without(function(turn) return turn.number < least and turn.block == '' end)
  if #turns > most then without(function(turn) return turn.number < least end) end
  local anchors = {}
  for _, turn in ipairs(turns) do
    used[turn.block] = true
    anchors[turn.anchor] = anchors[turn.anchor] or {}
    table.insert(anchors[turn.anchor], entry(turn.number, turn.chain, turn.block))
  end
  for i = 1, #all, 2 do
    local field = all[i]
    if #field > 1 and sub(field, 1, 1) == 'b' and not used[sub(field, 2)] then gone[field] = true end
  end
  local fields = {}
  for field in pairs(gone) do fields[#fields + 1] = field end
  remove(fields)
  for anchor, entries in pairs(anchors) do
    call('HSET', lane, 'a' .. anchor, sub(table.concat(entries), -most_entries * ENTRY))
  end
  return #turns
end
if held > most then held = drop_oldest() end

call('HSET', lane, 's', string.format('%.0f', settled), 'c', string.format('%.0f', held), 'k', checked)
return answer
