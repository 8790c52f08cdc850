package integration

import (
	"fmt"
	"net"
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
	cmd := exec.Command("etcd", "--name", "it", "--data-dir", s.dir,
		"--listen-client-urls", client, "--advertise-client-urls", client,
		"--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", "it="+peer)
	cmd.Stdout, cmd.Stderr = log, log
	if s.proc, err = spawn(cmd); err != nil {
		return err
	}
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		if conn, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", s.client)); err == nil {
			return conn.Close()
		}
		if !s.proc.alive() {
			break
		}
	}
	return fmt.Errorf("etcd does not listen: %s", tail(s.dir+".log", 10))
}

func (s *store) stop() {
	if s.proc == nil {
		return
	}
	s.proc.signal(syscall.SIGCONT)
	s.proc.signal(syscall.SIGTERM)
	if !s.proc.wait(10 * time.Second) {
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

func anyPort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}
