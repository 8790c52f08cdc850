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

-- change makes changes {field, value, head}; no value: delete.
local function change(sets)
  local before = version
  version = us
  if version <= before then version = before + 1 end
  local v = digits(version)
  local item, hash, fields, names = {digits(before), v}, {}, {}, {}
  local del, free = {}, {}
  local look = false -- whether it matters what is there
  for i, s in ipairs(sets) do
    names[i] = s[1]
    look = look or not s[2] or tombstone(s[1])
  end
  local news, had = nil, nil
  if #sets > 0 and listened() then news, look = {digits(before), v}, true end
  if look then had = call('HMGET', rec, unpack(names)) end
  for i, s in ipairs(sets) do
    local f, value, head = s[1], s[2], s[3]
    local items = #item
    if value then
      if tombstone(f) and not had[i] then gone = gone + 1 end
      local op = 'S'
      if head ~= '-' then
        op = 'L'
        call('ZADD', ends, string.sub(head, 2, 17), f)
      else
        free[#free + 1] = f
      end
      hash[#hash + 1] = f
      hash[#hash + 1] = v .. head .. value
      fields[#fields + 1] = 0
      fields[#fields + 1] = f
      item[#item + 1] = op .. #f .. ':' .. f .. #value .. ':' .. value
    elseif had[i] then
      if tombstone(f) then gone = gone - 1 end
      del[#del + 1] = f
      free[#free + 1] = f
      item[#item + 1] = 'D' .. #f .. ':' .. f
    end
    if news and #item > items then news[#news + 1] = item[#item] .. before_value(had[i]) end
  end
  if #del > 0 then
    call('HDEL', rec, unpack(del))
    if indexed == 1 then call('ZREM', index, unpack(del)) end
  end
  if leased and #free > 0 then call('ZREM', ends, unpack(free)) end
  item = table.concat(item)
  note(item)
  local function facts() return string.format('%s %.0f %.0f %d', v, gone, logged, indexed) end
  hash[#hash + 1] = ''
  hash[#hash + 1] = facts()
  call('HSET', rec, unpack(hash))
  if indexed == 1 then
    if #fields > 0 then call('ZADD', index, unpack(fields)) end
  elseif mind() then
    call('HSET', rec, '', facts())
  end
  publish(item) -- it may be refused
  if news then tell(table.concat(news)) end
  return v
end

if leased then
  local over = call('ZRANGEBYSCORE', ends, '-inf', ms, 'LIMIT', 0, 100)
  while #over > 0 do
    local sets = {}
    for i, f in ipairs(over) do sets[i] = {f} end
    change(sets)
    over = call('ZRANGEBYSCORE', ends, '-inf', ms, 'LIMIT', 0, 100)
  end
end
`

// luaApply returns the new version, and with R what followers are told, or "" if a condition does not hold.
//
// KEYS[5]: the hash of the store's own slot, if a condition is on it.
// ARGV: publish, number of conditions, number of changes, milliseconds of a
// lease or 0, its id; of each condition kind, field, version; of each change
// "S" or "D", field, value.
const luaApply = `
local at = 6
local asked, want = {}, {}
for _ = 1, tonumber(ARGV[2]) do
  local kind, f = ARGV[at], ARGV[at + 1]
  local holds = true
  if kind == 's' then
    holds = call('HEXISTS', KEYS[5], f) == 1
  elseif kind == 'n' then
    local n = call('HLEN', rec)
    if n > 0 then n = n - call('HEXISTS', rec, '') - call('HEXISTS', rec, '.') - gone end
    holds = n == 0
  else
    asked[#asked + 1] = f
    want[#want + 1] = kind == 'v' and ARGV[at + 2] or kind
  end
  if not holds then return '' end
  at = at + 3
end
if #asked > 0 then
  local has = call('HMGET', rec, unpack(asked))
  for i, w in ipairs(want) do
    local r = has[i]
    if w == 'a' then
      if r then return '' end
    elseif not r or w ~= 'p' and string.sub(r, 1, 16) ~= w then
      return ''
    end
  end
end
local head = '-'
if ARGV[4] ~= '0' then head = 'L' .. digits(ms + tonumber(ARGV[4])) .. ARGV[5] end
local sets = {}
for i = 1, tonumber(ARGV[3]) do
  if ARGV[at] == 'D' then sets[i] = {ARGV[at + 1]} else sets[i] = {ARGV[at + 1], ARGV[at + 2], head} end
  at = at + 3
end
return change(sets) .. table.concat(told)
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
local v = change({{ARGV[2]}})
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
// false, and a page: at most ARGV[2] fields and values in the order of fields
// after ARGV[1]; of a slot without an index all of them, in no order.
//
// KEYS: hash, index.
const luaList = `
local t = redis.call('TIME')
local facts = redis.call('HGET', KEYS[1], '')
local out = {t[1] * 1000 + math.floor(t[2] / 1000), facts}
if not facts then return out end
if string.sub(facts, -1) ~= '1' then
  local all = redis.call('HGETALL', KEYS[1])
  for i = 1, #all do out[2 + i] = all[i] end
  return out
end
local from = '-'
if ARGV[1] ~= '' then from = '(' .. ARGV[1] end
local fields = redis.call('ZRANGEBYLEX', KEYS[2], from, '+', 'LIMIT', 0, ARGV[2])
local n = 2
for i = 1, #fields, 1000 do
  local last = math.min(#fields, i + 999)
  local some = redis.call('HMGET', KEYS[1], unpack(fields, i, last))
  for j = 1, #some do
    out[n + 1], out[n + 2] = fields[i + j - 1], some[j]
    n = n + 2
  end
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
