package redis

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/p2pfs/p2pfs/meta"
)

// followChannel tells what is published, of every slot, on one connection.
func (s *Store) followChannel(ctx context.Context, on func(meta.SlotChange) error) error {
	cl, err := s.servers.of(ctx, s.target.prefix)
	if err != nil {
		return s.explain(ctx, err)
	}
	dctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	id, err := s.servers.identity(dctx, s.target.prefix)
	if err != nil {
		return s.explain(ctx, err)
	}
	ps := cl.PSubscribe(dctx, escapeGlob(s.target.prefix)+":{*}"+s.at()+"+")
	defer ps.Close()
	defer context.AfterFunc(ctx, func() { _ = ps.Close() })()
	asked := false
	for checked := time.Now(); ctx.Err() == nil; {
		if s.target.form == sentinel && time.Since(checked) > pingTime {
			if now, err := s.servers.identity(ctx, s.target.prefix); err == nil && now != id {
				return fmt.Errorf("%w: %s: another server is the master now", meta.ErrUnavailable, s.target.hosts)
			}
			checked = time.Now()
		}
		said, err := ps.ReceiveTimeout(ctx, pingTime)
		var late net.Error
		switch {
		case err == nil:
			asked = false
		case !asked && errors.As(err, &late) && late.Timeout():
			asked = true
			if err = ps.Ping(ctx); err != nil {
				return s.explain(ctx, err)
			}
			continue
		default:
			return s.explain(ctx, err)
		}
		if err := s.take(said, on); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// take tells one message of the subscription.
func (s *Store) take(said any, on func(meta.SlotChange) error) error {
	switch m := said.(type) {
	case *redis.Subscription:
		if m.Kind == "psubscribe" {
			return on(meta.SlotChange{})
		}
	case *redis.Message:
		name := strings.TrimSuffix(strings.TrimPrefix(m.Channel, s.target.prefix+":{"), "}"+s.at()+"+")
		ch, err := s.change(meta.Slot(name), m.Payload)
		if err != nil {
			ch = meta.SlotChange{Lost: err.Error()}
		}
		return on(ch)
	}
	return nil
}

// escapeGlob makes a pattern that only a text itself matches.
func escapeGlob(s string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`, `]`, `\]`).Replace(s)
}

// streamReader is where a follower of the stream is.
type streamReader struct {
	s     *Store
	on    func(meta.SlotChange) error
	last  string // id of the last entry told
	count uint64 // its number; 0: not known
	until string // id of the last entry asked for; empty: no end
}

// followStream tells what is in the stream, and what comes.
func (s *Store) followStream(ctx context.Context, opts meta.FollowOptions, on func(meta.SlotChange) error) error {
	r := &streamReader{s: s, on: on}
	if err := r.begin(ctx, opts); err != nil {
		return err
	}
	if err := on(meta.SlotChange{Position: r.last}); err != nil {
		return err
	}
	for ctx.Err() == nil {
		if r.until != "" && !idLess(r.last, r.until) {
			return errReached
		}
		if err := r.read(ctx); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// client returns the client of the server that has the stream.
func (r *streamReader) client(ctx context.Context) (*redis.Client, error) {
	cl, err := r.s.servers.of(ctx, r.s.opts.Stream.Key)
	if err != nil {
		return nil, r.s.explain(ctx, err)
	}
	return cl, nil
}

// begin finds out where to begin and to end.
func (r *streamReader) begin(ctx context.Context, opts meta.FollowOptions) error {
	cl, err := r.client(ctx)
	if err != nil {
		return err
	}
	bound, cancel := context.WithTimeout(ctx, r.s.opts.ReadTimeout)
	defer cancel()
	key := r.s.opts.Stream.Key
	newest, err := cl.XRevRangeN(bound, key, "+", "-", 1).Result()
	if err != nil {
		return r.s.explain(ctx, err)
	}
	end, number := "0-0", uint64(0)
	if len(newest) > 0 {
		end, number = newest[0].ID, numberOf(newest[0])
	}
	if opts.Past {
		r.until = end
	}
	switch opts.From {
	case "":
		r.last, r.count = end, number
		return nil
	case meta.FromOldest, "0-0":
		r.last = "0-0"
		return nil
	}
	if !isID(opts.From) {
		return fmt.Errorf("position %q is not one of a Redis stream: %w", opts.From, meta.ErrName)
	}
	at, err := cl.XRangeN(bound, key, opts.From, "+", 1).Result()
	switch {
	case err != nil:
		return r.s.explain(ctx, err)
	case len(at) == 0:
		return &meta.GapError{After: opts.From, Oldest: meta.FromOldest, Why: "the store lost its records, or is another one"}
	case at[0].ID != opts.From:
		return &meta.GapError{After: opts.From, Oldest: meta.FromOldest, Why: "they are no longer in the stream, which is cut to its last changes"}
	}
	r.last, r.count = opts.From, numberOf(at[0])
	if opts.Again {
		r.count--
		return r.tell(at[0])
	}
	return nil
}

// read waits for entries and tells them.
func (r *streamReader) read(ctx context.Context) error {
	cl, err := r.client(ctx)
	if err != nil {
		return err
	}
	o := r.s.opts.Stream
	got, err := cl.XRead(ctx, &redis.XReadArgs{Streams: []string{o.Key, r.last}, Count: int64(o.Batch), Block: o.Block}).Result()
	if errors.Is(err, redis.Nil) {
		return nil
	}
	if err != nil {
		if refused(err) {
			r.s.servers.stale(ctx)
		}
		return r.s.explain(ctx, err)
	}
	for _, st := range got {
		for _, m := range st.Messages {
			if r.until != "" && idLess(r.until, m.ID) {
				return errReached
			}
			if err := r.tell(m); err != nil {
				return err
			}
		}
	}
	return nil
}

// tell tells one entry, and what is missing before it.
func (r *streamReader) tell(m redis.XMessage) error {
	slot, _ := m.Values["s"].(string)
	raw, _ := m.Values["e"].(string)
	ch, err := r.s.change(meta.Slot(slot), raw)
	if err != nil {
		ch = meta.SlotChange{Lost: err.Error()}
	}
	n := numberOf(m)
	if r.count != 0 && n != r.count+1 && ch.Lost == "" {
		ch.Lost = fmt.Sprintf("change %d of the stream follows on change %d", n, r.count)
	}
	r.last, r.count = m.ID, n
	ch.Position = m.ID
	return r.on(ch)
}

func numberOf(m redis.XMessage) uint64 {
	n, _ := m.Values["n"].(string)
	return number(n)
}

// isID reports whether a text is the id of an entry.
func isID(s string) bool {
	ms, seq, ok := strings.Cut(s, "-")
	_, err1 := strconv.ParseUint(ms, 10, 64)
	_, err2 := strconv.ParseUint(seq, 10, 64)
	return ok && err1 == nil && err2 == nil
}

// idLess reports whether one id comes before another.
func idLess(a, b string) bool {
	am, as, _ := strings.Cut(a, "-")
	bm, bs, _ := strings.Cut(b, "-")
	if number(am) != number(bm) {
		return number(am) < number(bm)
	}
	return number(as) < number(bs)
}
