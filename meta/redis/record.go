package redis

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/p2pfs/p2pfs/meta"
)

// Lengths of what stands before a record's value.
const (
	versionLen = 16
	leaseIDLen = 16
	leasedHead = versionLen + 1 + versionLen + leaseIDLen
)

// digits writes a version as the scripts do.
func digits(v uint64) string { return string(appendDigits(nil, v)) }

func appendDigits(to []byte, v uint64) []byte {
	for most := uint64(1e15); most > max(v, 1); most /= 10 {
		to = append(to, '0')
	}
	return strconv.AppendUint(to, v, 10)
}

func parseDigits(s string) (uint64, error) {
	if len(s) < versionLen {
		return 0, fmt.Errorf("%w: a version of %d characters", meta.ErrFormat, len(s))
	}
	v, err := strconv.ParseUint(s[:versionLen], 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%w: %q is not a version", meta.ErrFormat, s[:versionLen])
	}
	return v, nil
}

// parseRecord fills in value and version of a record. leased tells of a record
// with an end, which is over at ms, the server's clock in milliseconds: then the
// record stays empty.
func parseRecord(r *meta.Record, raw string, ms uint64) (leased bool, err error) {
	return parseRecordInto(r, raw, ms, make([]byte, 0, len(raw)))
}

// parseRecordInto is parseRecord, with the value in room, which is as long as raw
// at least: records of a page share theirs.
func parseRecordInto(r *meta.Record, raw string, ms uint64, room []byte) (leased bool, err error) {
	v, err := parseDigits(raw)
	if err != nil || len(raw) == versionLen {
		return false, fmt.Errorf("read %s/%q: %w: cut short", r.Slot, r.Field, meta.ErrFormat)
	}
	rest := raw[versionLen+1:]
	switch raw[versionLen] {
	case '-':
	case 'L':
		if len(raw) < leasedHead {
			return true, fmt.Errorf("read %s/%q: %w: cut short", r.Slot, r.Field, meta.ErrFormat)
		}
		end, err := parseDigits(rest)
		if err != nil {
			return true, fmt.Errorf("read %s/%q: %w", r.Slot, r.Field, err)
		}
		if end <= ms {
			return true, nil
		}
		leased, rest = true, raw[leasedHead:]
	default:
		return false, fmt.Errorf("read %s/%q: %w: it is of kind %q", r.Slot, r.Field, meta.ErrFormat, raw[versionLen])
	}
	r.Version, r.Value = v, append(room, rest...)
	return leased, nil
}

// item is one change of a slot as the log has it.
type item struct {
	before, version string // 16 digits
	events          []meta.Event
	leased          bool // it set a record with an end
	cut             bool // the changes are in the log only
}

// parseItem reads what luaSlot writes.
func parseItem(slot meta.Slot, raw string) (it item, err error) {
	if len(raw) < 2*versionLen {
		return item{}, fmt.Errorf("read log of %s: %w: cut short", slot, meta.ErrFormat)
	}
	it.before, it.version = raw[:versionLen], raw[versionLen:2*versionLen]
	v, err := parseDigits(it.version)
	if err != nil {
		return item{}, fmt.Errorf("read log of %s: %w", slot, err)
	}
	for rest := raw[2*versionLen:]; rest != ""; {
		op := rest[0]
		if op == '!' {
			it.cut = true
			break
		}
		var ev meta.Event
		var ok bool
		ev, rest, ok = cutEvent(slot, v, rest)
		it.leased = it.leased || op == 'L'
		if !ok {
			return item{}, fmt.Errorf("read log of %s: %w: at %d of %d bytes", slot, meta.ErrFormat, len(raw)-len(rest), len(raw))
		}
		it.events = append(it.events, ev)
	}
	return it, nil
}

// parseTold reads what luaSlot tells followers: the changes, and what each field
// had before; nil if it was not there.
func parseTold(slot meta.Slot, raw string) (it item, before [][]byte, err error) {
	bad := func(rest string) (item, [][]byte, error) {
		return item{}, nil, fmt.Errorf("read change of %s: %w: at %d of %d bytes", slot, meta.ErrFormat, len(raw)-len(rest), len(raw))
	}
	if len(raw) < 2*versionLen {
		return bad(raw)
	}
	it.before, it.version = raw[:versionLen], raw[versionLen:2*versionLen]
	v, err := parseDigits(it.version)
	if err != nil {
		return item{}, nil, fmt.Errorf("read change of %s: %w", slot, err)
	}
	before = [][]byte{}
	for rest := raw[2*versionLen:]; rest != ""; {
		if rest[0] == '!' {
			it.cut = true
			break
		}
		var ev meta.Event
		var ok bool
		ev, rest, ok = cutEvent(slot, v, rest)
		var had []byte
		switch {
		case !ok || rest == "":
			return bad(rest)
		case rest[0] == '-':
			rest = rest[1:]
		case rest[0] == '+':
			var was string
			if was, rest, ok = cutString(rest[1:]); !ok {
				return bad(rest)
			}
			had = []byte(was)
		default:
			return bad(rest)
		}
		it.events, before = append(it.events, ev), append(before, had)
	}
	return it, before, nil
}

// cutEvent reads one change, its kind first. s is not empty.
func cutEvent(slot meta.Slot, version uint64, s string) (ev meta.Event, rest string, ok bool) {
	ev = meta.Event{Record: meta.Record{Slot: slot, Version: version}, SlotVersion: version}
	op := s[0]
	if op != 'S' && op != 'L' && op != 'D' {
		return ev, s, false
	}
	if ev.Field, rest, ok = cutString(s[1:]); !ok || op == 'D' {
		return ev, rest, ok
	}
	value, rest, ok := cutString(rest)
	ev.Value = []byte(value)
	return ev, rest, ok
}

// cutString reads LENGTH:BYTES.
func cutString(s string) (value, rest string, ok bool) {
	i := strings.IndexByte(s, ':')
	if i < 1 || i > 10 {
		return "", "", false
	}
	n, err := strconv.Atoi(s[:i])
	if err != nil || n < 0 || n > len(s)-i-1 {
		return "", "", false
	}
	return s[i+1 : i+1+n], s[i+1+n:], true
}
