package redis

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/p2pfs/p2pfs/meta"
)

// call is a script on one slot, or without one a plain command on its key: HMGET
// if none is named. Its answer is whoever's that sent it, once it is done.
type call struct {
	script *script
	plain  string
	texts  bool // the answer is a list of strings, as []string, empty for nil
	keys   []string
	args   []any
	reply  any
	err    error
}

// command returns the call as it is sent.
func (c *call) command(source bool) []any {
	switch {
	case c.plain != "":
		return append([]any{c.plain, c.keys[0]}, c.args...)
	case c.script == nil:
		return append([]any{"HMGET", c.keys[0]}, c.args...)
	}
	out := make([]any, 0, 3+len(c.keys)+len(c.args))
	if source {
		out = append(out, "EVAL", c.script.source)
	} else {
		out = append(out, "EVALSHA", c.script.sum)
	}
	out = append(out, len(c.keys))
	for _, k := range c.keys {
		out = append(out, k)
	}
	return append(out, c.args...)
}

// read makes calls that change nothing, however often. A caller who leaves is
// kept while the store is silent, for ReadTimeout at most: the client looks at
// deadlines only.
func (s *Store) read(ctx context.Context, calls ...*call) error {
	rctx, cancel := context.WithTimeout(ctx, s.opts.ReadTimeout)
	defer cancel()
	return s.explain(ctx, s.tries(rctx, unfinished, func(ctx context.Context) error { return s.spread(ctx, calls) }))
}

// write makes one call, and again only where it is known that nothing was done.
// The end of ctx or of the store ends it at once.
func (s *Store) write(ctx context.Context, c *call) error {
	wctx, cancel := context.WithTimeout(ctx, s.opts.WriteTimeout)
	defer cancel()
	done := make(chan error, 1)
	go func() {
		done <- s.tries(wctx, refused, func(ctx context.Context) error {
			cl, err := s.server(ctx, c)
			if err != nil {
				return err
			}
			return s.send(ctx, cl, []*call{c}, false)
		})
	}()
	select {
	case err := <-done:
		return s.explain(ctx, err)
	case <-wctx.Done():
		return s.explain(ctx, wctx.Err())
	case <-s.ctx.Done():
		return s.explain(ctx, errClosed)
	}
}

// unfinished reports whether a read may fare better a moment later.
func unfinished(err error) bool {
	return !answer(err) && !errors.Is(err, meta.ErrFormat) || unavailable(err)
}

// tries calls fn until it succeeds, again says that another try is of no use,
// the store has been out of reach for longer than patience, or ctx ends.
func (s *Store) tries(ctx context.Context, again func(error) bool, fn func(context.Context) error) error {
	patience := time.Now().Add(s.opts.Patience)
	for pause := 10 * time.Millisecond; ; pause = min(2*pause, 200*time.Millisecond) {
		err := fn(ctx)
		if err == nil || ctx.Err() != nil || s.ctx.Err() != nil || closed(err) || denied(err) || !again(err) {
			return err
		}
		s.servers.stale(ctx)
		if time.Now().Add(pause).After(patience) {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-s.ctx.Done():
			return err
		case <-time.After(pause):
		}
	}
}

// server returns the client of a call's server.
func (s *Store) server(ctx context.Context, c *call) (*redis.Client, error) {
	cl, err := s.servers.of(ctx, c.keys[0])
	if err != nil && !answer(err) && !closed(err) {
		err = fmt.Errorf("%w: %w", errNotNow, err)
	}
	return cl, err
}

// spread sends reads to their servers, all at the same time.
func (s *Store) spread(ctx context.Context, calls []*call) error {
	if len(calls) == 1 {
		cl, err := s.server(ctx, calls[0])
		if err != nil {
			return err
		}
		return s.send(ctx, cl, calls, true)
	}
	by := make(map[*redis.Client][]*call)
	for _, c := range calls {
		cl, err := s.server(ctx, c)
		if err != nil {
			return err
		}
		by[cl] = append(by[cl], c)
	}
	errs := make([]error, 0, len(by))
	var mu sync.Mutex
	var wg sync.WaitGroup
	for cl, part := range by {
		wg.Go(func() {
			err := s.send(ctx, cl, part, true)
			mu.Lock()
			defer mu.Unlock()
			errs = append(errs, err)
		})
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// send makes calls on one server in one round trip, or two when it does not
// know a script yet. A read that a replica answers counts as none: one of a
// Cluster sends the reader to its master, others are found out by a change
// beside it that changes nothing. So does a master that lacks the replicas it is
// told to have (min-replicas-to-write): another may have taken its place.
func (s *Store) send(ctx context.Context, cl *redis.Client, calls []*call, read bool) error {
	var probe string
	if read && s.target.form != cluster {
		probe = calls[0].keys[0] + "none"
	}
	if err := sendOnce(ctx, cl, calls, probe, false); err != nil {
		return err
	}
	var unknown []*call
	for _, c := range calls {
		if begins(c.err, "NOSCRIPT") {
			unknown = append(unknown, c)
		}
	}
	if len(unknown) > 0 {
		if err := sendOnce(ctx, cl, unknown, probe, true); err != nil {
			return err
		}
	}
	for _, c := range calls {
		if addr, ok := askAddr(c.err); ok {
			s.ask(ctx, addr, c)
		}
		if c.err != nil {
			return c.err
		}
	}
	return nil
}

func sendOnce(ctx context.Context, cl *redis.Client, calls []*call, probe string, source bool) error {
	pipe := cl.Pipeline()
	answers := make([]func() (any, error), len(calls))
	for i, c := range calls {
		answers[i] = c.enter(ctx, pipe, source)
	}
	var master *redis.IntCmd
	if probe != "" {
		master = pipe.Del(ctx, probe)
	}
	_, err := pipe.Exec(ctx) // most times each command has its own, too
	if master != nil && begins(master.Err(), "READONLY", "NOREPLICAS") {
		return errReplica
	}
	for i, c := range calls {
		if c.reply, c.err = answers[i](); c.err == nil && c.reply == nil {
			c.err = err
		}
	}
	return nil
}

// enter puts a call into a pipeline, and returns what tells its answer once that
// was sent.
func (c *call) enter(ctx context.Context, pipe redis.Pipeliner, source bool) func() (any, error) {
	if !c.texts {
		return pipe.Do(ctx, c.command(source)...).Result
	}
	// Others box each string.
	cmd := redis.NewStringSliceCmd(ctx, c.command(source)...)
	_ = pipe.Process(ctx, cmd) // into the pipeline
	return func() (any, error) {
		if v, err := cmd.Result(); v != nil || err != nil {
			return v, err
		}
		return nil, nil
	}
}

// askAddr returns who has a call's keys already, if the server said so.
func askAddr(err error) (addr string, ok bool) {
	var said redis.Error
	if !errors.As(err, &said) {
		return "", false
	}
	words := strings.Fields(said.Error())
	if len(words) != 3 || words[0] != "ASK" { // ASK SLOT HOST:PORT
		return "", false
	}
	return words[2], true
}

// ask makes a call where its keys are being taken to.
func (s *Store) ask(ctx context.Context, addr string, c *call) {
	cl, err := s.servers.asked(ctx, addr)
	if err != nil {
		c.err = err
		return
	}
	pipe := cl.Pipeline()
	pipe.Do(ctx, "ASKING")
	answer := c.enter(ctx, pipe, true)
	_, err = pipe.Exec(ctx)
	if c.reply, c.err = answer(); c.err == nil && c.reply == nil {
		c.err = err
	}
}

// list returns an answer that is a list of at least n.
func (c *call) list(n int) ([]any, error) {
	l, ok := c.reply.([]any)
	if !ok || len(l) < n {
		return nil, fmt.Errorf("%w: the store answered %.40q", meta.ErrFormat, fmt.Sprint(c.reply))
	}
	return l, nil
}

// strings returns an answer that is a list of at least n strings.
func (c *call) strings(n int) ([]string, error) {
	l, ok := c.reply.([]string)
	if !ok || len(l) < n {
		return nil, fmt.Errorf("%w: the store answered %.40q", meta.ErrFormat, fmt.Sprint(c.reply))
	}
	return l, nil
}

// text returns an answer that is a string.
func (c *call) text() (string, error) {
	t, ok := c.reply.(string)
	if !ok {
		return "", fmt.Errorf("%w: the store answered %.40q", meta.ErrFormat, fmt.Sprint(c.reply))
	}
	return t, nil
}

// number returns what the server counts as, 0 for what is no number.
func number(v any) uint64 {
	switch v := v.(type) {
	case int64:
		return uint64(max(v, 0))
	case string:
		n, _ := strconv.ParseUint(v, 10, 64)
		return n
	}
	return 0
}
