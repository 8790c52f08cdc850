package netlab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// subnet is set aside for measuring networks (RFC 2544); no route leads to it.
const subnet = "198.18.82"

// MostHosts is how many hosts a lab can have.
const MostHosts = 250

// Config is what a lab is made of.
type Config struct {
	// Dir is where the lab makes its directory; empty: that of temporary files.
	Dir string
	// Rate of every link, each way, in bits per second.
	Rate int64
}

// Lab is a network and all that runs in it. Not safe for concurrent use, but
// for Start and the methods of a Host.
type Lab struct {
	cfg     Config
	dir     *workdir
	spawner *spawner
	hub     *Host
	hosts   []*Host
}

// New makes a lab without hosts, after it has removed the files of labs whose
// process is gone. The caller closes it.
func New(ctx context.Context, cfg Config) (*Lab, error) {
	if err := check(os.Geteuid()); err != nil {
		return nil, err
	}
	if cfg.Rate <= 0 {
		return nil, fmt.Errorf("make a lab: a link of %d bit/s", cfg.Rate)
	}
	if cfg.Dir == "" {
		cfg.Dir = os.TempDir()
	}
	if err := sweep(cfg.Dir); err != nil {
		return nil, fmt.Errorf("remove what earlier runs left: %w", err)
	}
	dir, err := newWorkdir(cfg.Dir)
	if err != nil {
		return nil, err
	}
	l := &Lab{cfg: cfg, dir: dir, spawner: newSpawner()}
	if l.hub, err = l.host(ctx, "switch"); err == nil {
		err = l.hub.ip(ctx, "link add br0 type bridge", "link set br0 up")
	}
	if err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

// Dir is the lab's own directory; it goes with the lab.
func (l *Lab) Dir() string { return l.dir.path }

// AddHost adds a host with its link.
func (l *Lab) AddHost(ctx context.Context, name string) (*Host, error) {
	if len(l.hosts) == MostHosts {
		return nil, fmt.Errorf("add host %s: a lab has %d at most", name, MostHosts)
	}
	h, err := l.host(ctx, name)
	if err != nil {
		return nil, err
	}
	n := len(l.hosts) + 1
	h.IP = fmt.Sprintf("%s.%d", subnet, n)
	l.hosts = append(l.hosts, h)
	if err := l.join(ctx, h, fmt.Sprintf("port%d", n)); err != nil {
		return nil, fmt.Errorf("connect host %s: %w", name, err)
	}
	return h, nil
}

// endWait is how long processes are given to end by themselves.
const endWait = 20 * time.Second

// Close ends every process, the last started first, and removes the lab. It
// may be called twice.
func (l *Lab) Close() error {
	for _, p := range slices.Backward(l.spawner.all()) {
		if !p.holder {
			p.terminate()
		}
	}
	deadline := time.Now().Add(endWait)
	for _, p := range slices.Backward(l.spawner.all()) {
		if !p.holder {
			p.end(time.Until(deadline))
		}
	}
	// With its last process goes a namespace, and with that its mounts.
	for _, p := range l.spawner.all() {
		p.end(0)
	}
	l.spawner.close()
	if err := l.dir.remove(); err != nil {
		return fmt.Errorf("remove the files of the lab: %w", err)
	}
	return nil
}

// Path returns a path below the lab's directory, whose parent is made.
func (l *Lab) Path(elem ...string) (string, error) {
	p := filepath.Join(append([]string{l.dir.path}, elem...)...)
	if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
		return "", fmt.Errorf("make a directory of the lab: %w", err)
	}
	return p, nil
}
