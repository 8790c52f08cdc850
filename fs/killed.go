package fs

import (
	"bytes"
	"errors"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// Who is killed in the middle of writing does not close: the kernel does, in
// the name of the process, and each such close looks like one that the program
// made. Only /proc tells a process that is killed from one that ends by itself
// without having closed, as a command does whose output a shell redirected.
//
// The last close of a handle decides over what no close has published. Was it
// by a process that is being killed, the file is broken: it loses its name to
// what is published under it, and what was written is left to be recovered. As
// long as another process has the descriptor, or another handle may write, the
// closes of those decide.
//
// A handle that was never closed was given to nobody: its caller was killed
// inside open, or the open failed at last. That it made a file, or cut one to
// nothing, is then not published either. Mappings and descriptors of children
// that outlive the opener's are no such handles.

// parting is how a descriptor of a handle was last closed.
type parting uint8

const (
	partedNever  parting = iota
	partedKilled         // by a process that is being killed
	partedOpener         // by the process that opened it
	partedOther          // by one that has it from there
)

// shut records a close and reports whether the process is being killed, so that
// it decides nothing. Nobody is asked when there is nothing to decide.
func (s *staged) shut(m *marks, opener bool, killed func() bool) bool {
	s.mu.Lock()
	changed := s.seq > s.done
	s.mu.Unlock()
	dead := changed && killed()
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case dead:
		m.parted = partedKilled
		return true
	case opener:
		m.parted = partedOpener
	default:
		m.parted = partedOther
	}
	m.closed = s.seq
	return false
}

// mappedSince reports whether the file was changed through a mapping that was
// not gone when the opener closed its descriptor, the last one.
func (s *staged) mappedSince(m *marks) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return m.parted == partedOpener && s.mapped > max(m.closed, s.done)
}

// legacy is what is to become of the changes that a handle leaves.
type legacy uint8

const (
	legacyNone    legacy = iota // there are none, or others decide
	legacyPublish               // they are published
	legacyBroken                // they are not
)

// leave counts one handle less. killed says that its last user, the opener, was
// killed after having closed the descriptor.
func (s *staged) leave(m *marks, killed bool) legacy {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.writers--
	last, own := max(s.done, s.told), max(m.wrote, m.bare)
	mine := own > last || s.mapped > max(last, s.path)
	broken := killed || m.parted == partedKilled || m.parted == partedNever && m.wrote == 0 && m.bare > 0
	if broken && mine {
		s.broke = s.seq
	}
	switch {
	case s.seq <= last:
		return legacyNone
	case own > last && !broken:
		return legacyPublish
	case s.writers > 0:
		return legacyNone
	case s.broke > last:
		return legacyBroken
	}
	return legacyPublish
}

// breakFile takes the name from a file whose writer was killed.
func (f *FS) breakFile(n *inode, s *staged) {
	dir, e := f.table.where(n)
	if !s.write.Break() {
		return
	}
	f.table.forsake(n, s)
	f.notifier.push(notice{kind: noticeEntry, dir: dir, name: e.Name})
	f.log.Warn("a file is not published: who wrote it was killed; p2pfs recover has what was written", "name", e.Name)
}

// forsake makes nobody open an inode any more, whose file has lost its name.
func (t *table) forsake(n *inode, s *staged) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s.broken = true
	t.unname(n)
}

// killedThread reports whether a thread is ending because its process is being
// killed by a signal. One that cannot be seen from here is not.
func killedThread(tid uint32) bool {
	id := strconv.FormatUint(uint64(tid), 10)
	return tid != 0 && killedIn("/proc/"+id+"/", "/proc/"+id+"/task/"+id+"/")
}

// killedProcess is killedThread for a process, also when it has ended already
// and nobody has waited for it.
func killedProcess(tgid uint32) bool {
	dir := "/proc/" + strconv.FormatUint(uint64(tgid), 10) + "/"
	return tgid != 0 && killedIn(dir, dir)
}

// killedIn looks into directories of /proc. Who is in the middle of execve also
// closes descriptors, and whoever reads its stat waits until it has, which would
// be for us. It has memory, unlike who is ending.
func killedIn(process, thread string) bool {
	memory, err := readProc(process + "statm")
	if err != nil || !bytes.HasPrefix(memory, []byte("0 ")) {
		return false
	}
	stat, err := os.ReadFile(thread + "stat")
	return err == nil && parseKilled(stat)
}

// readProc reads the first 256 bytes of a file: os.ReadFile asks the poller for each
// file, which costs more than the rest, and every open for writing and close of a
// written file comes here.
func readProc(path string) ([]byte, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	line := make([]byte, 256)
	for {
		n, err := unix.Read(fd, line)
		if !errors.Is(err, unix.EINTR) {
			return line[:max(n, 0)], err
		}
	}
}

// Fields of /proc/<pid>/stat, counted from the one after the name, and what is
// in them.
const (
	statFlags    = 9 - 3
	statExitCode = 52 - 3
	flagExiting  = 0x4  // PF_EXITING: a stopped thread shows a signal as well
	exitSignal   = 0x7f // bits of the signal in the form of waitpid
)

// parseKilled reads a line of /proc/<pid>/stat. The exit code is set before the
// descriptors are closed, and 0 where we may not look into the process.
func parseKilled(stat []byte) bool {
	i := bytes.LastIndexByte(stat, ')') // the name may have anything in it
	if i < 0 {
		return false
	}
	fields := bytes.Fields(stat[i+1:])
	if len(fields) <= statExitCode {
		return false
	}
	flags, err := strconv.ParseUint(string(fields[statFlags]), 10, 64)
	if err != nil {
		return false
	}
	code, err := strconv.ParseInt(string(fields[statExitCode]), 10, 64)
	return err == nil && flags&flagExiting != 0 && code&exitSignal != 0
}
