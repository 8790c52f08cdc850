package rdma

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"

	"github.com/p2pfs/p2pfs/chunk"
)

// MinSecret is the shortest cluster secret accepted, in bytes.
const MinSecret = 16

// tokenLabel separates these tokens from any other use of the secret, and
// from those of another protocol version.
const tokenLabel = "p2pfs/1"

// Credentials is who this node is and what it shares with its cluster. A
// value; Secret is not changed after it was handed over.
type Credentials struct {
	Cluster     chunk.ClusterID
	Secret      []byte // of the cluster; at least MinSecret bytes
	Self        chunk.NodeID
	Incarnation uint64 // of Self, never 0
}

// Validate reports what is missing.
func (c Credentials) Validate() error {
	switch {
	case c.Cluster.IsZero():
		return fmt.Errorf("credentials without a cluster")
	case c.Self.IsZero():
		return fmt.Errorf("credentials without a node")
	case c.Incarnation == 0:
		return fmt.Errorf("credentials without an incarnation")
	case len(c.Secret) < MinSecret:
		return fmt.Errorf("cluster secret of %d bytes, want at least %d", len(c.Secret), MinSecret)
	}
	return nil
}

// token returns the proof that a request from one node to one incarnation of
// another comes from someone who knows the secret. Every part but the label
// has a fixed length, so that no two requests share a message.
func (c Credentials) token(from, to chunk.NodeID, incarnation uint64) string {
	m := hmac.New(sha256.New, c.Secret)
	m.Write([]byte(tokenLabel))
	m.Write(c.Cluster[:])
	m.Write(from[:])
	m.Write(to[:])
	m.Write(binary.BigEndian.AppendUint64(nil, incarnation))
	return hex.EncodeToString(m.Sum(nil))
}
