package running

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/p2pfs/p2pfs/node/nodepb"
)

// DialTimeout bounds the wait for the first sign of life of a daemon that is
// stopped, has ended or cannot be looked at.
const DialTimeout = 5 * time.Second

// busyTimeout is DialTimeout for a daemon that runs: on a busy machine it may not
// have come to its turn.
const busyTimeout = 30 * time.Second

// maxMessage is the largest answer taken from a node, in bytes.
const maxMessage = 64 << 20

// Dial connects to a node's control service. It returns once the daemon has
// answered, so that a dead or a stopped one is an error here and not a wait
// later. The caller closes the Closer.
func Dial(ctx context.Context, i Info) (nodepb.ControlClient, io.Closer, error) {
	ctx, cancel := context.WithTimeout(ctx, busyTimeout)
	defer cancel()
	ctx, giveUp := context.WithCancelCause(ctx)
	defer giveUp(nil)
	defer time.AfterFunc(DialTimeout, func() {
		if i.PID == 0 || i.Stopped() || !i.Alive() {
			giveUp(context.DeadlineExceeded)
		}
	}).Stop()
	var d net.Dialer
	first, err := d.DialContext(ctx, "unix", i.Socket)
	if err != nil {
		return nil, nil, dialError(i, cmp.Or(context.Cause(ctx), err))
	}
	var spare atomic.Pointer[net.Conn]
	spare.Store(&first)
	defer func() {
		if c := spare.Swap(nil); c != nil {
			(*c).Close()
		}
	}()
	conn, err := grpc.NewClient("passthrough:///p2pfs",
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			if c := spare.Swap(nil); c != nil {
				return *c, nil
			}
			return d.DialContext(ctx, "unix", i.Socket)
		}),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessage)),
		grpc.WithNoProxy(),
	)
	if err != nil {
		return nil, nil, fmt.Errorf("connect to node %s: %w", i, err)
	}
	if err := waitReady(ctx, conn); err != nil {
		conn.Close()
		return nil, nil, silent(i, err)
	}
	return nodepb.NewControlClient(conn), conn, nil
}

// waitReady returns once the other end speaks HTTP/2.
func waitReady(ctx context.Context, conn *grpc.ClientConn) error {
	conn.Connect()
	for {
		s := conn.GetState()
		switch s {
		case connectivity.Ready:
			return nil
		case connectivity.TransientFailure, connectivity.Shutdown:
			return fmt.Errorf("connection is in state %s", s)
		case connectivity.Idle:
			conn.Connect()
		}
		if !conn.WaitForStateChange(ctx, s) {
			return context.Cause(ctx)
		}
	}
}

// dialError says why nothing can be asked of a node.
func dialError(i Info, err error) error {
	switch {
	case errors.Is(err, unix.ECONNREFUSED), errors.Is(err, unix.ENOENT):
		if i.PID != 0 && i.Alive() {
			return noNode("the node %s (pid %d) does not take commands on %s: %w", i, i.PID, i.Socket, err)
		}
		if i.PID == 0 {
			return noNode("no node listens on %s: %w", i.Socket, err)
		}
		return notRunning(i)
	case errors.Is(err, unix.EACCES), errors.Is(err, unix.EPERM):
		return noNode("the node %s belongs to another user; run the command as that user (sudo): %w", i, err)
	}
	return silent(i, err)
}

// silent says that a node is there and does not answer.
func silent(i Info, err error) error {
	switch {
	case errors.Is(err, context.Canceled):
		return err
	case i.PID != 0 && i.Stopped():
		return noNode("the node %s does not answer: pid %d is stopped (kill -CONT %d lets it go on)", i, i.PID, i.PID)
	case i.PID != 0 && !i.Alive():
		return notRunning(i)
	}
	return noNode("the node %s (pid %d) does not answer: %w", i, i.PID, err)
}
