package verbs

import (
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"

	"github.com/p2pfs/p2pfs/chunk"
	"github.com/p2pfs/p2pfs/rdma/devices"
	"github.com/p2pfs/p2pfs/rdma/verbs/ib"
)

// Protocol is the key of this transport's address in chunk.Peer.Addrs: where
// links are agreed on, which need not be an address of an RDMA device.
const Protocol = "verbs"

// HostConfig says which devices to open.
type HostConfig struct {
	// Rails are the ports to use, as devices.Choose found them.
	Rails []devices.Rail
	// MaxRegistration bounds one registration below what a device says of
	// itself, in bytes; 0 does not.
	MaxRegistration uint64
	Log             *slog.Logger // nil discards
}

// Host is this node's RDMA devices, opened once for its Client and its Handler.
// Safe for concurrent use until Close.
type Host struct {
	rails []devices.Rail
	devs  map[string]*hostDevice // by name
	log   *slog.Logger
}

type hostDevice struct {
	*ib.Device
	limits ib.Limits
	region int64 // length of the parts that memory is registered in
}

// Open opens the devices. What it returns says what to do about it. Errors:
// ib.ErrNotBuilt, ib.ErrNoLibrary, or a device's.
func Open(cfg HostConfig) (*Host, error) {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if len(cfg.Rails) == 0 {
		return nil, errors.New("no RDMA device to open")
	}
	lib, err := ib.Load()
	if err != nil {
		return nil, err
	}
	h := &Host{rails: cfg.Rails, devs: make(map[string]*hostDevice), log: cfg.Log}
	for _, r := range cfg.Rails {
		if h.devs[r.Device] != nil {
			continue
		}
		d, err := openDevice(lib, r.Device, cfg.MaxRegistration)
		if err != nil {
			return nil, errors.Join(err, h.Close())
		}
		h.devs[r.Device] = d
	}
	return h, nil
}

func openDevice(lib *ib.Library, name string, most uint64) (*hostDevice, error) {
	d, err := lib.Open(name)
	if err != nil {
		return nil, err
	}
	l, err := d.Limits()
	if err != nil {
		return nil, errors.Join(err, d.Close())
	}
	if most != 0 && (l.MaxMR == 0 || most < l.MaxMR) {
		l.MaxMR = most
	}
	region, err := regionSize(l.MaxMR, chunk.MaxBlockSize)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("use RDMA device %s: %w", name, err), d.Close())
	}
	return &hostDevice{Device: d, limits: l, region: region}, nil
}

// Rails returns the ports in use.
func (h *Host) Rails() []devices.Rail { return h.rails }

// Close closes the devices. The Client and the Handler were closed before.
func (h *Host) Close() error {
	var errs []error
	for _, d := range h.devs {
		errs = append(errs, d.Close())
	}
	h.devs = nil
	return errors.Join(errs...)
}

// mostRegions bounds the registrations of files.
func (h *Host) mostRegions() int {
	var limits []int
	for _, d := range h.devs {
		limits = append(limits, d.limits.Registrations)
	}
	return mostRegions(limits...)
}

// rail returns the own port that a name stands for, and its address with an
// index.
func (h *Host) rail(name string, gid int) (devices.Rail, devices.GID, bool) {
	for _, r := range h.rails {
		if r.Name() != name {
			continue
		}
		for _, g := range r.GIDs {
			if g.Index == gid {
				return r, g, true
			}
		}
	}
	return devices.Rail{}, devices.GID{}, false
}

// maxReads bounds the READs in flight of one connection.
const maxReads = 16

// depth returns how many READs may be posted to one connection of a port.
func (h *Host) depth(r devices.Rail) int { return min(maxDepth, max(h.devs[r.Device].limits.Depth, 1)) }

// newEnd makes an unconnected end on a port, with depth READs to be posted.
func (h *Host) newEnd(r devices.Rail, g devices.GID, depth int) (*ib.Queue, endpoint, error) {
	d := h.devs[r.Device]
	if d == nil {
		return nil, endpoint{}, fmt.Errorf("RDMA device %s is not open", r.Device)
	}
	port, err := d.Port(uint8(r.Port))
	if err != nil {
		return nil, endpoint{}, err
	}
	if !port.Active {
		return nil, endpoint{}, fmt.Errorf("port %s is down", r.Name())
	}
	q, err := d.NewQueue(depth)
	if err != nil {
		return nil, endpoint{}, err
	}
	return q, endpoint{
		qpn: q.QPN(), psn: rand.Uint32N(1 << 24), lid: port.LID, mtu: port.MTU, device: r.Name(),
		reads: uint8(min(max(d.limits.ReadsIn, 1), maxReads)), gid: g.Addr.As16(),
	}, nil
}

// join connects an own end with another: MTU and READs in flight by the lower
// of both.
func (h *Host) join(q *ib.Queue, r devices.Rail, g devices.GID, own, other endpoint) error {
	out := uint8(min(max(h.devs[r.Device].limits.ReadsOut, 1), maxReads))
	return q.Connect(ib.Path{
		Port: uint8(r.Port), GIDIndex: uint8(g.Index), PSN: own.psn, MTU: min(own.mtu, other.mtu),
		ReadsOut: min(out, other.reads), ReadsIn: own.reads,
		PeerQPN: other.qpn, PeerPSN: other.psn, PeerLID: other.lid, PeerGID: other.gid,
	})
}
