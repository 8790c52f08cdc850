package redis

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/p2pfs/p2pfs/meta"
)

var (
	errClosed = errors.New("the connection was closed")
	// errNotNow: the store cannot be asked for the moment, and was not.
	errNotNow = errors.New("not now")
	// errReplica: the server is no master, so that what it has may be old.
	errReplica = errors.New("the server is a read-only replica, or has no replica that it must have")
)

// explain turns what the client answers into the words of meta. ctx is the
// caller's: its own end is not the store's fault.
func (s *Store) explain(ctx context.Context, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(ctx.Err(), context.Canceled):
		return fmt.Errorf("ask %s: %w", s.target.hosts, context.Canceled)
	case errors.Is(err, meta.ErrConflict), errors.Is(err, meta.ErrFormat), errors.Is(err, meta.ErrGap):
		return err
	case denied(err):
		return fmt.Errorf("%w: %s: %w", meta.ErrDenied, s.target.hosts, err)
	case begins(err, "UNREADABLE", "WRONGTYPE"):
		return fmt.Errorf("%w: %s: %w", meta.ErrFormat, s.target.hosts, err)
	case answer(err) && !unavailable(err):
		return fmt.Errorf("ask %s: %w", s.target.hosts, err)
	}
	if end := meta.Ended(ctx); end != nil && !errors.Is(err, end) {
		err = fmt.Errorf("%w: %w", end, err)
	}
	// Whatever else the client says, it has no answer of the server.
	return fmt.Errorf("%w: %s: %w", meta.ErrUnavailable, s.target.hosts, err)
}

// answer reports whether the server said so.
func answer(err error) bool {
	var said redis.Error
	return errors.As(err, &said)
}

// begins reports whether the server's answer begins with one of the words.
func begins(err error, words ...string) bool {
	var said redis.Error
	if !errors.As(err, &said) {
		return false
	}
	for _, w := range words {
		if strings.HasPrefix(said.Error(), w) {
			return true
		}
	}
	return false
}

func denied(err error) bool {
	return begins(err, "NOAUTH", "WRONGPASS", "NOPERM", "DENIED", "ERR invalid password", "ERR Protocol error: unauthenticated", "ERR AUTH", "ERR Client sent AUTH")
}

// refused reports whether the server, if it was reached, has done nothing and
// may do it a moment later.
func refused(err error) bool {
	var op *net.OpError
	switch {
	case begins(err, "LOADING", "READONLY", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN", "MOVED", "ASK", "NOREPLICAS", "BUSY", "ERR max number of clients"):
		return true
	case errors.Is(err, errNotNow), errors.Is(err, errReplica), errors.Is(err, redis.ErrPoolTimeout), errors.Is(err, redis.ErrPoolExhausted):
		return true
	}
	return errors.As(err, &op) && op.Op == "dial"
}

// unavailable reports whether the store cannot be used as it is now.
func unavailable(err error) bool {
	return refused(err) || begins(err, "OOM", "MISCONF", "UNBLOCKED", "NOGOODSLAVE")
}

// closed reports whether the client was closed by us.
func closed(err error) bool { return errors.Is(err, redis.ErrClosed) || errors.Is(err, errClosed) }
