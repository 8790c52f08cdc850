package devices

import (
	"fmt"
	"net/netip"
)

// A Device is an RDMA device as the kernel shows it.
type Device struct {
	Name      string   // as in mlx5_0, rxe0
	Verbs     string   // character device that programs open, as in /dev/infiniband/uverbs0; "" if there is none
	OpenError error    // why this process may not open Verbs; nil if it may
	Kind      NodeKind // what sort of device it is
	Driver    string   // kernel driver of the card, as in mlx5_core; "" for those made in software
	Firmware  string   // "" if it tells none
	NUMA      int      // memory node the card is attached to; -1: unknown or none
	Ports     []Port   // by number
}

// NodeKind is what sort of device it is.
type NodeKind string

const (
	KindCA    NodeKind = "CA"   // InfiniBand or RoCE
	KindRNIC  NodeKind = "RNIC" // iWARP: RDMA over TCP
	KindOther NodeKind = "other"
)

// A Port is one port of a device.
type Port struct {
	Number   int       // from 1
	State    string    // ACTIVE, DOWN, INIT, ARMED, ...
	Physical string    // LinkUp, Disabled, Polling, ...
	Link     LinkLayer // what it is connected to
	Rate     string    // as the kernel says it: "100 Gb/sec (4X EDR)"
	LID      int       // InfiniBand's local address; 0: none
	Netdev   string    // network interface of the port; "" if unknown
	// NetMTU is the interface's MTU in bytes, 0 if unknown; MTU is the largest
	// RDMA message part that fits it (256 to 4096 bytes), 0 if unknown. The
	// device itself, once opened, knows better.
	NetMTU int
	MTU    int
	GIDs   []GID // those that are set, by index
}

// Active says whether the port carries data.
func (p Port) Active() bool { return p.State == "ACTIVE" }

// LinkLayer is what a port is connected to.
type LinkLayer string

const (
	LinkInfiniBand LinkLayer = "InfiniBand"
	LinkEthernet   LinkLayer = "Ethernet"
	LinkUnknown    LinkLayer = "Unspecified"
)

// A GID is an address of a port.
type GID struct {
	Index  int        // its place in the port's table
	Addr   netip.Addr // 16 bytes; an IPv4 address is in its IPv6 form, ::ffff:a.b.c.d
	Type   GIDType
	Netdev string // interface it was made for; "" if none
	// Bits is how many leading bits of Addr all of its subnet share, counted
	// as in IPv6; 0: unknown.
	Bits int
}

// GIDType is the wire format that goes with a GID.
type GIDType string

const (
	TypeIB     GIDType = "IB"
	TypeRoCEv1 GIDType = "RoCE v1"
	TypeRoCEv2 GIDType = "RoCE v2"
	TypeIWARP  GIDType = "iWARP"
)

// IP returns the address as the network interface has it: IPv4 if it is one.
func (g GID) IP() netip.Addr { return g.Addr.Unmap() }

// Routable says whether the address means something beyond one link.
func (g GID) Routable() bool {
	ip := g.IP()
	return ip.IsValid() && !ip.IsLinkLocalUnicast() && !ip.IsUnspecified() && !ip.IsLoopback()
}

func (g GID) String() string { return fmt.Sprintf("%s (%s, index %d)", g.IP(), g.Type, g.Index) }
