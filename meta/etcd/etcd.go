// Package etcd is the metadata store on an etcd cluster, version 3.4 or newer
// with default limits.
//
// A record is the key PREFIX/SLOT/FIELD, and its version is the key's
// ModRevision. The key PREFIX/SLOT holds nothing: it is written with every
// change of the slot, and its ModRevision is the slot's version. A record that
// vanishes with its lease does not move it.
//
// The package owns the connection and the translation, and knows nothing of
// what records mean.
package etcd

import (
	"context"
	"fmt"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	mvccpb "go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/p2pfs/p2pfs/meta"
	"github.com/p2pfs/p2pfs/meta/storeurl"
)

// Defaults of Options.
const (
	DefaultReadTimeout  = 3 * time.Second
	DefaultWriteTimeout = 10 * time.Second
	DefaultPatience     = time.Second
)

// Options bound what a call may take when its context does not end sooner.
type Options struct {
	ReadTimeout  time.Duration // until a silent store counts as unreachable
	WriteTimeout time.Duration
	// Patience is how long a read is tried again while there is no
	// connection to any server.
	Patience time.Duration
	// Access is what the URL does not say of how to log in.
	Access storeurl.Access
	// KV reads and writes, and Watch watches, in place of the connection,
	// which then only holds leases: for a server in this process. Nil: none.
	KV    clientv3.KV
	Watch etcdserverpb.WatchClient
}

func (o Options) withDefaults() Options {
	if o.ReadTimeout <= 0 {
		o.ReadTimeout = DefaultReadTimeout
	}
	if o.WriteTimeout <= 0 {
		o.WriteTimeout = DefaultWriteTimeout
	}
	if o.Patience <= 0 {
		o.Patience = DefaultPatience
	}
	return o
}

// Store is the metadata store on etcd. Safe for concurrent use.
type Store struct {
	target target
	opts   Options
	conn   *connector
	ctx    context.Context // ends with Close
	stop   context.CancelFunc
}

var _ meta.Slots = (*Store)(nil)

// Open returns the store of an etcd:// URL. It does not wait for the store:
// while it is down, calls answer meta.ErrUnavailable. Errors are about the URL
// and hold no password.
func Open(_ context.Context, url string, opts Options) (*Store, error) {
	t, err := parseURL(url, opts.Access)
	if err != nil {
		return nil, err
	}
	conn, err := newConnector(t, opts.KV, opts.Watch)
	if err != nil {
		return nil, fmt.Errorf("open metadata store %s: %w", t.hosts, err)
	}
	s := &Store{target: t, opts: opts.withDefaults(), conn: conn}
	s.ctx, s.stop = context.WithCancel(context.Background())
	return s, nil
}

// Close implements meta.Slots.
func (s *Store) Close() error {
	s.stop()
	return s.conn.close()
}

// slotKey returns the key of a slot's version.
func (s *Store) slotKey(slot meta.Slot) string { return s.target.prefix + "/" + string(slot) }

// key returns the key of a record, or of the slot's version for no field.
func (s *Store) key(slot meta.Slot, field string) string {
	if field == "" {
		return s.slotKey(slot)
	}
	return s.slotKey(slot) + "/" + field
}

// fields returns the prefix of a slot's records.
func (s *Store) fields(slot meta.Slot) string { return s.slotKey(slot) + "/" }

// Get implements meta.Slots.
func (s *Store) Get(ctx context.Context, keys ...meta.Key) ([]meta.Record, error) {
	out := make([]meta.Record, 0, len(keys))
	for len(keys) > 0 {
		n := min(len(keys), meta.MaxSets)
		recs, err := s.get(ctx, keys[:n])
		if err != nil {
			return nil, err
		}
		out = append(out, recs...)
		keys = keys[n:]
	}
	return out, nil
}

func (s *Store) get(ctx context.Context, keys []meta.Key) ([]meta.Record, error) {
	ops := make([]clientv3.Op, len(keys))
	for i, k := range keys {
		ops[i] = clientv3.OpGet(s.key(k.Slot, k.Field))
	}
	kvs, err := s.read(ctx, ops)
	if err != nil {
		return nil, err
	}
	out := make([]meta.Record, len(keys))
	for i, k := range keys {
		out[i] = meta.Record{Slot: k.Slot, Field: k.Field}
		if len(kvs[i]) == 0 {
			continue
		}
		out[i].Version = uint64(kvs[i][0].ModRevision)
		if k.Field != "" {
			out[i].Value = present(kvs[i][0].Value)
		}
	}
	return out, nil
}

// read makes the reads at one revision and returns the pairs of each. It
// tries again while there is no connection.
func (s *Store) read(ctx context.Context, ops []clientv3.Op) (kvs [][]*mvccpb.KeyValue, err error) {
	err = s.retry(ctx, func(ctx context.Context, cl *clientv3.Client) error {
		kvs = kvs[:0]
		if len(ops) == 1 {
			r, err := cl.Do(ctx, ops[0])
			if err == nil {
				kvs = append(kvs, r.Get().Kvs)
			}
			return err
		}
		r, err := cl.Txn(ctx).Then(ops...).Commit()
		if err != nil {
			return err
		}
		for _, x := range r.Responses {
			kvs = append(kvs, x.GetResponseRange().Kvs)
		}
		return nil
	})
	return kvs, err
}

// retry runs a read within its time, again where it is known to be worth it.
func (s *Store) retry(ctx context.Context, fn func(context.Context, *clientv3.Client) error) error {
	rctx, cancel := context.WithTimeout(context.WithValue(ctx, failFastKey{}, true), s.opts.ReadTimeout)
	defer cancel()
	patience := time.NewTimer(s.opts.Patience)
	defer patience.Stop()
	pause := 20 * time.Millisecond
	for {
		cl, err := s.conn.get(rctx)
		if err == nil {
			err = fn(rctx, cl)
		}
		if err == nil || rctx.Err() != nil || err == errClosed || denied(err) || !unavailable(err) {
			return s.explain(ctx, err)
		}
		select {
		case <-rctx.Done():
			return s.explain(ctx, err)
		case <-patience.C:
			return s.explain(ctx, err)
		case <-time.After(pause):
			pause = min(2*pause, 200*time.Millisecond)
		}
	}
}

// revision returns how far the store has come, which a member may not have yet.
func (s *Store) revision(ctx context.Context) (now int64, err error) {
	err = s.retry(ctx, func(ctx context.Context, cl *clientv3.Client) error {
		r, err := cl.Get(ctx, s.slotKey(meta.StoreSlot)) // linearizable
		if err == nil {
			now = r.Header.Revision
		}
		return err
	})
	return now, err
}

// present keeps an empty value apart from none.
func present(b []byte) []byte {
	if b == nil {
		return []byte{}
	}
	return b
}

// Version implements meta.Slots.
func (s *Store) Version(ctx context.Context, slot meta.Slot) (uint64, error) {
	recs, err := s.get(ctx, []meta.Key{{Slot: slot}})
	if err != nil {
		return 0, err
	}
	return recs[0].Version, nil
}

// Apply implements meta.Slots.
func (s *Store) Apply(ctx context.Context, slot meta.Slot, conds []meta.If, sets []meta.Set) (uint64, error) {
	return s.apply(ctx, slot, conds, sets)
}

// apply is Apply with options for the puts.
func (s *Store) apply(ctx context.Context, slot meta.Slot, conds []meta.If, sets []meta.Set, puts ...clientv3.OpOption) (uint64, error) {
	if err := meta.CheckApply(slot, conds, sets); err != nil {
		return 0, err
	}
	wctx, cancel := context.WithTimeout(ctx, s.opts.WriteTimeout)
	defer cancel()
	cl, err := s.conn.get(wctx)
	if err != nil {
		return 0, s.explain(ctx, err)
	}
	ops := []clientv3.Op{clientv3.OpPut(s.slotKey(slot), "")}
	for _, set := range sets {
		if set.Value == nil {
			ops = append(ops, clientv3.OpDelete(s.key(slot, set.Field)))
			continue
		}
		ops = append(ops, clientv3.OpPut(s.key(slot, set.Field), string(set.Value), puts...))
	}
	r, err := cl.Txn(wctx).If(s.compares(slot, conds)...).Then(ops...).Commit()
	if err != nil {
		return 0, s.explain(ctx, err)
	}
	if !r.Succeeded {
		return 0, fmt.Errorf("change %s: %w", slot, meta.ErrConflict)
	}
	return uint64(r.Header.Revision), nil
}

// compares returns the conditions as etcd states them.
func (s *Store) compares(slot meta.Slot, conds []meta.If) []clientv3.Cmp {
	var out []clientv3.Cmp
	for _, c := range conds {
		on := slot
		if c.Store {
			on = meta.StoreSlot
		}
		key := s.key(on, c.Field)
		switch {
		case c.NoOthers:
			out = append(out, s.noOthers(slot)...)
		case c.Absent:
			out = append(out, clientv3.Compare(clientv3.CreateRevision(key), "=", 0))
		case c.Present:
			out = append(out, clientv3.Compare(clientv3.CreateRevision(key), ">", 0))
		default:
			out = append(out, clientv3.Compare(clientv3.ModRevision(key), "=", int64(c.Version)))
		}
	}
	return out
}

// noOthers says that the ranges of keys beside the field "." and those that
// begin with "/gone/" are empty: no key of them has ever been created, or it was
// deleted since.
func (s *Store) noOthers(slot meta.Slot) []clientv3.Cmp {
	first := s.fields(slot)
	dot, gone := first+".", first+"/gone/"
	absent := func(from, to string) clientv3.Cmp {
		return clientv3.Compare(clientv3.CreateRevision(from), "=", 0).WithRange(to)
	}
	return []clientv3.Cmp{
		absent(first, dot),
		absent(dot+"\x00", gone),
		absent(clientv3.GetPrefixRangeEnd(gone), clientv3.GetPrefixRangeEnd(first)),
	}
}
