package swarm

import (
	"bufio"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/p2pfs/p2pfs/cmd/p2pfs/internal/netlab"
)

// p2pstorePeer is what a process of p2pstore runs, and says at its top how.
//
//go:embed p2pstore_peer.py
var p2pstorePeer []byte

// redisPort is where p2pstore's store listens, on the source's host.
const redisPort = "6379"

// missingOfP2PStore names what p2pstore needs and this machine lacks.
func missingOfP2PStore(ctx context.Context) string {
	var missing []string
	for _, module := range []string{"p2pstore", "mooncake", "redis", "numpy"} {
		if !importable(ctx, module) {
			missing = append(missing, "python3's module "+module)
		}
	}
	if _, err := exec.LookPath("redis-server"); err != nil {
		missing = append(missing, "redis-server")
	}
	return strings.Join(missing, ", ")
}

// viaP2PStore brings the file to the memory of all receivers by p2pstore, and
// returns the seconds each took, sorted.
func (b *bench) viaP2PStore(ctx context.Context) ([]float64, error) {
	script, err := b.lab.Path("p2pstore", "peer.py")
	if err != nil {
		return nil, err
	}
	dir := filepath.Dir(script)
	if err := os.WriteFile(script, p2pstorePeer, 0o644); err != nil {
		return nil, err
	}
	source := b.hosts[0]
	redis, err := source.Start(source.Command("redis-server", "--bind", source.IP, "--port", redisPort, "--protected-mode", "no", "--save", "", "--dir", dir))
	if err != nil {
		return nil, err
	}
	defer redis.Kill()
	if err := reachable(ctx, source, source.IP+":"+redisPort, redis); err != nil {
		return nil, fmt.Errorf("start redis-server: %w", err)
	}
	start := func(h *netlab.Host, what, of string) (*partner, error) {
		cmd := h.Command("python3", script, what, of, "redis://"+source.IP+":"+redisPort+"/0", h.IP)
		cmd.Dir = dir
		return startPartner(ctx, h, cmd)
	}
	put, err := start(source, "put", b.file)
	if err != nil {
		return nil, err
	}
	defer put.close()
	getters := make([]*partner, b.Receivers)
	for i, h := range b.hosts[1:] {
		if getters[i], err = start(h, "get", strconv.FormatInt(b.Size, 10)); err != nil {
			return nil, err
		}
		defer getters[i].close()
	}
	for _, p := range append([]*partner{put}, getters...) {
		if err := p.hear("ready"); err != nil {
			return nil, err
		}
	}
	seconds := make([]float64, len(getters))
	var group errgroup.Group
	began := time.Now()
	for i, p := range getters {
		group.Go(func() error {
			if _, err := io.WriteString(p.in, "go\n"); err != nil {
				return err
			}
			if err := p.hear("done"); err != nil {
				return err
			}
			seconds[i] = time.Since(began).Seconds()
			return nil
		})
	}
	err = group.Wait()
	slices.Sort(seconds)
	return seconds, err
}

// reachable waits until something listens on an address, or its process ends.
func reachable(ctx context.Context, h *netlab.Host, addr string, p *netlab.Process) error {
	ctx, cancel := context.WithTimeout(ctx, startTime)
	defer cancel()
	for {
		c, err := h.Dial(ctx, addr)
		if err == nil {
			return c.Close()
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-p.Done():
			return fmt.Errorf("it ended: %w", errors.Join(p.Err(), err))
		case <-ctx.Done():
			return errors.Join(context.Cause(ctx), err)
		}
	}
}

// partner is a process that is spoken to by lines. It ends with its context.
type partner struct {
	host *netlab.Host
	proc *netlab.Process
	in   *os.File
	out  *os.File
	said *bufio.Reader
	log  string // where it writes its errors
	stop func() bool
}

func startPartner(ctx context.Context, h *netlab.Host, cmd *exec.Cmd) (*partner, error) {
	log, err := os.Create(filepath.Join(cmd.Dir, h.Name+".log"))
	if err != nil {
		return nil, err
	}
	defer log.Close()
	in, toIt, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer in.Close()
	fromIt, out, err := os.Pipe()
	if err != nil {
		toIt.Close()
		return nil, err
	}
	defer out.Close()
	cmd.Stdin, cmd.Stdout, cmd.Stderr = in, out, log
	proc, err := h.Start(cmd)
	if err != nil {
		toIt.Close()
		fromIt.Close()
		return nil, err
	}
	return &partner{
		host: h, proc: proc, in: toIt, out: fromIt, said: bufio.NewReader(fromIt), log: log.Name(),
		stop: context.AfterFunc(ctx, proc.Kill),
	}, nil
}

// hear waits for a line that the process says.
func (p *partner) hear(want string) error {
	line, err := p.said.ReadString('\n')
	if err == nil && strings.TrimSpace(line) == want {
		return nil
	}
	p.proc.Kill() // it says nothing more, or nothing that is understood
	if err == nil {
		err = fmt.Errorf("it said %q", line)
	}
	log, _ := os.ReadFile(p.log)
	lines := strings.Split(strings.TrimSpace(string(log)), "\n")
	return fmt.Errorf("host %s: %w: %s", p.host.Name, err, lines[len(lines)-1])
}

func (p *partner) close() {
	p.stop()
	p.proc.Kill()
	p.in.Close()
	p.out.Close()
}
