package etcd

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	mvccpb "go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/metadata"

	"github.com/p2pfs/p2pfs/meta"
)

var _ meta.Feed = (*Store)(nil)

const (
	// slowTime is how long a listener may take for the changes of one answer
	// before the watch is given up and begun again where the listener is: the
	// client would keep all that comes meanwhile in memory.
	slowTime = 3 * time.Second
	// signTime is how often a quiet watch is asked for a sign of life: the
	// client says nothing of a connection that it lost.
	signTime = 2 * time.Second
)

// Follow implements meta.Feed by one watch of all keys below the prefix. A
// position is a revision.
func (s *Store) Follow(ctx context.Context, opts meta.FollowOptions, on func(meta.SlotChange) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(s.ctx, cancel)()
	f := &following{s: s, on: on}
	if err := f.begin(ctx, opts); err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	for {
		err := f.run(ctx)
		switch {
		case ctx.Err() != nil, errors.Is(err, errReached):
			return nil
		case !errors.Is(err, errSlow):
			return err
		}
	}
}

var (
	errReached = errors.New("all was told")
	errSlow    = errors.New("the listener is slow")
)

// following is one Follow under way.
type following struct {
	s     *Store
	on    func(meta.SlotChange) error
	from  int64 // revision to watch from
	until int64 // the last revision asked for; 0: no end
	quiet int64 // revision that the server said last to have come to, with nothing told since; 0: none
	ready bool  // on was told that nothing is missed from here
}

// begin finds out where to begin and to end.
func (f *following) begin(ctx context.Context, opts meta.FollowOptions) error {
	now, err := f.s.revision(ctx)
	if err != nil {
		return err
	}
	switch opts.From {
	case "":
		f.from = now + 1
	case meta.FromOldest:
		if f.from, err = f.oldest(ctx); err != nil {
			return err
		}
	default:
		rev, err := strconv.ParseInt(opts.From, 10, 64)
		if err != nil || rev < 0 {
			return fmt.Errorf("position %q is not a revision of etcd: %w", opts.From, meta.ErrName)
		}
		if rev > now {
			return &meta.GapError{After: opts.From, Why: fmt.Sprintf("the store is at %d: it lost its records, or is another one", now)}
		}
		f.from = rev + 1
		if opts.Again {
			f.from = rev
		}
	}
	if opts.Past {
		if f.until, err = f.mark(ctx); err != nil {
			return err
		}
	}
	return f.known(ctx, now)
}

// mark writes a key that means nothing, and returns its revision: when a watch
// has come there, it has told all before. (What servers before 3.5.8 say of how
// far a watch has come may be ahead of it.)
func (f *following) mark(ctx context.Context) (int64, error) {
	wctx, cancel := context.WithTimeout(ctx, f.s.opts.WriteTimeout)
	defer cancel()
	cl, err := f.s.conn.get(wctx)
	if err != nil {
		return 0, f.s.explain(ctx, err)
	}
	r, err := cl.Put(wctx, f.s.slotKey("mark"), "")
	if err != nil {
		return 0, f.s.explain(ctx, err)
	}
	return r.Header.Revision, nil
}

// known reports whether the store has forgotten where to begin.
func (f *following) known(ctx context.Context, now int64) error {
	if f.from > now {
		return nil
	}
	err := f.s.retry(ctx, func(ctx context.Context, cl *clientv3.Client) error {
		_, err := cl.Get(ctx, f.s.slotKey(meta.StoreSlot), clientv3.WithRev(f.from), clientv3.WithCountOnly())
		return err
	})
	if !errors.Is(err, meta.ErrGap) {
		return err
	}
	oldest, err := f.oldest(ctx)
	if err != nil {
		return err
	}
	return f.compacted(oldest)
}

func (f *following) compacted(oldest int64) error {
	return &meta.GapError{
		After: strconv.FormatInt(f.from-1, 10), Oldest: strconv.FormatInt(oldest-1, 10),
		Why: "the store has forgotten them (etcd compacts its history)",
	}
}

// oldest returns the first revision that the store has not forgotten.
func (f *following) oldest(ctx context.Context) (int64, error) {
	var first int64 = 1
	err := f.s.retry(ctx, func(ctx context.Context, cl *clientv3.Client) error {
		ctx, cancel := context.WithCancel(clientv3.WithRequireLeader(ctx))
		defer cancel()
		// The server says at once if it has forgotten the first.
		for r := range cl.Watch(ctx, f.s.slotKey(meta.StoreSlot), clientv3.WithRev(1), clientv3.WithCreatedNotify()) {
			if r.CompactRevision > 0 {
				first = r.CompactRevision
				return nil
			}
			if r.Err() != nil || len(r.Events) > 0 {
				return r.Err()
			}
		}
		return ctx.Err()
	})
	return first, err
}

// run watches until the watch breaks, all was told, or the listener is slow.
func (f *following) run(ctx context.Context) error {
	f.quiet = 0
	cl, err := f.s.conn.get(ctx)
	if err != nil {
		return f.s.explain(ctx, err)
	}
	// A stream of its own: the store's word of how far it is goes to all watches of
	// a stream, and in older versions comes before changes that are on their way.
	ctx = metadata.AppendToOutgoingContext(clientv3.WithRequireLeader(ctx), "p2pfs", "follow")
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ch := cl.Watch(ctx, f.s.target.prefix+"/", clientv3.WithPrefix(), clientv3.WithRev(f.from), clientv3.WithPrevKV(),
		clientv3.WithProgressNotify(), clientv3.WithCreatedNotify())
	ask := time.NewTicker(signTime)
	defer ask.Stop()
	heard := time.Now()
	for {
		var r clientv3.WatchResponse
		var ok bool
		select {
		case r, ok = <-ch:
			heard = time.Now()
		case <-ask.C:
			if time.Since(heard) > f.s.opts.ReadTimeout+signTime {
				return fmt.Errorf("%w: %s: nothing was heard for %v", meta.ErrUnavailable, f.s.target.hosts, time.Since(heard).Round(time.Second))
			}
			actx, cancel := context.WithTimeout(ctx, signTime/2)
			_ = cl.RequestProgress(actx) // asked again
			cancel()
			continue
		}
		if !ok {
			return fmt.Errorf("%w: %s: the watch ended", meta.ErrUnavailable, f.s.target.hosts)
		}
		if err := f.take(ctx, r); err != nil {
			return err
		}
		if f.until > 0 && f.from > f.until {
			return errReached
		}
	}
}

// take tells what one answer of a watch holds.
func (f *following) take(ctx context.Context, r clientv3.WatchResponse) error {
	if r.CompactRevision > 0 {
		return f.compacted(r.CompactRevision)
	}
	if err := r.Err(); err != nil {
		return f.broken(err)
	}
	if r.Created {
		if r.Header.Revision+1 < f.from { // as one member may be, which tells the rest when it gets it
			switch now, err := f.s.revision(ctx); {
			case err != nil:
				return err
			case now+1 < f.from:
				return &meta.GapError{After: strconv.FormatInt(f.from-1, 10), Why: "the store is at an earlier revision: it lost its records, or is another one"}
			}
		}
		if !f.ready {
			f.ready = true
			return f.on(meta.SlotChange{Position: strconv.FormatInt(f.from-1, 10)})
		}
		return nil
	}
	began := time.Now()
	for events := r.Events; len(events) > 0; {
		n := 1
		for n < len(events) && events[n].Kv.ModRevision == events[0].Kv.ModRevision {
			n++
		}
		if err := f.revision(events[:n]); err != nil {
			return err
		}
		events = events[n:]
	}
	// A server may say so before it has told what comes before: a while later
	// it has.
	switch {
	case len(r.Events) > 0:
		f.quiet = 0
	case r.IsProgressNotify():
		if f.quiet > 0 && f.until == 0 {
			f.from = max(f.from, f.quiet+1)
		}
		f.quiet = r.Header.Revision
	}
	if time.Since(began) > slowTime {
		return errSlow
	}
	return nil
}

// broken is the error of a watch that the server or the network ended.
func (f *following) broken(err error) error {
	if denied(err) {
		return f.s.explain(context.Background(), err)
	}
	return fmt.Errorf("%w: %s: %w", meta.ErrUnavailable, f.s.target.hosts, err)
}

// revision tells the changes of one revision.
func (f *following) revision(events []*clientv3.Event) error {
	rev := events[0].Kv.ModRevision
	if f.until > 0 && rev >= f.until {
		f.from = f.until + 1
		return nil
	}
	position := strconv.FormatInt(rev, 10)
	var changes []meta.SlotChange
	for _, e := range events {
		slot, field, ok := f.s.parseKey(string(e.Kv.Key))
		if !ok {
			continue
		}
		if slot == meta.StoreSlot && field == "." && e.Type == mvccpb.DELETE {
			// Names that go with all records have not been removed.
			f.from = rev + 1
			return &meta.GapError{After: strconv.FormatInt(rev-1, 10), Oldest: position, Why: "the store lost its records"}
		}
		if last := len(changes) - 1; last < 0 || changes[last].Slot != slot {
			changes = append(changes, meta.SlotChange{Slot: slot, Position: position, Before: [][]byte{}})
		}
		c := &changes[len(changes)-1]
		ev := meta.Event{Record: meta.Record{Slot: slot, Field: field, Version: uint64(rev)}, SlotVersion: uint64(rev)}
		if e.Type == mvccpb.PUT {
			ev.Value = present(e.Kv.Value)
		}
		var before []byte
		if e.PrevKv != nil {
			before = present(e.PrevKv.Value)
		}
		c.Events, c.Before = append(c.Events, ev), append(c.Before, before)
	}
	for _, c := range changes {
		if err := f.on(c); err != nil {
			return err
		}
	}
	f.from = rev + 1
	return nil
}

// parseKey takes a record's key apart; false for the versions of slots.
func (s *Store) parseKey(key string) (slot meta.Slot, field string, ok bool) {
	rest, ok := strings.CutPrefix(key, s.target.prefix+"/")
	if !ok {
		return "", "", false
	}
	kind, after, ok := strings.Cut(rest, "/")
	if !ok {
		return "", "", false
	}
	switch kind {
	case "d", "o", "s", "n", "lock":
		id, field, ok := strings.Cut(after, "/")
		return meta.Slot(kind + "/" + id), field, ok
	}
	return meta.Slot(kind), after, true
}
