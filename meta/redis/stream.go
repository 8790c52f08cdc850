package redis

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/p2pfs/p2pfs/meta"
)

// streamQueue is how many changes wait for the stream of a Cluster.
const streamQueue = 4096

// streamOptions fills in what was left out; no key means no stream.
func streamOptions(o meta.StreamOptions, prefix string) (meta.StreamOptions, error) {
	if !o.On {
		return meta.StreamOptions{}, nil
	}
	if o.Key == "" {
		o.Key = prefix + ":{events}"
	}
	if strings.ContainsAny(o.Key, " \t\r\n\x00") {
		return o, fmt.Errorf("stream key %q holds white space", o.Key)
	}
	if o.MaxLen <= 0 {
		o.MaxLen = meta.DefaultStreamMaxLen
	}
	if o.Batch <= 0 {
		o.Batch = meta.DefaultStreamBatch
	}
	if o.Block <= 0 {
		o.Block = meta.DefaultStreamBlock
	}
	return o, nil
}

// streamCounter returns the key that counts the changes of a stream, so that a
// missing one shows. It lies with the same server of a Cluster.
func streamCounter(key string) string {
	if open := strings.IndexByte(key, '{'); open >= 0 && strings.IndexByte(key[open:], '}') > 1 {
		return key + "n"
	}
	return "{" + key + "}n"
}

// streamItem is a change on its way to the stream.
type streamItem struct {
	slot meta.Slot
	text string
}

// streamWriter writes the changes made here to the stream of a Cluster, which
// lies with another server than the slots: after the changes, many at once, and
// nobody waits for it. What cannot be written leaves a hole in the count.
type streamWriter struct {
	once    sync.Once
	items   chan streamItem
	waiting atomic.Int64 // items that are not written yet
	lost    atomic.Bool
}

// toStream takes what a script told of changes of one slot.
func (s *Store) toStream(slot meta.Slot, told string) {
	s.stream.once.Do(func() {
		s.hub.mu.Lock() // Close waits for those begun before it
		defer s.hub.mu.Unlock()
		if s.ctx.Err() == nil {
			s.hub.wg.Go(s.writeStream)
		}
	})
	for told != "" {
		text, rest, ok := cutString(told)
		if !ok {
			s.stream.lost.Store(true)
			return
		}
		select {
		case s.stream.items <- streamItem{slot, text}:
			s.stream.waiting.Add(1)
		default:
			s.stream.lost.Store(true)
		}
		told = rest
	}
}

// flush waits, for a second at most, until the stream has what was told.
func (w *streamWriter) flush() {
	for end := time.Now().Add(time.Second); w.waiting.Load() > 0 && time.Now().Before(end); {
		time.Sleep(10 * time.Millisecond)
	}
}

// writeStream writes until Close.
func (s *Store) writeStream() {
	for {
		select {
		case it := <-s.stream.items:
			s.writeItems(s.ctx, it)
		case <-s.ctx.Done():
			return
		}
	}
}

// writeItems writes an item and those that wait behind it.
func (s *Store) writeItems(ctx context.Context, it streamItem) {
	o := s.opts.Stream
	lost := s.stream.lost.Swap(false)
	args := []any{o.MaxLen, 0}
	if lost {
		args[1] = 1
	}
	n := 0
	for next := true; next; {
		args = append(args, string(it.slot), it.text)
		next = false
		if n++; n < s.opts.Stream.Batch {
			select {
			case it, next = <-s.stream.items:
			default:
			}
		}
	}
	defer s.stream.waiting.Add(int64(-n))
	c := &call{script: s.scripts.stream, keys: []string{o.Key, streamCounter(o.Key)}, args: args}
	if err := s.write(ctx, c); err != nil {
		s.stream.lost.Store(true)
	}
}

// Sweep implements meta.Sweeper.
func (s *Store) Sweep(ctx context.Context, slots ...meta.Slot) error {
	for _, slot := range slots {
		c := &call{script: s.scripts.sweep, keys: s.keys(slot), args: []any{s.publishTo()}}
		if err := s.write(ctx, c); err != nil {
			return err
		}
		if told, err := c.text(); err == nil && told != "" {
			s.toStream(slot, told)
		}
	}
	return nil
}

var (
	_ meta.Feed    = (*Store)(nil)
	_ meta.Sweeper = (*Store)(nil)
)

// errNoStream tells what there is to do.
func (s *Store) errNoStream(from string) error {
	if s.target.form == cluster {
		return fmt.Errorf("%w: a Redis Cluster tells of changes by a stream only: mount the nodes with --stream", meta.ErrNoHistory)
	}
	return fmt.Errorf("%w: Redis forgets what has been, so that nothing can be told from %q on: mount the nodes with --stream, or follow what comes", meta.ErrNoHistory, from)
}

// Follow implements meta.Feed: by the stream if there is one, else by a
// subscription to all slots, which has no positions. A position is the id of an
// entry of the stream.
func (s *Store) Follow(ctx context.Context, opts meta.FollowOptions, on func(meta.SlotChange) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(s.ctx, cancel)()
	var err error
	switch {
	case s.opts.Stream.Key != "":
		err = s.followStream(ctx, opts, on)
	case s.target.form == cluster || opts.From != "" || opts.Past:
		return s.errNoStream(opts.From)
	default:
		err = s.followChannel(ctx, on)
	}
	if ctx.Err() != nil || errors.Is(err, errReached) {
		return nil
	}
	return err
}

var errReached = errors.New("all was told")

// change reads an item that followers are told.
func (s *Store) change(slot meta.Slot, raw string) (meta.SlotChange, error) {
	it, before, err := parseTold(slot, raw)
	if err != nil {
		return meta.SlotChange{}, err
	}
	ch := meta.SlotChange{Slot: slot, Events: it.events, Before: before}
	if v, err := parseDigits(it.version); err == nil {
		ch.At = time.UnixMicro(int64(v))
	}
	if it.cut {
		ch.Slot, ch.Lost = "", fmt.Sprintf("a change of %s was too large to be told", slot)
	}
	return ch, nil
}
