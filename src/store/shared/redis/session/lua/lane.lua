-- A frozen lane is one hash, so that nothing of it can be evicted or expire without the rest:
--
--   v  layout it is written in       u  whose call made it: another lane under the same name has another one
--   o  name of Region A              e  its epoch          n  its nonce's epoch    p  whose call has put it
--   k  revision it is checked up to  l  last request       r  1 when it was rendered again from the store
--   s  turns settled so far          c  turns that it holds
--   t<chain>   a turn: number (8 bytes), message (4), anchor (16), name of its block (16, missing when it got nothing)
--   a<anchor>  the newest turns with this anchor, in the order of settling: number (8), chain (16), name of the block (16, zeros for none)
--   b<name>    Region A or a block. The name follows from the content, so it never changes, and turns that got the same block share it: a
--              window that slides settles the same turns again and again.
--
-- This part stands before every script. ARGV[1] is the time after which an unused lane goes, in milliseconds; ARGV[2] the layout.

local lane, idle, layout = KEYS[1], ARGV[1], tonumber(ARGV[2])
local call, sub = redis.call, string.sub
-- Bytes of a turn before the name of its block; bytes of an entry of an anchor, and of it before the name.
local HEAD, ENTRY, ENTRY_HEAD = 28, 40, 24
local NONE = string.rep('\0', 16)

local function standing()
  local written = call('HGET', lane, 'v')
  if not written then return 'none' end
  written = tonumber(written)
  if written == layout then return 'held' end
  return written > layout and 'newer' or 'older'
end

-- Has a lane to write to, and uses it; false when a newer program has it. Redis refuses a script that adds to a full memory at its first
-- write, and lets it go on after that: with `adds` the first write is one that is refused.
local function take_up(token, adds)
  local state = standing()
  if state == 'newer' then return false end
  if state == 'older' then call('DEL', lane) end
  if state ~= 'held' then
    call('HSET', lane, 'v', layout, 'u', token, 'k', '0', 's', '0', 'c', '0')
  elseif adds then
    call('HSET', lane, 'v', layout)
  end
  call('PEXPIRE', lane, idle)
  return true
end

local function entry(number, chain, name)
  return struct.pack('>I8', number) .. chain .. (name == '' and NONE or name)
end

-- The interpreter's stack has an end, so not all at once.
local function remove(fields)
  for first = 1, #fields, 1000 do
    call('HDEL', lane, unpack(fields, first, math.min(first + 999, #fields)))
  end
end
