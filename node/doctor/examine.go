package doctor

import (
	"fmt"
	"math"
	"strings"

	"github.com/p2pfs/p2pfs/rdma/devices"
	"github.com/p2pfs/p2pfs/rdma/verbs"
	"github.com/p2pfs/p2pfs/rdma/verbs/ib"
)

// Protocols that may be asked for.
const (
	ProtocolAuto = "auto" // RDMA where both ends have it, else TCP
	ProtocolRDMA = "rdma"
	ProtocolTCP  = "tcp"
)

// BuiltWithRDMA says whether this program can do RDMA.
const BuiltWithRDMA = ib.Built

// Config is what to look at, and what would be asked of it.
type Config struct {
	Protocol  string       // auto, rdma or tcp
	Want      devices.Want // of the RDMA devices
	Memory    int64        // bytes that RDMA would register
	CacheDirs []string     // absolute; need not exist

	Machine Machine
}

// Machine answers for the machine. Tests have their own.
type Machine struct {
	System    devices.System
	Built     bool
	Library   func() error             // loads libibverbs
	Memlock   func() (uint64, error)   // see devices.Memlock
	OpenFiles func() (uint64, error)   // the hard limit
	FUSE      func() (FUSE, []Problem) // tries a mount
	Disk      func(dir string) (Disk, []Problem)
}

// Host is the machine this process runs on.
func Host() Machine {
	return Machine{
		System: devices.Host(), Built: BuiltWithRDMA, Library: loadLibrary, Memlock: devices.Memlock, OpenFiles: openFiles,
		FUSE: lookAtFUSE, Disk: lookAtDisk,
	}
}

// Validate says what is wrong with what was asked for.
func (c Config) Validate() error {
	switch c.Protocol {
	case ProtocolAuto, ProtocolRDMA, ProtocolTCP:
	default:
		return fmt.Errorf("unknown protocol %q: want %s, %s or %s", c.Protocol, ProtocolAuto, ProtocolRDMA, ProtocolTCP)
	}
	if c.Want.GIDIndex < devices.AnyGID {
		return fmt.Errorf("a GID index is 0 or more, not %d", c.Want.GIDIndex)
	}
	return nil
}

// Examine looks at everything. It fails only where it cannot look.
func Examine(c Config) (Report, error) {
	if err := c.Validate(); err != nil {
		return Report{}, err
	}
	r := Report{Problems: []Problem{}, Disks: []Disk{}}
	limits, err := c.Machine.limits()
	if err != nil {
		return Report{}, err
	}
	r.Limits = limits
	if err := r.examineRDMA(c); err != nil {
		return Report{}, err
	}
	var problems []Problem
	r.FUSE, problems = c.Machine.FUSE()
	r.Problems = append(r.Problems, problems...)
	if r.Limits.OpenFiles >= 0 && r.Limits.OpenFiles < fewFiles {
		r.Problems = append(r.Problems, flaw(
			FewFiles, "", fmt.Sprintf("only %d files may be open at once", r.Limits.OpenFiles),
			"raise the hard limit (ulimit -Hn 65536, LimitNOFILE=65536 in a systemd unit)",
		))
	}
	for _, dir := range c.CacheDirs {
		d, problems := c.Machine.Disk(dir)
		r.Disks = append(r.Disks, d)
		r.Problems = append(r.Problems, problems...)
	}
	return r, nil
}

// fewFiles is a limit that a node with many readers and peers comes near to.
const fewFiles = 4096

func (m Machine) limits() (Limits, error) {
	lock, err := m.Memlock()
	if err != nil {
		return Limits{}, err
	}
	files, err := m.OpenFiles()
	if err != nil {
		return Limits{}, err
	}
	return Limits{Memlock: signed(lock), OpenFiles: signed(files)}, nil
}

// signed turns the kernel's way to say "no limit" into -1.
func signed(n uint64) int64 {
	if n > math.MaxInt64 {
		return -1
	}
	return int64(n)
}

func loadLibrary() error {
	_, err := ib.Load()
	return err
}

// examineRDMA lists the devices and decides what blocks would be moved by.
func (r *Report) examineRDMA(c Config) error {
	all, err := c.Machine.System.Devices()
	if err != nil {
		return err
	}
	r.RDMA = RDMA{Built: c.Machine.Built, Devices: newDevices(all), Rails: []Rail{}}
	var found []Problem
	if p, ok := r.program(c.Machine); ok {
		found = append(found, p)
	}
	choice := devices.Choose(all, c.Want)
	found = append(found, choice.Problems...)
	if p, bad := devices.CheckMemlock(limit(r.Limits.Memlock), uint64(c.Memory)); bad && len(choice.Rails) > 0 {
		found = append(found, p)
	}
	if _, _, err := verbs.Share(c.Memory, choice.Rails); err != nil && len(choice.Rails) > 0 {
		found = append(found, fault(devices.SmallMemory, "", err.Error(), "give a larger --rdma-memory, or name fewer devices by --rdma-device"))
	}
	usable := len(choice.Rails) > 0 && choice.Err() == nil && !anyFatal(found, devices.SmallMemlock, devices.SmallMemory, NotBuilt, NoLibrary)
	for _, rail := range choice.Rails {
		g := rail.GID()
		r.RDMA.Rails = append(r.RDMA.Rails, Rail{Name: rail.Name(), GID: newGID(g), MTU: rail.MTU, NUMA: rail.NUMA, Why: why(rail, c.Want)})
	}
	r.decide(c, usable, found)
	for _, p := range found {
		// What RDMA lacks stops only those who will not do without.
		p.Fatal = p.Fatal && c.Protocol == ProtocolRDMA
		if c.Protocol != ProtocolTCP {
			r.Problems = append(r.Problems, p)
		}
	}
	return nil
}

// program says why this program cannot do RDMA, whatever the devices.
func (r *Report) program(m Machine) (Problem, bool) {
	if !m.Built {
		return fault(
			NotBuilt, "", "this program was built without RDMA",
			"install libibverbs-dev, librdmacm-dev and gcc where it is built, and run make",
		), true
	}
	err := m.Library()
	if err == nil {
		r.RDMA.Library = "loaded"
		return Problem{}, false
	}
	r.RDMA.Library = err.Error()
	return fault(
		NoLibrary, "", "libibverbs cannot be loaded: "+err.Error(),
		"install libibverbs1 and ibverbs-providers (Debian, Ubuntu) or libibverbs (Red Hat)",
	), true
}

func (r *Report) decide(c Config, usable bool, found []Problem) {
	switch {
	case c.Protocol == ProtocolTCP:
		r.Protocol, r.Reason = ProtocolTCP, "it was asked for"
	case usable:
		var names []string
		for _, rail := range r.RDMA.Rails {
			names = append(names, rail.Name)
		}
		r.Protocol, r.Reason = ProtocolRDMA, "over "+strings.Join(names, ", ")+"; over TCP with nodes that cannot be reached so"
	default:
		r.Protocol, r.Reason = ProtocolTCP, "RDMA cannot be used here"
		for _, p := range found {
			if p.Fatal {
				r.Reason = strings.TrimPrefix(p.Where+": ", ": ") + p.What
				break
			}
		}
		if c.Protocol == ProtocolRDMA {
			r.Protocol = "none"
		}
	}
}

// why says what spoke for the GID that a rail would use.
func why(r devices.Rail, w devices.Want) string {
	g := r.GID()
	switch {
	case w.GIDIndex != devices.AnyGID:
		return "its index was asked for"
	case len(r.GIDs) == 1:
		return "the port has no other"
	case g.Type == devices.TypeIB:
		return "InfiniBand: the first one"
	case !g.Routable():
		return fmt.Sprintf("link-local, %s: the port has no routable one", g.Type)
	}
	return fmt.Sprintf("routable, %s", g.Type)
}

func anyFatal(all []Problem, codes ...devices.Code) bool {
	for _, p := range all {
		for _, code := range codes {
			if p.Code == code && p.Fatal {
				return true
			}
		}
	}
	return false
}

// limit is a Limits field as devices counts.
func limit(n int64) uint64 {
	if n < 0 {
		return devices.Unlimited
	}
	return uint64(n)
}
