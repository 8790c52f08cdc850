package running

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// linkName is the link in each cache directory to the published file, so that
// a cache directory names its node whatever the runtime directory was.
const linkName = "control.json"

// Publication is one published daemon. Close is safe to call more than once
// and from any goroutine.
type Publication struct {
	file    string
	content []byte
	links   []string
}

// Publish makes the calling process findable as the daemon of i. PID, and
// Started if zero, are filled in. It refuses a node that already runs here.
func Publish(i Info) (*Publication, error) {
	proc, err := thisProcess()
	if err != nil {
		return nil, fmt.Errorf("publish node %s: %w", i, err)
	}
	i.PID, i.process = os.Getpid(), proc
	if i.Started.IsZero() {
		i.Started = time.Now()
	}
	if err := i.check(); err != nil {
		return nil, fmt.Errorf("publish node %s: %w", i, err)
	}
	b, err := encode(i)
	if err != nil {
		return nil, err
	}
	dir, err := makeDir()
	if err != nil {
		return nil, err
	}
	p := &Publication{file: filepath.Join(dir, i.Node+".json"), content: b}
	if err := p.write(dir); err != nil {
		return nil, fmt.Errorf("publish node %s: %w", i, err)
	}
	for _, c := range i.CacheDirs {
		link := filepath.Join(c, linkName)
		if err := replaceLink(p.file, link); err != nil {
			p.Close()
			return nil, fmt.Errorf("publish node %s in its cache directory: %w", i, err)
		}
		p.links = append(p.links, link)
	}
	return p, nil
}

// write puts the file in place whole, unless a live daemon has it.
func (p *Publication) write(dir string) error {
	unlock, err := lockDir(dir)
	if err != nil {
		return err
	}
	defer unlock()
	if old, err := readInfo(p.file); err == nil && old.PID != os.Getpid() && old.Alive() {
		return fmt.Errorf("it already runs here as pid %d", old.PID)
	}
	// World-readable in a directory that is so too (root's): others may
	// learn that a node runs here.
	return writeFile(p.file, p.content, 0o644)
}

// Close takes the daemon out of the runtime directory and its caches, unless
// another has taken its place.
func (p *Publication) Close() error {
	unlock, err := lockDir(filepath.Dir(p.file))
	if err != nil {
		return fmt.Errorf("withdraw %s: %w", p.file, err)
	}
	defer unlock()
	now, err := os.ReadFile(p.file)
	if err != nil || !bytes.Equal(now, p.content) {
		return nil
	}
	for _, l := range p.links {
		if to, err := os.Readlink(l); err == nil && to == p.file {
			os.Remove(l)
		}
	}
	if err := os.Remove(p.file); err != nil {
		return fmt.Errorf("withdraw %s: %w", p.file, err)
	}
	return nil
}

// Listen opens the control socket at a SocketPath, for the owner only. What a
// killed daemon left there is replaced; a socket somebody listens on is not.
func Listen(path string) (net.Listener, error) {
	unlock, err := lockDir(filepath.Dir(path))
	if err != nil {
		return nil, err
	}
	defer unlock()
	if listening(path) {
		return nil, fmt.Errorf("control socket %s: another process listens on it", path)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("replace the control socket: %w", err)
	}
	lis, err := net.Listen("unix", path)
	if err != nil {
		return nil, fmt.Errorf("open the control socket: %w", err)
	}
	if err := os.Chmod(path, 0o600); err != nil {
		lis.Close()
		return nil, fmt.Errorf("protect the control socket: %w", err)
	}
	return lis, nil
}

// listening reports whether somebody accepts connections on a socket, or may:
// anything but a plain "nobody" counts.
func listening(path string) bool {
	c, err := net.DialTimeout("unix", path, time.Second)
	if err == nil {
		c.Close()
		return true
	}
	return !errors.Is(err, unix.ECONNREFUSED) && !errors.Is(err, unix.ENOENT) &&
		!errors.Is(err, unix.ENOTDIR) && !errors.Is(err, unix.EINVAL)
}

// lockWait bounds the wait for a lock that is held for microseconds: only a
// stopped process keeps it longer, and must not keep others from starting.
const lockWait = 3 * time.Second

// lockDir takes the lock under which files of a runtime directory are made and
// removed. Only the owner can.
func lockDir(dir string) (unlock func(), err error) {
	f, err := os.OpenFile(filepath.Join(dir, ".lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock the runtime directory: %w", err)
	}
	for end := time.Now().Add(lockWait); ; {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil || time.Now().After(end) {
			return func() { f.Close() }, nil
		}
		if !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR) {
			f.Close()
			return nil, fmt.Errorf("lock the runtime directory: %w", err)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// writeFile makes a file appear whole or not at all.
func writeFile(path string, b []byte, perm os.FileMode) error {
	f, err := os.CreateTemp(filepath.Dir(path), ".tmp-*")
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	err = errors.Join(err, f.Chmod(perm), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		os.Remove(f.Name())
	}
	return err
}

// replaceLink makes link point at target, whatever was there.
func replaceLink(target, link string) error {
	tmp := link + ".tmp"
	os.Remove(tmp)
	if err := os.Symlink(target, tmp); err != nil {
		return err
	}
	if err := os.Rename(tmp, link); err != nil {
		os.Remove(tmp)
		return err
	}
	return nil
}
