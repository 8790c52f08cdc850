package swarm

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/p2pfs/p2pfs/cmd/p2pfs/internal/netlab"
	"github.com/p2pfs/p2pfs/node/nodepb"
	"github.com/p2pfs/p2pfs/node/running"
)

// startTime bounds the start of a daemon.
const startTime = 2 * time.Minute

// node is one daemon on a host of its own. It has the default flags: only
// places and addresses are given.
type node struct {
	host  *netlab.Host
	dir   string // the parent of what follows
	mount string
	run   string // its runtime directory
	url   string // of the store

	proc *netlab.Process
	ctl  nodepb.ControlClient
	conn io.Closer
}

// startNode starts a daemon and returns when its mount can be used. With no
// url the store runs inside.
func startNode(ctx context.Context, binary string, h *netlab.Host, dir, url string) (*node, error) {
	n := &node{host: h, dir: dir, mount: filepath.Join(dir, "mnt"), run: filepath.Join(dir, "run"), url: url}
	if err := os.MkdirAll(n.mount, 0o755); err != nil {
		return nil, err
	}
	args := []string{"mount"}
	if url != "" {
		args = append(args, url)
	}
	args = append(args, n.mount, "--cache-dir", filepath.Join(dir, "cache"), "--name", h.Name, "--listen", h.IP+":0", "--insecure", "--json")
	if url == "" {
		args = append(args, "--meta-listen", h.IP+":2379")
	}
	log, err := os.Create(n.logPath())
	if err != nil {
		return nil, err
	}
	defer log.Close()
	said, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	cmd := n.command(binary, args...)
	cmd.Stdout, cmd.Stderr = w, log
	n.proc, err = h.Start(cmd)
	w.Close()
	if err != nil {
		said.Close()
		return nil, err
	}
	if err := n.waitReady(ctx, said); err != nil {
		return nil, fmt.Errorf("start the node on host %s: %w%s", h.Name, err, n.lastWords())
	}
	return n, n.dial(ctx)
}

// command runs on the host, and in the environment of its daemon.
func (n *node) command(name string, args ...string) *exec.Cmd {
	cmd := n.host.Command(name, args...)
	cmd.Env = append(os.Environ(), running.EnvDir+"="+n.run)
	return cmd
}

func (n *node) logPath() string { return filepath.Join(n.dir, "log") }

// waitReady reads what the daemon prints when its mount can be used.
func (n *node) waitReady(ctx context.Context, said *os.File) error {
	ready := make(chan error, 1)
	go func() {
		defer said.Close()
		var info struct {
			MetaURL string `json:"meta_url"`
		}
		err := json.NewDecoder(said).Decode(&info)
		n.url = info.MetaURL
		ready <- err
	}()
	ctx, cancel := context.WithTimeout(ctx, startTime)
	defer cancel()
	select {
	case err := <-ready:
		if errors.Is(err, io.EOF) {
			err = errors.New("it ended")
		}
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// lastWords returns the end of the daemon's log.
func (n *node) lastWords() string {
	b, err := os.ReadFile(n.logPath())
	if err != nil || len(b) == 0 {
		return ""
	}
	return "; its log ends:\n" + string(b[max(0, len(b)-2000):])
}

func (n *node) dial(ctx context.Context) error {
	sockets, err := filepath.Glob(filepath.Join(n.run, "*.sock"))
	if err != nil || len(sockets) != 1 {
		return fmt.Errorf("find the control socket of the node on host %s: %d in %s", n.host.Name, len(sockets), n.run)
	}
	n.ctl, n.conn, err = running.Dial(ctx, running.Info{Name: n.host.Name, Socket: sockets[0], PID: n.proc.PID()})
	return err
}

// close ends the conversation; the lab ends the daemon.
func (n *node) close() {
	if n != nil && n.conn != nil {
		n.conn.Close()
	}
}

// counters returns the figures of the daemon.
func (n *node) counters(ctx context.Context) (map[string]uint64, error) {
	s, err := n.ctl.Status(ctx, &nodepb.StatusRequest{})
	if err != nil {
		return nil, fmt.Errorf("ask the node on host %s for its figures: %w", n.host.Name, err)
	}
	return s.GetCounters(), nil
}

// register shows a local file under a name of the mount.
func (n *node) register(ctx context.Context, file, name string) error {
	s, err := n.ctl.Register(ctx, &nodepb.RegisterRequest{Sources: [][]byte{[]byte(file)}, Dest: []byte(name)})
	for err == nil {
		_, err = s.Recv()
	}
	if errors.Is(err, io.EOF) {
		return nil
	}
	return fmt.Errorf("register the file: %w", err)
}

// warm brings all of the file here.
func (n *node) warm(ctx context.Context) error {
	s, err := n.ctl.Warm(ctx, &nodepb.WarmRequest{Paths: [][]byte{[]byte(fileName)}})
	for err == nil {
		var r *nodepb.WarmReply
		if r, err = s.Recv(); r.GetFile().GetError() != "" {
			err = errors.New(r.GetFile().GetError())
		}
	}
	if errors.Is(err, io.EOF) {
		return nil
	}
	return fmt.Errorf("warm the file on host %s: %w", n.host.Name, err)
}
