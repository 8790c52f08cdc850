package doctor

import (
	"github.com/p2pfs/p2pfs/rdma/devices"
)

// Report is what there is and what is wrong with it.
type Report struct {
	Protocol string    `json:"protocol"` // what blocks would be moved by: rdma or tcp
	Reason   string    `json:"reason"`   // why
	RDMA     RDMA      `json:"rdma"`
	FUSE     FUSE      `json:"fuse"`
	Limits   Limits    `json:"limits"`
	Disks    []Disk    `json:"disks"`
	Problems []Problem `json:"problems"`
}

// A Problem is what is wrong, and what to do about it. One that is fatal makes
// what was asked for impossible.
type Problem = devices.Problem

// Codes of problems that are not of RDMA devices.
const (
	NotBuilt     devices.Code = "rdma-not-built"
	NoLibrary    devices.Code = "no-libibverbs"
	NoFUSE       devices.Code = "no-fuse"
	NoFusermount devices.Code = "no-fusermount3"
	FewFiles     devices.Code = "few-open-files"
	BadCacheDir  devices.Code = "bad-cache-dir"
	FarCacheDir  devices.Code = "far-cache-dir"
	LittleRoom   devices.Code = "little-room"
)

// fault is a problem that makes what was asked for impossible; flaw is another.
func fault(code devices.Code, where, what, fix string) Problem {
	return Problem{Code: code, Where: where, What: what, Fix: fix, Fatal: true}
}

func flaw(code devices.Code, where, what, fix string) Problem {
	return Problem{Code: code, Where: where, What: what, Fix: fix}
}

// Fatal says whether something that was asked for cannot work.
func (r Report) Fatal() bool {
	for _, p := range r.Problems {
		if p.Fatal {
			return true
		}
	}
	return false
}

// RDMA is what there is of it.
type RDMA struct {
	Built   bool     `json:"built"`   // this program can do RDMA
	Library string   `json:"library"` // "loaded", or why libibverbs cannot be; "" if not built
	Devices []Device `json:"devices"`
	Rails   []Rail   `json:"rails"` // what would be used, in this order
}

// Device is a device for programs to read; see devices.Device.
type Device struct {
	Name     string `json:"name"`
	Kind     string `json:"kind"`
	Driver   string `json:"driver,omitempty"`
	Firmware string `json:"firmware,omitempty"`
	NUMA     int    `json:"numa"`
	Verbs    string `json:"verbs,omitempty"`
	Access   string `json:"access"` // "ok", or why not
	Ports    []Port `json:"ports"`
}

// Port is a port of a device; see devices.Port.
type Port struct {
	Number   int    `json:"number"`
	State    string `json:"state"`
	Physical string `json:"physical"`
	Link     string `json:"link_layer"`
	Rate     string `json:"rate,omitempty"`
	LID      int    `json:"lid"`
	Netdev   string `json:"netdev,omitempty"`
	NetMTU   int    `json:"netdev_mtu"`
	MTU      int    `json:"mtu"`
	GIDs     []GID  `json:"gids"`
}

// GID is an address of a port; see devices.GID.
type GID struct {
	Index    int    `json:"index"`
	GID      string `json:"gid"`
	IP       string `json:"ip"`
	Type     string `json:"type"`
	Netdev   string `json:"netdev,omitempty"`
	Routable bool   `json:"routable"`
}

// Rail is a port that would be used.
type Rail struct {
	Name string `json:"name"`
	GID  GID    `json:"gid"`
	MTU  int    `json:"mtu"`
	NUMA int    `json:"numa"`
	Why  string `json:"why"` // why this GID of the port's
}

// FUSE is what there is of it.
type FUSE struct {
	Device      string `json:"device"`      // "ok", or why it cannot be used
	Fusermount  string `json:"fusermount3"` // its path, "" if there is none
	Protocol    string `json:"protocol"`    // as in 7.41; "" if no mount was tried
	Passthrough string `json:"passthrough"` // "offered", or why the kernel will not read local files itself
}

// Limits are those of this process, Unlimited as -1.
type Limits struct {
	Memlock   int64 `json:"memlock_bytes"`
	OpenFiles int64 `json:"open_files"`
}

// Disk is where a cache directory lies.
type Disk struct {
	Dir        string `json:"dir"`
	FileSystem string `json:"file_system"`
	Free       int64  `json:"free_bytes"`
	Total      int64  `json:"total_bytes"`
	Reflink    bool   `json:"reflink"` // may share bytes between files
}

func newDevices(all []devices.Device) []Device {
	out := []Device{}
	for _, d := range all {
		access := "ok"
		switch {
		case d.Verbs == "":
			access = "ib_uverbs is not loaded"
		case d.OpenError != nil:
			access = d.OpenError.Error()
		}
		n := Device{
			Name: d.Name, Kind: string(d.Kind), Driver: d.Driver, Firmware: d.Firmware, NUMA: d.NUMA, Verbs: d.Verbs,
			Access: access, Ports: []Port{},
		}
		for _, p := range d.Ports {
			n.Ports = append(n.Ports, newPort(p))
		}
		out = append(out, n)
	}
	return out
}

func newPort(p devices.Port) Port {
	n := Port{
		Number: p.Number, State: p.State, Physical: p.Physical, Link: string(p.Link), Rate: p.Rate, LID: p.LID,
		Netdev: p.Netdev, NetMTU: p.NetMTU, MTU: p.MTU, GIDs: []GID{},
	}
	for _, g := range p.GIDs {
		n.GIDs = append(n.GIDs, newGID(g))
	}
	return n
}

func newGID(g devices.GID) GID {
	return GID{
		Index: g.Index, GID: g.Addr.StringExpanded(), IP: g.IP().String(), Type: string(g.Type), Netdev: g.Netdev,
		Routable: g.Routable(),
	}
}
