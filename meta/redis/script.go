package redis

import (
	"crypto/sha1"
	"encoding/hex"
)

// script is a Lua script that the server keeps by its sum.
type script struct {
	sum, source string
}

func newScript(source string) *script {
	sum := sha1.Sum([]byte(source))
	return &script{hex.EncodeToString(sum[:]), source}
}

// scripts are those of this package.
type scripts struct {
	apply, renew, release, tail, sweep *script // on all keys of a slot
	get, list                          *script // on its hash, and its index
	stream                             *script // on the stream of a Cluster
	lacks                              *script // on its hash, and its log
}

func newScripts() scripts {
	return scripts{
		apply: newScript(luaSlot + luaApply), renew: newScript(luaSlot + luaRenew),
		release: newScript(luaSlot + luaRelease), tail: newScript(luaSlot + luaTail),
		sweep: newScript(luaSlot + luaSweep),
		get:   newScript(luaGet), list: newScript(luaList), lacks: newScript(luaLacks),
		stream: newScript(luaStream),
	}
}

// luaSlot begins every script that may change a slot: it reads the slot's facts,
// and takes out the records whose leases have run out.
//
// KEYS: hash, log, index, ends. ARGV[1]: what Store.publish says.
//
// The hash's empty field is "VERSION TOMBSTONES LOGGED INDEXED": 16 digits, how
// many fields begin with "/gone/", bytes in the log, 1 if there is an index. A
// record is its version in 16 digits and "-" with the value, or "L" with the
// end in milliseconds (16 digits), the lease's id (16 characters) and the value.
//
// An item of the log, and what is published, is the version before, the version
// (16 digits each) and for each change "S" or "L" (leased) with field and value,
// or "D" with the field, each as LENGTH:BYTES. Changes too large for the log
// empty it, and those too large to be published are published as "!".
//
// What followers are told of slots of directories, sets and nodes is the same
// with what each field had, as "-" or "+LENGTH:BYTES" after its change. It goes to
// the channel of the slot with a "+" while somebody has subscribed to patterns,
// and to the stream that ARGV[1] names after the channel's end, as MAXLEN:KEY, or,
// where that is another server's, to who runs the script (R).
const luaSlot = `
local rec, log, index, ends = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local call = redis.call
local t = call('TIME')
local us = t[1] * 1000000 + t[2]
local ms = math.floor(us / 1000)
local version, gone, logged, indexed = 0, 0, 0, 0
local facts = call('HGET', rec, '')
if facts then
  local v, g, l, i = string.match(facts, '^(%d+) (%d+) (%d+) ([01])$')
  if not v then return redis.error_reply('UNREADABLE slot ' .. rec) end
  version, gone, logged, indexed = tonumber(v), tonumber(g), tonumber(l), tonumber(i)
end
local leased = call('EXISTS', ends) == 1
local function digits(n) return string.format('%016.0f', n) end
local function tombstone(f) return string.sub(f, 1, 6) == '/gone/' end

local function mind()
  if indexed == 1 or call('HLEN', rec) <= 65 then return false end
  local all, batch = call('HKEYS', rec), {}
  for _, f in ipairs(all) do
    if f ~= '' then batch[#batch + 1] = 0; batch[#batch + 1] = f end
    if #batch >= 1000 then call('ZADD', index, unpack(batch)); batch = {} end
  end
  if #batch > 0 then call('ZADD', index, unpack(batch)) end
  indexed = 1
  return true
end

local function note(item)
  local size = #item
  if size > 262144 then
    call('DEL', log)
    logged = 0
  else
    call('XADD', log, 'MAXLEN', '~', 1000, string.sub(item, 17, 32) .. '-0', 'e', item)
    logged = logged + size
    if logged > 1048576 then
      call('XTRIM', log, 'MAXLEN', math.floor(call('XLEN', log) / 2))
      logged = math.floor(logged / 2)
    end
    if call('PTTL', log) < 540000 then call('PEXPIRE', log, 600000) end
  end
end

local command, where, stream = string.match(ARGV[1], '^(%a+)(@%d+) ?(.*)$')
local about, told = string.match(rec, '{(.*)}$'), {}
local function publish(item)
  if #item > 65536 then item = string.sub(item, 1, 32) .. '!' end
  call(command, rec .. where, item)
end

-- listened reports whether anybody is told of changes of this slot.
local function listened()
  if not string.match(about, '^[dsn]/') then return false end
  if stream ~= '' then return true end
  if command ~= 'PUBLISH' then return false end
  local n = redis.pcall('PUBSUB', 'NUMPAT')
  return type(n) == 'number' and n > 0
end

local function before_value(r)
  if not r then return '-' end
  local v = string.sub(r, 18)
  if string.sub(r, 17, 17) == 'L' then v = string.sub(r, 50) end
  return '+' .. #v .. ':' .. v
end

-- tell tells followers. It fails in silence: the change is made.
local function tell(item)
  if #item > 1048576 then item = string.sub(item, 1, 32) .. '!' end
  if stream == 'R' then
    told[#told + 1] = #item .. ':' .. item
    return
  end
  if command == 'PUBLISH' then redis.pcall('PUBLISH', rec .. where .. '+', item) end
  local most, key, counter = string.match(stream, '^(%d+):(.*) (.*)$')
  if most then
    local n = redis.pcall('INCR', counter)
    if type(n) == 'number' then redis.pcall('XADD', key, 'MAXLEN', '~', most, '*', 'n', n, 's', about, 'e', item) end
  end
end

-- pieces returns what the log and followers are told of a change, field by field.
local function pieces(item, news, f, val, head, had)
  local op = head == '-' and 'S' or 'L'
  for i, name in ipairs(f) do
    local value, text = val[i], nil
    if value then
      text = op .. #name .. ':' .. name .. #value .. ':' .. value
    elseif had[i] then
      text = 'D' .. #name .. ':' .. name
    end
    if text then
      item[#item + 1] = text
      if news then news[#news + 1] = text .. before_value(had[i]) end
    end
  end
  return table.concat(item), news and table.concat(news)
end

-- change gives fields f the values val (false or nil: none) with one head. had is
-- what they have, if that was read; body, if it is known, what the log is to say of
-- all of them when those that go are there.
local function change(f, val, head, had, body)
  local n, before = #f, digits(version)
  version = math.max(us, version + 1)
  local v = digits(version)
  -- A string costs what it is long each time one is made: of large ones there
  -- is the record and the item, and none on the way.
  local graves = not body or string.find(body, '/gone/', 1, true)
  local heard, look = n > 0 and listened(), graves
  for i = 1, n do look = look or not val[i] end
  if not had then had = (look or heard) and call('HMGET', rec, unpack(f)) or {} end
  local hash, h, fields, k, del, free, start = {}, 0, {}, 0, {}, {}, v .. head
  for i = 1, n do
    local name, value = f[i], val[i]
    if value then
      hash[h + 1], hash[h + 2] = name, start .. value
      h = h + 2
      if not had[i] then
        if graves and tombstone(name) then gone = gone + 1 end
        fields[k + 1], fields[k + 2] = '0', name
        k = k + 2
      end
      if head ~= '-' then
        call('ZADD', ends, string.sub(head, 2, 17), name)
      elseif leased then
        free[#free + 1] = name
      end
    elseif had[i] then
      if graves and tombstone(name) then gone = gone - 1 end
      del[#del + 1] = name
    else
      body = nil
    end
  end
  if #del > 0 then
    call('HDEL', rec, unpack(del))
    if indexed == 1 then call('ZREM', index, unpack(del)) end
    if leased then call('ZREM', ends, unpack(del)) end
  end
  if #free > 0 then call('ZREM', ends, unpack(free)) end
  local item, news
  if body and not heard then
    item = before .. v .. body
  else
    item, news = pieces({before, v}, heard and {before, v}, f, val, head, had)
  end
  note(item)
  local function facts() return string.format('%s %.0f %.0f %d', v, gone, logged, indexed) end
  hash[h + 1], hash[h + 2] = '', facts()
  call('HSET', rec, unpack(hash))
  if indexed == 1 then
    if k > 0 then call('ZADD', index, unpack(fields)) end
  elseif mind() then
    call('HSET', rec, '', facts())
  end
  publish(item) -- it may be refused
  if news then tell(news) end
  return v
end

if leased then
  local over = call('ZRANGEBYSCORE', ends, '-inf', ms, 'LIMIT', 0, 100)
  while #over > 0 do
    change(over, {}, '-')
    over = call('ZRANGEBYSCORE', ends, '-inf', ms, 'LIMIT', 0, 100)
  end
end
`

// luaApply returns the new version, and with R what followers are told, or "" if a condition does not hold.
//
// KEYS[5]: the hash of the store's own slot, if a condition is on it.
// ARGV: publish, milliseconds of a lease or 0, its id; the changes as the log has
// them; a msgpack list of where in them stand, for each, the first and the last
// byte of the field and those of the value, 0 and 0 if it goes; the condition on
// each of these fields, as one letter or "-"; the versions of those that are "v",
// 16 digits each; then of each other condition kind, field, version.
const luaApply = `
local body, conds, versions = ARGV[4], ARGV[6], ARGV[7]
local cut = cmsgpack.unpack(ARGV[5])
local f, val, n, sub, byte = {}, {}, #conds, string.sub, string.byte
for i = 1, n do
  local at = 4 * i
  f[i] = sub(body, cut[at - 3], cut[at - 2])
  val[i] = cut[at - 1] > 0 and sub(body, cut[at - 1], cut[at])
end
local asked, want, look = {unpack(f)}, {}, n > 0 and string.find(conds, '[^-]')
for at = 8, #ARGV, 3 do
  local kind, name, holds = ARGV[at], ARGV[at + 1], true
  if kind == 's' then
    holds = call('HEXISTS', KEYS[5], name) == 1
  elseif kind == 'n' then
    local m = call('HLEN', rec)
    if m > 0 then m = m - call('HEXISTS', rec, '') - call('HEXISTS', rec, '.') - gone end
    holds = m == 0
  else
    asked[#asked + 1] = name
    want[#want + 1] = kind == 'v' and ARGV[at + 2] or kind
  end
  if not holds then return '' end
end
local had = nil
if look or #want > 0 then
  had = call('HMGET', rec, unpack(asked))
  local at = 1
  for i = 1, n do
    local c, r = byte(conds, i), had[i]
    if c == 97 then -- a
      if r then return '' end
    elseif c == 118 then -- v
      if not r or sub(r, 1, 16) ~= sub(versions, at, at + 15) then return '' end
      at = at + 16
    elseif c == 112 and not r then -- p
      return ''
    end
  end
  for i, w in ipairs(want) do
    local r = had[n + i]
    if w == 'a' then
      if r then return '' end
    elseif not r or w ~= 'p' and sub(r, 1, 16) ~= w then
      return ''
    end
  end
end
local head = '-'
if ARGV[2] ~= '0' then head = 'L' .. digits(ms + tonumber(ARGV[2])) .. ARGV[3] end
return change(f, val, head, had, body) .. table.concat(told)
`

// luaMine finds the record of a lease. ARGV: publish, field, lease id.
const luaMine = `
local r = call('HGET', rec, ARGV[2])
if not r or string.sub(r, 17, 17) ~= 'L' or string.sub(r, 34, 49) ~= ARGV[3] then return 0 end
`

// luaRenew returns 1, or 0 if the record is not the lease's any more. ARGV[4]:
// milliseconds from now.
const luaRenew = luaMine + `
local e = digits(ms + tonumber(ARGV[4]))
call('HSET', rec, ARGV[2], string.sub(r, 1, 17) .. e .. string.sub(r, 34))
call('ZADD', ends, e, ARGV[2])
return 1
`

// luaRelease returns 1, or with R what luaApply does, or 0 if the record is not
// the lease's any more.
const luaRelease = luaMine + `
local v = change({ARGV[2]}, {}, '-')
if #told > 0 then return v .. table.concat(told) end
return 1
`

// luaTail returns the slot's version, the milliseconds until the next lease
// ends or -1, 1 if the changes after ARGV[2] (16 digits) are not all there, and
// the first ARGV[3] of them.
const luaTail = `
local since = tonumber(ARGV[2])
local wait = -1
local first = call('ZRANGE', ends, 0, 0, 'WITHSCORES')
if first[2] then wait = math.max(0, tonumber(first[2]) - ms) end
local out = {digits(version), wait, 0}
if since == version then return out end
local items = call('XRANGE', log, string.format('%.0f-0', since + 1), '+', 'COUNT', ARGV[3])
if since > version or not items[1] or string.sub(items[1][2][2], 1, 16) ~= ARGV[2] then
  out[3] = 1
  return out
end
for i, e in ipairs(items) do out[3 + i] = e[2][2] end
return out
`

// luaSweep takes out the records whose leases have run out, and does no more. It
// returns what followers are told, with R.
const luaSweep = `
return table.concat(told)
`

// luaStream writes items of a Cluster to the stream.
//
// KEYS: stream, counter. ARGV: MAXLEN, 1 if items before these were lost, and of
// each item slot and text.
const luaStream = `
if ARGV[2] == '1' then redis.call('INCR', KEYS[2]) end
for i = 3, #ARGV, 2 do
  local n = redis.call('INCR', KEYS[2])
  redis.call('XADD', KEYS[1], 'MAXLEN', '~', ARGV[1], '*', 'n', n, 's', ARGV[i], 'e', ARGV[i + 1])
end
return 1
`

// luaGet returns the server's clock in milliseconds, and the fields ARGV.
const luaGet = `
local t = redis.call('TIME')
local out = {t[1] * 1000 + math.floor(t[2] / 1000)}
for i = 1, #ARGV, 1000 do
  local some = redis.call('HMGET', KEYS[1], unpack(ARGV, i, math.min(#ARGV, i + 999)))
  for j = 1, #some do out[i + j] = some[j] end
end
return out
`

// luaList returns the server's clock in milliseconds, the slot's facts or
// false, the number of records that follow, a page of them as fields and values:
// at most ARGV[2] in the order of fields after ARGV[1], and the next ARGV[3]
// fields; of a slot without an index all records, in no order.
//
// KEYS: hash, index.
const luaList = `
local t = redis.call('TIME')
local facts = redis.call('HGET', KEYS[1], '')
local out = {t[1] * 1000 + math.floor(t[2] / 1000), facts}
if not facts then return out end
if string.sub(facts, -1) ~= '1' then
  local all = redis.call('HGETALL', KEYS[1])
  out[3] = #all / 2
  for i = 1, #all do out[3 + i] = all[i] end
  return out
end
local from = '-'
if ARGV[1] ~= '' then from = '(' .. ARGV[1] end
local most = tonumber(ARGV[2])
local fields = redis.call('ZRANGEBYLEX', KEYS[2], from, '+', 'LIMIT', '0', most + ARGV[3])
most = math.min(most, #fields)
out[3] = most
local n = 3
for i = 1, most, 1000 do
  local last = math.min(most, i + 999)
  local some = redis.call('HMGET', KEYS[1], unpack(fields, i, last))
  for j = 1, #some do
    out[n + 1], out[n + 2] = fields[i + j - 1], some[j]
    n = n + 2
  end
end
for i = most + 1, #fields do
  n = n + 1
  out[n] = fields[i]
end
return out
`

// luaLacks returns 1 if one of the versions ARGV is later than the slot's, or
// not in its log, which begins before it.
//
// KEYS: hash, log.
const luaLacks = `
local facts = redis.call('HGET', KEYS[1], '')
local version = 0
if facts then version = tonumber(string.sub(facts, 1, 16)) end
local first = redis.call('XRANGE', KEYS[2], '-', '+', 'COUNT', 1)[1]
if first then first = tonumber(string.sub(first[2][2], 1, 16)) end
for _, a in ipairs(ARGV) do
  local v = tonumber(a)
  if v > version then return 1 end
  if v < version and first and v > first then
    local id = string.format('%.0f-0', v)
    if #redis.call('XRANGE', KEYS[2], id, id) == 0 then return 1 end
  end
end
return 0
`
