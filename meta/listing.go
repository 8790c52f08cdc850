package meta

import (
	"cmp"
	"slices"
)

// listing is a directory that is wholly known. The base is shared with those
// who asked for it and never changes; changes lie beside it until somebody
// asks for a list again. Not safe for concurrent use.
type listing struct {
	at      uint64           // version of the directory that base was read at
	size    int              // of base, in entries as most are
	base    []Entry          // sorted by name
	index   map[string]int32 // of base
	changed map[string]word  // newer than base
}

// word is what is known of one name since a version of its directory.
type word struct {
	entry Entry
	gone  bool
	at    uint64
	read  bool // from the store, so that nobody was told of it yet
}

// newListing takes the entries over.
func newListing(entries []Entry, at uint64) *listing {
	l := &listing{at: at, changed: make(map[string]word)}
	l.rebase(entries)
	return l
}

func (l *listing) rebase(entries []Entry) {
	slices.SortFunc(entries, func(a, b Entry) int { return cmp.Compare(a.Name, b.Name) })
	l.base = entries
	l.index = make(map[string]int32, len(entries))
	attrs := 0
	for i := range entries {
		l.index[entries[i].Name] = int32(i)
		attrs += len(entries[i].XAttrs)
	}
	l.size = len(entries) + attrs/nameCost
}

// get returns the entry of a name.
func (l *listing) get(name string) (Entry, bool) {
	if w, ok := l.changed[name]; ok {
		return w.entry, !w.gone
	}
	i, ok := l.index[name]
	if !ok {
		return Entry{}, false
	}
	return l.base[i], true
}

// set takes a word about a name; nil: it is gone. A word older than the last
// one is passed over. ahead says that events up to at have not come yet.
func (l *listing) set(name string, e *Entry, at uint64, ahead bool) {
	if at < l.at || at < l.changed[name].at {
		return
	}
	w := word{gone: e == nil, at: at}
	if e != nil {
		w.entry = *e
	}
	// A read that says what is known already must not cost a new base.
	if old, ok := l.get(name); !ahead && ok == !w.gone && (w.gone || old == w.entry) {
		return
	}
	l.changed[name] = w
}

// apply takes an event. One that base has seen is passed over.
func (l *listing) apply(ev DirEvent) {
	if ev.At <= l.at {
		return
	}
	if ev.Gone {
		l.set(ev.Name, nil, ev.At, false)
	} else {
		l.set(ev.Name, &ev.Entry, ev.At, false)
	}
}

// all returns the entries, sorted by name. Nobody may change them. at is the
// version that everything up to is in.
func (l *listing) all(at uint64) []Entry {
	if len(l.changed) == 0 {
		return l.base
	}
	entries := make([]Entry, 0, len(l.base)+len(l.changed))
	for _, e := range l.base {
		if _, ok := l.changed[e.Name]; !ok {
			entries = append(entries, e)
		}
	}
	// A word from a read may be ahead of the events: it stays beside the
	// base until they have caught up, so that older ones do not undo it.
	ahead := make(map[string]word)
	for name, w := range l.changed {
		if !w.gone {
			entries = append(entries, w.entry)
		}
		if w.at > at {
			ahead[name] = w
		}
	}
	l.rebase(entries)
	l.at = max(l.at, at)
	l.changed = ahead
	return l.base
}
