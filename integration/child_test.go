package integration

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"runtime/pprof"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
)

// childEnv makes the test binary one of the readers below instead of tests.
// They read as Go programs do: signalled by their own run time all the time.
const childEnv = "P2PFS_TEST_CHILD"

// child is the command of one of our readers.
func child(mode string, args ...string) *exec.Cmd {
	self, err := os.Executable()
	if err != nil {
		panic(err)
	}
	cmd := exec.Command(self, args...)
	cmd.Env = append(os.Environ(), childEnv+"="+mode)
	return cmd
}

func childMain(mode string, args []string) int {
	modes := map[string]func([]string) error{"pressed": readPressed, "fault": readFaulting, "posixtest": posixtests, "agent": agentMain, "stopper": stopperMain, "writer": writerMain, "round-writer": roundWriterMain, "round-reader": roundReaderMain}
	if err := modes[mode](args); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// readPressed reads PATH with plain read(2) while it collects garbage without
// end and is profiled, and prints the digest and how often EINTR was seen.
func readPressed(args []string) error {
	stop := make(chan struct{})
	var wg sync.WaitGroup
	defer wg.Wait()
	defer close(stop)
	for range 4 {
		wg.Go(func() {
			var keep [][]byte
			for {
				select {
				case <-stop:
					return
				default:
				}
				if keep = append(keep, make([]byte, 64<<10)); len(keep) > 64 {
					keep = nil
					runtime.GC()
				}
			}
		})
	}
	runtime.SetCPUProfileRate(1000) // StartCPUProfile complains and keeps it
	if err := pprof.StartCPUProfile(io.Discard); err != nil {
		return err
	}
	defer pprof.StopCPUProfile()

	fd, err := syscall.Open(args[0], syscall.O_RDONLY|syscall.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open: %w", err)
	}
	defer syscall.Close(fd)
	h, buf, interrupted := sha256.New(), make([]byte, 256<<10), 0
	for {
		n, err := syscall.Read(fd, buf)
		if errors.Is(err, syscall.EINTR) {
			interrupted++
			continue
		}
		if err != nil {
			return fmt.Errorf("read: %w", err)
		}
		if n == 0 {
			break
		}
		h.Write(buf[:n])
	}
	fmt.Printf("%x %d\n", h.Sum(nil), interrupted)
	return nil
}

// readFaulting maps PATH shared, lets THREADS threads fault all of its pages
// in random order, with MADV_RANDOM if ADVICE is "random", and prints the
// digest of the mapping.
func readFaulting(args []string) error {
	threads, err := strconv.Atoi(args[1])
	if err != nil {
		return err
	}
	f, err := os.Open(args[0])
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	data, err := syscall.Mmap(int(f.Fd()), 0, int(info.Size()), syscall.PROT_READ, syscall.MAP_SHARED)
	if err != nil {
		return fmt.Errorf("mmap: %w", err)
	}
	if args[2] == "random" {
		if err := syscall.Madvise(data, syscall.MADV_RANDOM); err != nil {
			return fmt.Errorf("madvise: %w", err)
		}
	}
	if err := faultAll(data, threads); err != nil {
		return err
	}
	fmt.Printf("%x\n", sha256.Sum256(data))
	return nil
}

func faultAll(data []byte, threads int) error {
	const page = 4096
	pages := rand.New(rand.NewPCG(1, 2)).Perm((len(data) + page - 1) / page)
	var next, sum atomic.Int64
	failures := make(chan error, threads)
	for range threads {
		go func() {
			defer func() {
				if r := recover(); r != nil {
					failures <- fmt.Errorf("fault: %v", r)
					return
				}
				failures <- nil
			}()
			debug.SetPanicOnFault(true)
			runtime.LockOSThread()
			for {
				i := int(next.Add(1)) - 1
				if i >= len(pages) {
					return
				}
				sum.Add(int64(data[pages[i]*page]))
			}
		}()
	}
	var err error
	for range threads {
		err = errors.Join(err, <-failures)
	}
	return err
}
