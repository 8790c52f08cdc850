package netlab

import (
	"errors"
	"os/exec"
	"runtime"
	"slices"
	"sync"
	"syscall"
	"time"
)

var errClosed = errors.New("the lab is closed")

// spawner starts every process of a lab from one thread that lives as long as
// the lab: the kernel sends a process its death signal when the thread that
// made it ends, which for that of an ordinary goroutine is any time.
type spawner struct {
	work chan func()

	mu     sync.Mutex
	closed bool
	procs  []*Process
}

func newSpawner() *spawner {
	s := &spawner{work: make(chan func())}
	go func() {
		runtime.LockOSThread()
		for f := range s.work {
			f()
		}
	}()
	return s
}

func (s *spawner) start(cmd *exec.Cmd, holder bool) (*Process, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, errClosed
	}
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Setpgid = true
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	started := make(chan error)
	s.work <- func() { started <- cmd.Start() }
	if err := <-started; err != nil {
		return nil, err
	}
	p := &Process{cmd: cmd, holder: holder, ended: make(chan struct{})}
	s.procs = append(s.procs, p)
	go func() {
		p.err = cmd.Wait()
		p.when = time.Now()
		close(p.ended)
	}()
	return p, nil
}

func (s *spawner) all() []*Process {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.procs)
}

// close ends the thread, and with it whatever still lives.
func (s *spawner) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		s.closed = true
		close(s.work)
	}
}

// Process runs in a lab. It is waited for by the lab.
type Process struct {
	cmd    *exec.Cmd
	holder bool // it keeps a namespace, and does nothing

	ended chan struct{} // closed when it has been waited for
	err   error         // what follows is valid once ended is closed
	when  time.Time
}

// Done is closed when the process has ended.
func (p *Process) Done() <-chan struct{} { return p.ended }

// Err returns, once the process has ended, why it failed.
func (p *Process) Err() error { return p.err }

// Ended returns, once the process has ended, when that was.
func (p *Process) Ended() time.Time { return p.when }

// PID of the process.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Kill kills the process and those it started, and returns when it has ended.
func (p *Process) Kill() { p.end(0) }

func (p *Process) alive() bool {
	select {
	case <-p.ended:
		return false
	default:
		return true
	}
}

func (p *Process) terminate() {
	if p.alive() {
		_ = p.cmd.Process.Signal(syscall.SIGCONT)
		_ = p.cmd.Process.Signal(syscall.SIGTERM)
	}
}

// end gives the process so long to end by itself, and kills its group.
func (p *Process) end(within time.Duration) {
	if within > 0 {
		select {
		case <-p.ended:
			return
		case <-time.After(within):
		}
	}
	if p.alive() {
		_ = syscall.Kill(-p.PID(), syscall.SIGKILL)
		<-p.ended
	}
}
