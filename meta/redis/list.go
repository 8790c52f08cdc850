package redis

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/p2pfs/p2pfs/meta"
)

// pageMax bounds how long a page keeps the server from others: some
// milliseconds.
const pageMax = 5000

// List implements meta.Slots: pages in the order of fields, each of one moment.
// Later pages show changes made meanwhile.
//
// A script reads the first page, and with it the fields that come next. What they
// have is read by a plain command, beside which they are counted and more fields are
// read: a script costs the server twice as much, because it makes a string of Lua of
// everything. Where other fields have come between them, it is the script again.
func (s *Store) List(ctx context.Context, slot meta.Slot, next string, limit int) (meta.Page, error) {
	limit = min(limit, pageMax)
	at, err := parseCursor(next)
	var p meta.Page
	switch {
	case err == nil && len(at.ahead) > 0:
		p, err = s.listAhead(ctx, slot, at, limit)
		if errors.Is(err, errMoved) { // no fields ahead this time: it may go on changing
			p, err = s.listScript(ctx, slot, at.after, limit, 0)
		}
	case err == nil:
		p, err = s.listScript(ctx, slot, at.after, limit, min(2*limit, pageMax))
	}
	if err != nil {
		return meta.Page{}, fmt.Errorf("list %s: %w", slot, err)
	}
	return p, nil
}

// errMoved: what was read ahead does not hold any more.
var errMoved = errors.New("has other fields than were read ahead")

// listScript reads a page by the script, and fields ahead; 0: none.
func (s *Store) listScript(ctx context.Context, slot meta.Slot, after string, limit, ahead int) (meta.Page, error) {
	keys := []string{s.key(slot), s.keys(slot)[2]}
	c := &call{script: s.scripts.list, keys: keys, args: []any{after, limit, max(ahead, 1)}}
	if err := s.read(ctx, c); err != nil {
		return meta.Page{}, err
	}
	return parsePage(slot, c, after, limit, ahead > 0)
}

// parsePage reads what luaList returns. look says whether to go on with the
// fields that are ahead.
func parsePage(slot meta.Slot, c *call, after string, limit int, look bool) (p meta.Page, err error) {
	answer, err := c.list(1)
	if err != nil {
		return meta.Page{}, err
	}
	ms := number(answer[0])
	if len(answer) < 2 || answer[1] == nil {
		return meta.Page{}, nil
	}
	facts, _ := answer[1].(string)
	if p.Version, err = parseDigits(facts); err != nil {
		return meta.Page{}, err
	}
	n := -1
	if len(answer) > 2 {
		n = int(number(answer[2]))
	}
	if n < 0 || n > (len(answer)-3)/2 {
		return meta.Page{}, fmt.Errorf("%w: a page of %d, of which %d are there", meta.ErrFormat, n, len(answer))
	}
	pairs, rest := answer[3:3+2*n], answer[3+2*n:]
	p.Records = make([]meta.Record, 0, n)
	for ; len(pairs) > 0; pairs = pairs[2:] {
		field, _ := pairs[0].(string)
		raw, there := pairs[1].(string)
		if field == "" || field <= after || !there {
			continue
		}
		r := meta.Record{Slot: slot, Field: field}
		if _, err := parseRecord(&r, raw, ms); err != nil {
			return meta.Page{}, err
		}
		p.Records = append(p.Records, r)
	}
	slices.SortFunc(p.Records, func(a, b meta.Record) int { return cmp.Compare(a.Field, b.Field) })
	var at cursor
	switch {
	case len(p.Records) > limit: // of a slot without an index
		p.Records = p.Records[:limit]
		at.after = p.Records[limit-1].Field
	case len(rest) > 0 && n > 0:
		at.after, _ = answer[1+2*n].(string)
	}
	for i := 0; look && i < len(rest); i++ {
		field, _ := rest[i].(string)
		at.ahead = append(at.ahead, field)
	}
	p.Next = at.String()
	p.Records = withoutOver(p.Records)
	return p, nil
}

// withoutOver takes out the records whose leases are over: they stay in their
// places until the page is cut.
func withoutOver(recs []meta.Record) []meta.Record {
	return slices.DeleteFunc(recs, func(r meta.Record) bool { return r.Value == nil })
}

// listAhead reads what the fields have that were read ahead, and where these end
// the next ones; errMoved if others are between them, or have come while this was
// read, or if there are leases, which end by the server's clock.
func (s *Store) listAhead(ctx context.Context, slot meta.Slot, at cursor, limit int) (p meta.Page, err error) {
	fields := at.ahead[:min(limit, len(at.ahead))]
	more := at.ahead[len(fields):]
	last := fields[len(fields)-1]
	hash, index := s.keys(slot)[:1], s.keys(slot)[2:3]
	values := &call{plain: "HMGET", texts: true, keys: hash, args: make([]any, 0, 1+len(fields))}
	values.args = append(values.args, "")
	for _, f := range fields {
		values.args = append(values.args, f)
	}
	count := &call{plain: "ZLEXCOUNT", keys: index, args: []any{"(" + at.after, "[" + last}}
	next := &call{plain: "ZRANGEBYLEX", texts: true, keys: index, args: []any{"(" + last, "+", "LIMIT", 0, min(2*limit, pageMax)}}
	facts := &call{plain: "HMGET", texts: true, keys: hash, args: []any{""}}
	calls := []*call{values, count, facts}
	if len(more) == 0 {
		calls = append(calls, next)
	}
	if err := s.read(ctx, calls...); err != nil {
		return meta.Page{}, err
	}
	if p, err = values.records(slot, fields, count, facts); err != nil {
		return meta.Page{}, err
	}
	if len(more) == 0 {
		if more, err = next.strings(0); err != nil {
			return meta.Page{}, err
		}
	}
	if len(more) > 0 {
		p.Next = cursor{after: last, ahead: more}.String()
	}
	return p, nil
}

// records reads what fields have. They are all that there are if count says so, of
// what was the slot's index before and after.
func (c *call) records(slot meta.Slot, fields []string, count, after *call) (p meta.Page, err error) {
	raw, err := c.strings(1 + len(fields))
	if err != nil {
		return meta.Page{}, err
	}
	facts, err := after.strings(1)
	if err != nil {
		return meta.Page{}, err
	}
	if raw[0] != facts[0] || !strings.HasSuffix(raw[0], "1") {
		return meta.Page{}, errMoved
	}
	if p.Version, err = parseDigits(raw[0]); err != nil {
		return meta.Page{}, err
	}
	size := 0
	for _, v := range raw {
		size += len(v)
	}
	room := make([]byte, size)
	p.Records = make([]meta.Record, 0, len(fields))
	for i, f := range fields {
		if raw[1+i] == "" { // gone meanwhile
			continue
		}
		r := meta.Record{Slot: slot, Field: f}
		n := len(raw[1+i])
		leased, err := parseRecordInto(&r, raw[1+i], 0, room[:0:n])
		room = room[n:]
		if err != nil {
			return meta.Page{}, err
		}
		if leased {
			return meta.Page{}, errMoved
		}
		p.Records = append(p.Records, r)
	}
	if number(count.reply) != uint64(len(p.Records)) {
		return meta.Page{}, errMoved
	}
	return p, nil
}

// cursor is where a listing goes on: after a field, with those that came next.
type cursor struct {
	after string
	ahead []string
}

// String returns the cursor as meta.Page has it; empty: the listing is at its end.
func (c cursor) String() string {
	if c.after == "" {
		return ""
	}
	return strings.Join(append([]string{"", c.after}, c.ahead...), "\x00")
}

// parseCursor reads what String returns.
func parseCursor(s string) (c cursor, err error) {
	if s == "" {
		return cursor{}, nil
	}
	parts := strings.Split(s, "\x00") // no field holds one
	if len(parts) < 2 || parts[0] != "" || parts[1] == "" {
		return cursor{}, fmt.Errorf("%w: %.40q is no place in a listing", meta.ErrFormat, s)
	}
	c = cursor{after: parts[1], ahead: parts[2:]}
	for i, f := range c.ahead { // records keep them longer than all of them together
		c.ahead[i] = strings.Clone(f)
	}
	return c, nil
}
