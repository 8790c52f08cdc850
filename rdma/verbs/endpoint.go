package verbs

import (
	"encoding/hex"
	"fmt"
)

// endpoint is one end of a reliable connection, as the other end needs it.
type endpoint struct {
	qpn, psn uint32 // 24 bits each
	lid      uint16 // 0 on Ethernet
	mtu      uint8  // path MTU the port is up to: 1 (256 bytes) to 5 (4096)
	reads    uint8  // READs that may be in flight towards it, at least 1
	gid      [16]byte
	device   string // for people
}

const (
	endpointVersion = 2
	maxDeviceName   = 64
)

// String is what stands in the header.
func (e endpoint) String() string {
	b := []byte{endpointVersion}
	b = le.AppendUint32(b, e.qpn)
	b = le.AppendUint32(b, e.psn)
	b = le.AppendUint16(b, e.lid)
	b = append(b, e.mtu, e.reads)
	b = append(b, e.gid[:]...)
	b = append(b, e.device[:min(len(e.device), maxDeviceName)]...)
	return hex.EncodeToString(b)
}

func parseEndpoint(s string) (endpoint, error) {
	b, err := hex.DecodeString(s)
	if err != nil || len(b) == 0 || hex.EncodeToString(b) != s {
		return endpoint{}, fmt.Errorf("%w: end of a connection", errWire)
	}
	if b[0] != endpointVersion {
		return endpoint{}, fmt.Errorf("%w: end of a connection in version %d, this node speaks %d", errWire, b[0], endpointVersion)
	}
	r := &reader{rest: b[1:]}
	e := endpoint{qpn: r.u32(), psn: r.u32(), lid: r.u16(), mtu: r.most(5), reads: r.u8()}
	copy(e.gid[:], r.bytes(16))
	e.device = string(r.bytes(min(len(r.rest), maxDeviceName)))
	if r.bad || len(r.rest) > 0 || e.qpn >= 1<<24 || e.psn >= 1<<24 || e.mtu == 0 || e.reads == 0 {
		return endpoint{}, fmt.Errorf("%w: end of a connection", errWire)
	}
	return e, nil
}
