package etcd

import (
	"context"
	"errors"
	"fmt"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/p2pfs/p2pfs/meta"
)

// watchPause is how long a watch that broke waits before the next try.
const watchPause = 200 * time.Millisecond

// watchGrace is how long the end of a watch waits for its beginning.
const watchGrace = 500 * time.Millisecond

// Watch implements meta.Slots.
func (s *Store) Watch(ctx context.Context, slot meta.Slot, since uint64, on func([]meta.Event)) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(s.ctx, cancel)()
	w := &watch{s: s, slot: slot, since: since, from: int64(since) + 1, on: on}
	for {
		err := w.run(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, meta.ErrGap):
			return err
		case w.compacted > 0:
			// Failing that, the next round finds out where it stands.
			if err := w.resume(ctx); errors.Is(err, errChanged) {
				return fmt.Errorf("watch %s since %d: %w", slot, w.since, meta.ErrGap)
			} else if err == nil {
				continue
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(watchPause):
		}
	}
}

// watch is one Watch under way.
type watch struct {
	s     *Store
	slot  meta.Slot
	since uint64 // slot version after the last event told
	from  int64  // revision to watch from
	on    func([]meta.Event)
	// compacted is the revision up to which the store forgot its history,
	// if that is what broke the watch.
	compacted int64
}

// run watches from w.from until the watch breaks.
func (w *watch) run(ctx context.Context) error {
	w.compacted = 0
	cl, err := w.s.conn.get(ctx)
	if err != nil {
		return err
	}
	// A watch of its own context ends with it. Without a leader the server
	// must say so, not go on in silence. Progress notes move the revision
	// to resume from past what was compacted meanwhile.
	wctx, cancel := outlast(clientv3.WithRequireLeader(ctx), watchGrace)
	defer cancel()
	ch := cl.Watch(wctx, w.s.fields(w.slot), clientv3.WithPrefix(), clientv3.WithRev(w.from),
		clientv3.WithProgressNotify(), clientv3.WithCreatedNotify())
	for r := range ch {
		if r.Created { // from now on it may be given up
			defer context.AfterFunc(ctx, cancel)()
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if w.compacted = r.CompactRevision; w.compacted > 0 {
			return errors.New("the store forgot its history")
		}
		if err := r.Err(); err != nil {
			return err
		}
		if r.Created && r.Header.Revision+1 < w.from {
			if err := w.behind(ctx); err != nil {
				return err
			}
		}
		w.tell(r.Events)
		if r.IsProgressNotify() {
			w.from = r.Header.Revision + 1
		}
	}
	return errors.New("watch ended")
}

// behind is asked when a member has not come as far as the watch: as one that lags
// behind the others, which tells the rest when it gets it; nil. A store that has not
// come so far is another one, or was rolled back.
func (w *watch) behind(ctx context.Context) error {
	now, err := w.s.revision(ctx)
	if err == nil && now+1 < w.from {
		err = fmt.Errorf("watch %s: the store is at %d, before %d: %w", w.slot, now, w.from, meta.ErrGap)
	}
	return err
}

// outlast returns a context that ends by cancel, or a while after ctx. A watch
// that is given up before the server has told of its beginning is not given up
// at the server: the client forgets it.
func outlast(ctx context.Context, while time.Duration) (context.Context, func()) {
	longer, end := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		t := time.NewTimer(while)
		defer t.Stop()
		select {
		case <-t.C:
			end()
		case <-longer.Done():
		}
	})
	return longer, func() {
		stop()
		end()
	}
}

func (w *watch) tell(events []*clientv3.Event) {
	if len(events) == 0 {
		return
	}
	cut := len(w.s.fields(w.slot))
	out := make([]meta.Event, 0, len(events))
	for _, e := range events {
		ev := meta.Event{
			Record:      meta.Record{Slot: w.slot, Field: string(e.Kv.Key[cut:]), Version: uint64(e.Kv.ModRevision)},
			SlotVersion: uint64(e.Kv.ModRevision),
		}
		if e.Type == clientv3.EventTypePut {
			ev.Value = present(e.Kv.Value)
		}
		w.since, w.from = ev.SlotVersion, e.Kv.ModRevision+1
		out = append(out, ev)
	}
	w.on(out)
}

// errChanged: the slot changed before the store forgot its history.
var errChanged = errors.New("changed meanwhile")

// resume finds where to watch from after the store forgot w.from. That is no
// gap if the slot had not changed when it did: a directory that stays as it is
// for a day is watched on. (A record that vanished with its lease is not seen
// by this; slots of leased records are not watched for long.)
func (w *watch) resume(ctx context.Context) error {
	return w.s.retry(ctx, func(ctx context.Context, cl *clientv3.Client) error {
		r, err := cl.Get(ctx, w.s.slotKey(w.slot), clientv3.WithRev(w.compacted))
		if err != nil {
			return err
		}
		if len(r.Kvs) > 0 && uint64(r.Kvs[0].ModRevision) > w.since {
			return errChanged
		}
		w.from = w.compacted + 1
		return nil
	})
}
