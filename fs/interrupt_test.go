package fs

import (
	"context"
	"os"
	"os/exec"
	"os/signal"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// A reader whose thread is signalled every 5 ms gets a block that takes far
// longer, by read(2), O_DIRECT and page faults.
func TestSignalsDoNotKeepASlowBlockFromArriving(t *testing.T) {
	t.Parallel()
	const size = 4096
	for _, c := range []struct {
		name  string
		flags int
		op    string
	}{
		{"read", 0, "storm"},
		{"direct", unix.O_DIRECT, "storm"},
		{"fault", 0, "stormfault"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			d := mountFakes(t)
			d.file("f", 1, size, shut)
			u := newUser(t, d)
			w := wish{Op: c.op, FD: u.open("f", c.flags), N: size}
			if c.op == "stormfault" {
				w.Map = u.mmap(w.FD, size, true, true)
			}
			got := make(chan error, 1)
			var s sight
			go func() { got <- u.try(w, &s) }()
			eventually(t, func() bool { return d.state().Reads > 0 }, "the read arrived")
			time.Sleep(700 * time.Millisecond) // the slow block
			d.on("gate", "f")                  // opens it
			require.NoError(t, <-got)
			require.Equal(t, wanted(1, 0, size), s.Sum)
			require.LessOrEqual(t, d.state().Reads, uint64(2), "it was not asked again and again")
		})
	}
}

func TestKilledReaderDiesSoon(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		flags int
		fault bool
	}{
		{"read", 0, false},
		{"direct", unix.O_DIRECT, false},
		{"fault", 0, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			d := mountFakes(t)
			d.file("f", 1, 4096, shut)
			u := newUser(t, d)
			w := wish{Op: "pread", FD: u.open("f", c.flags), N: 4096}
			if c.fault {
				w.Map, w.Op = u.mmap(w.FD, 4096, true, true), "look"
			}
			go func() { _ = u.try(w, nil) }()
			eventually(t, func() bool { return d.state().Reads > 0 }, "the read arrived")
			// A harmless signal first: the kernel tells only of that one.
			require.NoError(t, u.cmd.Process.Signal(syscall.SIGURG))
			time.Sleep(20 * time.Millisecond)
			start := time.Now()
			u.kill()
			require.Less(t, time.Since(start), diesWithin)
			d.on("gate", "f")
			newUser(t, d).cat("f", 1, 4096)
		})
	}
}

// diesWithin bounds how long a reader that was killed may stay, on a machine that
// is busy. One that is not let go stays for ever.
const diesWithin = 80 * time.Second

// The default action of these ends a process that does not handle them; the
// last one dumps core, which the kernel does not turn into a SIGKILL.
func TestSignalledReaderDiesSoon(t *testing.T) {
	t.Parallel()
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT} {
		d := mountFakes(t)
		d.file("f", 1, 4096, shut)
		// The tests may run where a hangup is ignored, as under nohup.
		cmd := exec.Command("env", "--default-signal", "dd", "if="+d.point+"/f", "of=/dev/null", "bs=4096", "iflag=direct", "status=none")
		cmd.Dir = t.TempDir() // for its core
		require.NoError(t, cmd.Start())
		ended := make(chan error, 1)
		go func() { ended <- cmd.Wait() }()
		eventually(t, func() bool { return d.state().Reads > 0 }, "the read arrived")
		require.NoError(t, cmd.Process.Signal(sig))
		select {
		case <-ended:
			require.Equal(t, sig, cmd.ProcessState.Sys().(syscall.WaitStatus).Signal())
		case <-time.After(diesWithin):
			t.Errorf("%v: still there", sig)
			_ = cmd.Process.Kill()
			<-ended
		}
	}
}

func TestDying(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, status string
		want         bool
	}{
		{"nothing pending", "State:\tS (sleeping)\nSigPnd:\t0000000000000000\nShdPnd:\t0000000000000000\n", false},
		{"killed", "State:\tD\nSigPnd:\t0000000000000100\n", true},
		{"killed, all blocked", "State:\tD\nShdPnd:\t0000000000000100\nSigBlk:\tffffffffffffffff\n", true},
		{"SIGTERM by default", "State:\tD\nShdPnd:\t0000000000004000\n", true},
		{"SIGTERM caught", "State:\tD\nShdPnd:\t0000000000004000\nSigCgt:\t0000000000004000\n", false},
		{"SIGTERM ignored", "State:\tD\nShdPnd:\t0000000000004000\nSigIgn:\t0000000000004000\n", false},
		{"SIGTERM blocked", "State:\tD\nSigPnd:\t0000000000004000\nSigBlk:\t0000000000004000\n", false},
		{"SIGURG", "State:\tD\nSigPnd:\t0000000000400000\n", false},
		{"SIGSTOP", "State:\tD\nSigPnd:\t0000000000040000\n", false},
		{"SIGPROF by default", "State:\tD\nSigPnd:\t0000000004000000\n", true},
		{"real-time by default", "State:\tD\nSigPnd:\t8000000000000000\n", true},
		{"zombie", "State:\tZ (zombie)\n", true},
		{"rubbish", "SigPnd\nState:\n:\nSigPnd:\tzz\n", false},
		{"empty", "", false},
	} {
		require.Equal(t, c.want, parseSignals([]byte(c.status)).dying(), c.name)
	}
}

func FuzzParseSignals(f *testing.F) {
	f.Add([]byte("State:\tS (sleeping)\nSigPnd:\t0000000000000100\n"))
	f.Fuzz(func(t *testing.T, status []byte) { parseSignals(status).dying() })
}

func TestFatalPendingOfRealThreads(t *testing.T) {
	t.Parallel()
	require.False(t, fatalPending(0))
	require.False(t, fatalPending(uint32(unix.Gettid())))
	require.True(t, fatalPending(1<<22+1), "above the largest pid there is")
	caught := make(chan os.Signal, 1)
	signal.Notify(caught, syscall.SIGUSR1)
	defer signal.Stop(caught)
	require.NoError(t, unix.Kill(os.Getpid(), syscall.SIGUSR1))
	require.False(t, fatalPending(uint32(os.Getpid())))
	<-caught // one that comes after the end of Notify would kill the tests
}

// newTestCall returns a call that is not tied to a mount.
func newTestCall(cancel <-chan struct{}, limit time.Duration, fatal func(uint32) bool) (*call, context.CancelFunc) {
	parent, stop := context.WithCancel(context.Background())
	return &call{parent: parent, cancel: cancel, tid: 7, deadline: time.Now().Add(limit), fatal: fatal}, stop
}

func TestCall(t *testing.T) {
	t.Parallel()
	t.Run("interrupts alone do not end it", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			cancel := make(chan struct{})
			var dying atomic.Bool
			var looks atomic.Int64
			c, stop := newTestCall(cancel, time.Minute, func(uint32) bool { looks.Add(1); return dying.Load() })
			defer stop()
			defer c.end()
			done := c.Done()
			time.Sleep(10 * time.Second)
			require.Zero(t, looks.Load(), "nobody was signalled")
			close(cancel)
			time.Sleep(time.Second)
			synctest.Wait()
			require.NoError(t, c.Err())
			require.GreaterOrEqual(t, looks.Load(), int64(10))
			dying.Store(true)
			time.Sleep(fatalPoll)
			synctest.Wait()
			<-done
			require.ErrorIs(t, c.Err(), context.Canceled)
		})
	})
	t.Run("its time is up", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			c, stop := newTestCall(nil, time.Minute, nil)
			defer stop()
			defer c.end()
			<-c.Done()
			require.ErrorIs(t, c.Err(), context.DeadlineExceeded)
		})
	})
	t.Run("the mount ends", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			c, stop := newTestCall(nil, time.Minute, nil)
			defer c.end()
			child, cancel := context.WithCancel(c)
			defer cancel()
			stop()
			<-child.Done()
			require.ErrorIs(t, c.Err(), context.Canceled)
		})
	})
	t.Run("end without a wait", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			c, stop := newTestCall(nil, time.Minute, nil)
			defer stop()
			require.NoError(t, c.Err())
			c.end()
			<-c.Done()
			require.ErrorIs(t, c.Err(), context.Canceled)
		})
	})
}
