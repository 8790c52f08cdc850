package redis

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// A quiet subscription is asked for a sign of life after pingTime, and given up
// when none has come pingTime later.
const pingTime = 3 * time.Second

// hub has the subscriptions of a store: one connection to each server that has
// watched slots.
type hub struct {
	wg  sync.WaitGroup // feeds
	sem chan struct{}  // 1: holds the right to begin one

	mu    sync.Mutex
	feeds map[string]*feed
}

// feed is one connection that tells of changes. It lives until it breaks: then
// its watches are told, and look for another.
type feed struct {
	ps      *redis.PubSub
	sharded bool
	// who tells one server of the feed's channels from the next: a master
	// that was cut off and replaced goes on answering, and tells nothing.
	who func(context.Context) (string, error)

	// mu is held while a subscription is sent, so that those of one channel
	// come in order: a write that waits for a server that hangs keeps nobody
	// from anything, as the server says nothing either.
	mu       sync.Mutex
	channels map[string]*channel
	broken   bool
}

// channel is one slot's; feed.mu guards it.
type channel struct {
	ready   bool // the server has confirmed it
	watches map[*watch]struct{}
}

// join enters a watch at the server that has its slot.
func (s *Store) join(ctx context.Context, w *watch) (*feed, error) {
	cl, err := s.servers.of(ctx, w.channel)
	if err != nil {
		return nil, err
	}
	for {
		f, err := s.feed(ctx, cl, w.channel)
		if err != nil {
			return nil, err
		}
		ok, err := f.add(ctx, w)
		if err != nil {
			s.drop(f)
			return nil, err
		}
		if ok {
			return f, nil
		}
	}
}

// feed returns the feed of the server that has a key, begun if there is none.
func (s *Store) feed(ctx context.Context, cl *redis.Client, key string) (*feed, error) {
	select {
	case s.hub.sem <- struct{}{}:
		defer func() { <-s.hub.sem }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	addr := cl.Options().Addr
	s.hub.mu.Lock()
	f := s.hub.feeds[addr]
	s.hub.mu.Unlock()
	if f != nil {
		return f, nil
	}
	dctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	f = &feed{ps: cl.Subscribe(dctx), sharded: s.target.form == cluster, channels: make(map[string]*channel)}
	f.who = func(ctx context.Context) (string, error) { return s.servers.identity(ctx, key) }
	id, err := f.who(dctx)
	if err == nil {
		err = f.ps.Ping(dctx)
	}
	if err != nil {
		_ = f.ps.Close()
		return nil, err
	}
	s.hub.mu.Lock()
	defer s.hub.mu.Unlock()
	if s.ctx.Err() != nil {
		_ = f.ps.Close()
		return nil, errClosed
	}
	s.hub.feeds[addr] = f
	s.hub.wg.Go(func() {
		defer s.drop(f)
		stop := context.AfterFunc(s.ctx, func() { _ = f.ps.Close() })
		defer stop()
		f.run(s.ctx, id)
	})
	return f, nil
}

// drop ends a feed and tells its watches.
func (s *Store) drop(f *feed) {
	s.hub.mu.Lock()
	for addr, g := range s.hub.feeds {
		if g == f {
			delete(s.hub.feeds, addr)
		}
	}
	s.hub.mu.Unlock()
	_ = f.ps.Close()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.broken = true
	for name := range f.channels {
		f.breakChannel(name)
	}
}

// breakChannel sends the watches of a channel elsewhere. f.mu is held.
func (f *feed) breakChannel(name string) {
	c := f.channels[name]
	if c == nil {
		return
	}
	delete(f.channels, name)
	for w := range c.watches {
		w.tell(func(n *news) { n.broken = true })
	}
}

// add enters a watch; false if the feed is broken.
func (f *feed) add(ctx context.Context, w *watch) (bool, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.broken {
		return false, nil
	}
	w.tell(func(n *news) { *n = news{} })
	c := f.channels[w.channel]
	if c == nil {
		c = &channel{watches: make(map[*watch]struct{})}
		f.channels[w.channel] = c
		sub := f.ps.Subscribe
		if f.sharded {
			sub = f.ps.SSubscribe
		}
		if err := sub(ctx, w.channel); err != nil {
			return false, err
		}
	}
	c.watches[w] = struct{}{}
	if c.ready {
		w.tell(func(n *news) { n.look = true })
	}
	return true, nil
}

// remove takes a watch out.
func (f *feed) remove(w *watch) {
	f.mu.Lock()
	defer f.mu.Unlock()
	c := f.channels[w.channel]
	if c == nil {
		return
	}
	if delete(c.watches, w); len(c.watches) > 0 || f.broken {
		return
	}
	delete(f.channels, w.channel)
	ctx, cancel := context.WithTimeout(context.Background(), pingTime)
	defer cancel()
	if f.sharded {
		_ = f.ps.SUnsubscribe(ctx, w.channel)
	} else {
		_ = f.ps.Unsubscribe(ctx, w.channel)
	}
}

// run takes in what the server says until the connection breaks, or the server
// is another one's than id.
func (f *feed) run(ctx context.Context, id string) {
	asked := false
	for checked := time.Now(); ctx.Err() == nil; {
		if time.Since(checked) > pingTime {
			if !f.still(ctx, id) {
				return
			}
			checked = time.Now()
		}
		said, err := f.ps.ReceiveTimeout(ctx, pingTime)
		var late net.Error
		switch {
		case err == nil:
			asked = false
			f.take(said)
		case !asked && errors.As(err, &late) && late.Timeout():
			if f.ps.Ping(ctx) != nil {
				return
			}
			asked = true
		default:
			return
		}
	}
}

// still reports whether the server is the one it was, as far as can be told.
func (f *feed) still(ctx context.Context, id string) bool {
	ctx, cancel := context.WithTimeout(ctx, pingTime)
	defer cancel()
	now, err := f.who(ctx)
	return err != nil || now == id
}

func (f *feed) take(said any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch said := said.(type) {
	case *redis.Message:
		if c := f.channels[said.Channel]; c != nil {
			for w := range c.watches {
				w.tell(func(n *news) { n.add(said.Payload) })
			}
		}
	case *redis.Subscription:
		c := f.channels[said.Channel]
		switch {
		case c == nil:
		case said.Kind == "subscribe" || said.Kind == "ssubscribe":
			c.ready = true
			for w := range c.watches {
				w.tell(func(n *news) { n.look = true })
			}
		case said.Kind == "sunsubscribe" && c.ready: // the slot goes to another server
			f.breakChannel(said.Channel)
		}
	}
}
