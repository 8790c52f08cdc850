package running

import (
	"bufio"
	"context"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"

	"github.com/p2pfs/p2pfs/node/nodepb"
)

func errTooLong() error { return bufio.ErrTooLong }

type fakeControl struct {
	nodepb.UnimplementedControlServer
}

func (fakeControl) Status(context.Context, *nodepb.StatusRequest) (*nodepb.StatusReply, error) {
	return &nodepb.StatusReply{Node: &nodepb.StatusReply_Node{Name: "here"}}, nil
}

func TestDial(t *testing.T) {
	t.Parallel()
	sock := filepath.Join(t.TempDir(), "s")
	lis, err := Listen(sock)
	require.NoError(t, err)
	srv := grpc.NewServer()
	nodepb.RegisterControlServer(srv, fakeControl{})
	done := make(chan error, 1)
	go func() { done <- srv.Serve(lis) }()
	client, conn, err := Dial(t.Context(), Info{Socket: sock})
	require.NoError(t, err)
	r, err := client.Status(t.Context(), &nodepb.StatusRequest{})
	require.NoError(t, err)
	require.Equal(t, "here", r.GetNode().GetName())
	require.NoError(t, conn.Close())
	srv.Stop()
	require.NoError(t, <-done)
}

func TestDialDead(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	pid, proc := deadProcess(t)
	me, err := thisProcess()
	require.NoError(t, err)
	sock := filepath.Join(dir, "gone")
	for _, c := range []struct {
		name string
		i    Info
		err  string
	}{
		{"ended", Info{Node: "abcdefabcdef", Name: "n", Socket: sock, PID: pid, process: proc}, "the node n (abcdefab) is not running (pid"},
		{"alive without a socket", Info{Node: "ab", Socket: sock, PID: os.Getpid(), process: me}, "does not take commands"},
		{"unknown", Info{Socket: sock}, "no node listens"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			_, _, err := Dial(t.Context(), c.i)
			require.ErrorIs(t, err, ErrNoNode)
			require.ErrorContains(t, err, c.err)
		})
	}
}

// A stopped daemon's socket still takes connections: the kernel does.
func TestDialSilent(t *testing.T) {
	t.Parallel()
	sock := filepath.Join(t.TempDir(), "s")
	lis, err := net.Listen("unix", sock)
	require.NoError(t, err)
	defer lis.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	me, err := thisProcess()
	require.NoError(t, err)
	_, _, err = Dial(ctx, Info{Socket: sock, PID: os.Getpid(), process: me})
	require.ErrorIs(t, err, ErrNoNode)
	require.ErrorContains(t, err, "does not answer")
}
