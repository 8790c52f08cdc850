package devices

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// System is where the kernel shows its devices. Tests give another one.
type System struct {
	Sys string // usually /sys
	Dev string // usually /dev
	// Addrs returns the addresses of a network interface; nil if unknown.
	Addrs func(netdev string) []netip.Prefix
}

// Host is this machine.
func Host() System { return System{Sys: "/sys", Dev: "/dev", Addrs: addrs} }

// addrs asks the kernel for an interface's addresses. An interface that has
// gone has none.
func addrs(netdev string) []netip.Prefix {
	i, err := net.InterfaceByName(netdev)
	if err != nil {
		return nil
	}
	all, err := i.Addrs()
	if err != nil {
		return nil
	}
	var out []netip.Prefix
	for _, a := range all {
		if p, err := netip.ParsePrefix(a.String()); err == nil {
			out = append(out, p)
		}
	}
	return out
}

// Devices returns the RDMA devices, by name; none if the kernel has no RDMA.
// A device that goes away meanwhile is left out.
func (s System) Devices() ([]Device, error) {
	class := filepath.Join(s.Sys, "class", "infiniband")
	entries, err := os.ReadDir(class)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list the RDMA devices: %w", err)
	}
	verbs := s.verbs()
	var out []Device
	for _, e := range entries {
		d, err := s.device(class, e.Name())
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("read the RDMA device %s: %w", e.Name(), err)
		}
		if d.Verbs = verbs[d.Name]; d.Verbs != "" {
			d.OpenError = mayOpen(d.Verbs)
		}
		out = append(out, d)
	}
	return out, nil
}

// verbs returns the character device of each RDMA device.
func (s System) verbs() map[string]string {
	class := filepath.Join(s.Sys, "class", "infiniband_verbs")
	entries, err := os.ReadDir(class)
	if err != nil {
		return nil // the kernel's ib_uverbs is not loaded
	}
	out := map[string]string{}
	for _, e := range entries {
		if name := line(filepath.Join(class, e.Name(), "ibdev")); name != "" {
			out[name] = filepath.Join(s.Dev, "infiniband", e.Name())
		}
	}
	return out
}

func mayOpen(path string) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	return f.Close()
}

func (s System) device(class, name string) (Device, error) {
	dir := filepath.Join(class, name)
	kind, err := os.ReadFile(filepath.Join(dir, "node_type"))
	if err != nil {
		return Device{}, err
	}
	d := Device{
		Name: name, Kind: nodeKind(string(kind)), Firmware: line(filepath.Join(dir, "fw_ver")),
		NUMA: number(filepath.Join(dir, "device", "numa_node"), -1),
	}
	if target, err := os.Readlink(filepath.Join(dir, "device", "driver")); err == nil {
		d.Driver = filepath.Base(target)
	}
	ports, err := os.ReadDir(filepath.Join(dir, "ports"))
	if err != nil {
		return Device{}, err
	}
	for _, e := range ports {
		if n, err := strconv.Atoi(e.Name()); err == nil {
			d.Ports = append(d.Ports, s.port(filepath.Join(dir, "ports", e.Name()), n, d.Kind))
		}
	}
	slices.SortFunc(d.Ports, func(a, b Port) int { return a.Number - b.Number })
	return d, nil
}

func (s System) port(dir string, n int, kind NodeKind) Port {
	p := Port{
		Number: n, State: afterColon(line(filepath.Join(dir, "state"))), Physical: afterColon(line(filepath.Join(dir, "phys_state"))),
		Link: LinkLayer(line(filepath.Join(dir, "link_layer"))), Rate: line(filepath.Join(dir, "rate")),
		LID: number(filepath.Join(dir, "lid"), 0),
	}
	if p.Link == "" {
		p.Link = LinkUnknown
	}
	p.GIDs = s.gids(dir, p.Link, kind)
	for _, g := range p.GIDs {
		if p.Netdev = g.Netdev; p.Netdev != "" {
			break
		}
	}
	if p.Netdev == "" {
		p.Netdev = s.parentNetdev(dir)
	}
	if p.Netdev != "" {
		p.NetMTU = number(filepath.Join(s.Sys, "class", "net", p.Netdev, "mtu"), 0)
		p.MTU = PathMTU(p.Link, p.NetMTU)
	}
	return p
}

// parentNetdev finds the interface of a device that tells none with its GIDs:
// a software device says it itself, a card has its interfaces beside it. It is
// the port's for certain only if there is one.
func (s System) parentNetdev(portDir string) string {
	device := filepath.Dir(filepath.Dir(portDir))
	if name := line(filepath.Join(device, "parent")); name != "" {
		return name
	}
	entries, err := os.ReadDir(filepath.Join(device, "device", "net"))
	if err != nil || len(entries) != 1 {
		return ""
	}
	return entries[0].Name()
}

func (s System) gids(dir string, link LinkLayer, kind NodeKind) []GID {
	entries, err := os.ReadDir(filepath.Join(dir, "gids"))
	if err != nil {
		return nil
	}
	prefixes := map[string][]netip.Prefix{}
	var out []GID
	for _, e := range entries {
		index, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		addr, err := ParseGID(line(filepath.Join(dir, "gids", e.Name())))
		if err != nil || empty(addr, link) {
			continue
		}
		g := GID{
			Index: index, Addr: addr, Netdev: line(filepath.Join(dir, "gid_attrs", "ndevs", e.Name())),
			Type: gidType(line(filepath.Join(dir, "gid_attrs", "types", e.Name())), link, kind),
		}
		if _, known := prefixes[g.Netdev]; !known && g.Netdev != "" && s.Addrs != nil {
			prefixes[g.Netdev] = s.Addrs(g.Netdev)
		}
		g.Bits = subnetBits(addr, prefixes[g.Netdev])
		out = append(out, g)
	}
	slices.SortFunc(out, func(a, b GID) int { return a.Index - b.Index })
	return out
}

// line returns a file's first line, "" if it cannot be read: much of sysfs is
// there for some devices only.
func line(path string) string {
	b, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	first, _, _ := strings.Cut(string(b), "\n")
	return strings.TrimSpace(first)
}

// number reads a number in any of C's notations.
func number(path string, otherwise int) int {
	n, err := strconv.ParseInt(line(path), 0, 64)
	if err != nil {
		return otherwise
	}
	return int(n)
}
