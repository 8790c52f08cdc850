package devices

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strconv"
	"strings"
)

// AnyGID leaves the choice of GIDs to Choose.
const AnyGID = -1

// Want is what the administrator asked for.
type Want struct {
	// Devices are names of devices (mlx5_0) or ports (mlx5_0:1); none: all.
	// Rails come in their order.
	Devices []string
	// GIDIndex is the GID to use on every port; AnyGID: the best. The zero
	// Want asks for index 0: use AnyGID.
	GIDIndex int
}

// A Rail is a port that can be used, with the addresses it can be used by.
type Rail struct {
	Device string    `json:"device"`
	Verbs  string    `json:"verbs"` // as of Device
	Port   int       `json:"port"`
	Link   LinkLayer `json:"link"`
	MTU    int       `json:"mtu"`  // as of Port; 0 if unknown
	LID    int       `json:"lid"`  // as of Port
	NUMA   int       `json:"numa"` // as of Device
	GIDs   []GID     `json:"gids"` // at least one, the best first
}

// Name is how flags and messages name the rail: mlx5_0:1.
func (r Rail) Name() string { return portName(r.Device, r.Port) }

// GID is the best of its addresses.
func (r Rail) GID() GID { return r.GIDs[0] }

func portName(device string, port int) string { return device + ":" + strconv.Itoa(port) }

// A Choice is what can be used, and what stands in the way of the rest.
type Choice struct {
	Rails    []Rail    // in the order in which to use them
	Problems []Problem // what the administrator should know
	Passed   []Problem // why the other ports are no rails; some are among Problems too
}

// Err says why there is no rail: the problems that are fatal. Nil if there is
// a rail and everything that was asked for by name can be used.
func (c Choice) Err() error {
	var fatal []Problem
	for _, p := range c.Problems {
		if p.Fatal && (len(c.Rails) == 0 || p.Code == UnknownDevice || p.Code == BadGIDIndex) {
			fatal = append(fatal, p)
		}
	}
	return join(fatal)
}

// Choose picks the ports that can be used and orders each one's GIDs. Without
// names in w it passes over what does not work in silence, as long as
// something does: a machine has ports that nobody ever plugged in.
func Choose(all []Device, w Want) Choice {
	var c Choice
	if len(all) == 0 {
		c.Problems = append(c.Problems, noDevice())
		return c
	}
	picked, unknown := pick(all, w.Devices)
	c.Problems = append(c.Problems, unknown...)
	for _, p := range picked {
		r, problems, ok := use(p, w.GIDIndex)
		if ok {
			c.Rails = append(c.Rails, r)
			c.Problems = append(c.Problems, problems...)
		} else {
			c.Passed = append(c.Passed, problems...)
		}
	}
	c.Passed = unique(c.Passed)
	if len(w.Devices) > 0 || len(c.Rails) == 0 || w.GIDIndex != AnyGID {
		c.Problems = append(c.Problems, c.Passed...)
	}
	if len(w.Devices) == 0 {
		slices.SortStableFunc(c.Rails, func(a, b Rail) int { return cmp.Compare(quality(a.GID(), a.Link), quality(b.GID(), b.Link)) })
	}
	c.Problems = append(c.Problems, unequalMTU(c.Rails)...)
	return c
}

type candidate struct {
	device Device
	port   Port
}

// pick returns the ports that names mean, in their order, each once.
func pick(all []Device, names []string) (out []candidate, unknown []Problem) {
	if len(names) == 0 {
		for _, d := range all {
			for _, p := range d.Ports {
				out = append(out, candidate{d, p})
			}
		}
		return out, nil
	}
	taken := map[string]bool{}
	for _, name := range names {
		found := false
		for _, d := range all {
			for _, p := range d.Ports {
				full := portName(d.Name, p.Number)
				if name != d.Name && name != full {
					continue
				}
				found = true
				if !taken[full] {
					out = append(out, candidate{d, p})
				}
				taken[full] = true
			}
		}
		if !found {
			unknown = append(unknown, unknownDevice(name, all))
		}
	}
	return out, unknown
}

// use decides about one port: a rail, with what is not perfect about it, or
// why it is none.
func use(c candidate, index int) (Rail, []Problem, bool) {
	d, p := c.device, c.port
	name := portName(d.Name, p.Number)
	if d.Kind == KindRNIC {
		// Its connections are made by rdma_cm alone; ours are made by hand.
		return Rail{}, []Problem{{IWARP, d.Name, "iWARP is not supported: blocks go over TCP", "use a device that speaks InfiniBand or RoCE", true}}, false
	}
	if d.Verbs == "" {
		return Rail{}, []Problem{{NoVerbs, d.Name, "the kernel offers no access to this device for programs", "load the module for it: modprobe ib_uverbs", true}}, false
	}
	if d.OpenError != nil {
		return Rail{}, []Problem{mayNotOpen(d)}, false
	}
	if !p.Active() {
		return Rail{}, []Problem{inactive(name, p)}, false
	}
	gids := slices.Clone(p.GIDs)
	if index != AnyGID {
		gids = slices.DeleteFunc(gids, func(g GID) bool { return g.Index != index })
		if len(gids) == 0 {
			return Rail{}, []Problem{badIndex(name, index, p)}, false
		}
	}
	if len(gids) == 0 {
		return Rail{}, []Problem{{NoGID, name, "the port has no GID", "give its network interface an address, as in: ip addr add 192.0.2.1/24 dev " + orWord(p.Netdev, "NETDEV"), true}}, false
	}
	SortGIDs(gids, p.Link)
	r := Rail{Device: d.Name, Verbs: d.Verbs, Port: p.Number, Link: p.Link, MTU: p.MTU, LID: p.LID, NUMA: d.NUMA, GIDs: gids}
	return r, imperfect(r, p), true
}

// imperfect lists what works, but not as well as it could.
func imperfect(r Rail, p Port) (out []Problem) {
	if r.Link == LinkEthernet && !r.GID().Routable() {
		out = append(out, Problem{
			LinkLocalOnly, r.Name(), "its GIDs are link-local: only nodes on the same link reach it",
			"give its network interface a routable address, as in: ip addr add 192.0.2.1/24 dev " + orWord(p.Netdev, "NETDEV"), false,
		})
	}
	if r.MTU > 0 && r.MTU < 4096 && r.Link == LinkEthernet {
		out = append(out, Problem{
			SmallMTU, r.Name(), fmt.Sprintf("the interface's MTU of %d bytes leaves room for RDMA packets of %d only", p.NetMTU, r.MTU),
			fmt.Sprintf("set 4200 bytes or more on it, on the switch and on all nodes: ip link set %s mtu 9000", orWord(p.Netdev, "NETDEV")), false,
		})
	}
	return out
}

func noDevice() Problem {
	return Problem{
		NoDevice, "", "this machine has no RDMA device",
		"install the card's driver and rdma-core, give the container /dev/infiniband, or make a software one: rdma link add rxe0 type rxe netdev NETDEV", true,
	}
}

func unknownDevice(name string, all []Device) Problem {
	var names []string
	for _, d := range all {
		for _, p := range d.Ports {
			names = append(names, portName(d.Name, p.Number))
		}
	}
	return Problem{UnknownDevice, name, "there is no such RDMA device", "name one of " + strings.Join(names, ", "), true}
}

func mayNotOpen(d Device) Problem {
	p := Problem{
		NoPermission, d.Name, fmt.Sprintf("%s cannot be opened (%v)", d.Verbs, d.OpenError),
		"make the file readable and writable for the user p2pfs runs as: chmod 666 " + d.Verbs, true,
	}
	if errors.Is(d.OpenError, fs.ErrNotExist) {
		p.Fix = "give the container this file: docker run --device /dev/infiniband, or run udev"
	}
	return p
}

func inactive(name string, p Port) Problem {
	fix := "plug in its cable and set its network interface up: ip link set " + orWord(p.Netdev, "NETDEV") + " up"
	if p.Link == LinkInfiniBand {
		fix = "plug in its cable and run a subnet manager in the fabric (opensm), then look at ibstat"
	}
	return Problem{NoActivePort, name, fmt.Sprintf("the port is not active (%s, %s)", orWord(p.State, "state unknown"), orWord(p.Physical, "link unknown")), fix, true}
}

func badIndex(name string, index int, p Port) Problem {
	var have []string
	for _, g := range p.GIDs {
		have = append(have, fmt.Sprintf("%d (%s %s)", g.Index, g.Type, g.IP()))
	}
	fix := "leave --gid-index out, or give one of " + strings.Join(have, ", ")
	if len(have) == 0 {
		fix = "leave --gid-index out, and give the port's network interface an address"
	}
	return Problem{BadGIDIndex, name, fmt.Sprintf("there is no GID with index %d", index), fix, true}
}

// unequalMTU says which rails of this machine have a smaller MTU than others.
func unequalMTU(rails []Rail) (out []Problem) {
	most := 0
	for _, r := range rails {
		most = max(most, r.MTU)
	}
	for _, r := range rails {
		if r.MTU > 0 && r.MTU < most {
			out = append(out, mtuMismatch(r.Name(), r.MTU, most, "another rail"))
		}
	}
	return out
}

func mtuMismatch(where string, mine, theirs int, who string) Problem {
	return Problem{
		MTUMismatch, where, fmt.Sprintf("its MTU of %d bytes is not that of %s, %d: the smaller one is used", mine, who, theirs),
		"set the same MTU on both ends and on the switch between them", false,
	}
}

// unique drops repetitions: two ports of a device that may not be opened.
func unique(all []Problem) []Problem {
	seen := map[Problem]bool{}
	return slices.DeleteFunc(all, func(p Problem) bool {
		again := seen[p]
		seen[p] = true
		return again
	})
}

func orWord(s, otherwise string) string {
	if s == "" {
		return otherwise
	}
	return s
}
