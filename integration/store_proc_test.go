package integration

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"syscall"
	"time"
)

// store is an etcd of its own process. It keeps its ports over restarts.
type store struct {
	dir          string
	client, peer int
	proc         *process
}

func newStore(dir string) *store { return &store{dir: dir} }

func (s *store) url() string { return fmt.Sprintf("etcd://127.0.0.1:%d", s.client) }

// start returns when it answers. It does not wait for the disk: processes are
// killed here, not machines, and a slow disk looks like an outage.
func (s *store) start() error {
	var err error
	if s.client == 0 {
		if s.client, err = anyPort(); err != nil {
			return err
		}
		if s.peer, err = anyPort(); err != nil {
			return err
		}
	}
	client, peer := fmt.Sprintf("http://127.0.0.1:%d", s.client), fmt.Sprintf("http://127.0.0.1:%d", s.peer)
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return err
	}
	log, err := os.OpenFile(s.dir+".log", os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.Command("etcd", "--name", "it", "--data-dir", s.dir, "--unsafe-no-fsync",
		"--listen-client-urls", client, "--advertise-client-urls", client,
		"--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", "it="+peer)
	cmd.Stdout, cmd.Stderr = log, log
	if s.proc, err = spawn(cmd); err != nil {
		return err
	}
	for deadline := time.Now().Add(2 * time.Minute); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		if healthy(client) {
			return nil
		}
		if !s.proc.alive() {
			break
		}
	}
	return fmt.Errorf("etcd does not answer: %s", tail(s.dir+".log", 10))
}

// healthy reports whether an etcd has a leader, and commits what it is told.
func healthy(url string) bool {
	c := http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	r, err := c.Get(url + "/health")
	if err != nil {
		return false
	}
	return r.Body.Close() == nil && r.StatusCode == http.StatusOK
}

func (s *store) stop() {
	if s.proc == nil {
		return
	}
	s.proc.signal(syscall.SIGCONT)
	s.proc.signal(syscall.SIGTERM)
	if !s.proc.wait(30 * time.Second) {
		s.proc.kill()
	}
}

// wipe ends etcd, removes all it holds and starts it anew.
func (s *store) wipe() error {
	s.stop()
	if err := os.RemoveAll(s.dir); err != nil {
		return err
	}
	return s.start()
}

func (s *store) freeze() { s.proc.signal(syscall.SIGSTOP) }
func (s *store) thaw()   { s.proc.signal(syscall.SIGCONT) }
