package chunk

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
)

// idLen is the length of every random identity, in bytes.
const idLen = 16

// ObjectID names immutable bytes. It is random, made once and never reused:
// publishing again under the same name makes a new ObjectID.
type ObjectID [idLen]byte

// SetID names what one register of a tree or one publish made. Provider and
// keeper records are per set, so a tree of 1,000,000 files costs one record.
type SetID [idLen]byte

// NodeID names one node for as long as its cache root lives.
type NodeID [idLen]byte

// ClusterID names the cluster a store, a cache root and a node belong to.
type ClusterID [idLen]byte

// NewObjectID returns a fresh random ObjectID.
func NewObjectID() ObjectID { return ObjectID(newID()) }

// NewSetID returns a fresh random SetID.
func NewSetID() SetID { return SetID(newID()) }

// NewNodeID returns a fresh random NodeID.
func NewNodeID() NodeID { return NodeID(newID()) }

// NewClusterID returns a fresh random ClusterID.
func NewClusterID() ClusterID { return ClusterID(newID()) }

// ParseObjectID reads the 32 lower-case hexadecimal digits of String.
func ParseObjectID(s string) (ObjectID, error) {
	id, err := parseID("object id", s)
	return ObjectID(id), err
}

// ParseSetID reads the 32 hexadecimal digits of String.
func ParseSetID(s string) (SetID, error) {
	id, err := parseID("set id", s)
	return SetID(id), err
}

// ParseNodeID reads the 32 hexadecimal digits of String.
func ParseNodeID(s string) (NodeID, error) {
	id, err := parseID("node id", s)
	return NodeID(id), err
}

// ParseClusterID reads the 32 hexadecimal digits of String.
func ParseClusterID(s string) (ClusterID, error) {
	id, err := parseID("cluster id", s)
	return ClusterID(id), err
}

// ObjectIDFrom reads the 16 bytes of a record.
func ObjectIDFrom(b []byte) (ObjectID, error) {
	id, err := idFrom("object id", b)
	return ObjectID(id), err
}

// SetIDFrom reads the 16 bytes of a record.
func SetIDFrom(b []byte) (SetID, error) {
	id, err := idFrom("set id", b)
	return SetID(id), err
}

// NodeIDFrom reads the 16 bytes of a record.
func NodeIDFrom(b []byte) (NodeID, error) {
	id, err := idFrom("node id", b)
	return NodeID(id), err
}

// ClusterIDFrom reads the 16 bytes of a record.
func ClusterIDFrom(b []byte) (ClusterID, error) {
	id, err := idFrom("cluster id", b)
	return ClusterID(id), err
}

// String returns 32 lower-case hexadecimal digits.
func (id ObjectID) String() string  { return hex.EncodeToString(id[:]) }
func (id SetID) String() string     { return hex.EncodeToString(id[:]) }
func (id NodeID) String() string    { return hex.EncodeToString(id[:]) }
func (id ClusterID) String() string { return hex.EncodeToString(id[:]) }

// IsZero reports whether the id was never set.
func (id ObjectID) IsZero() bool  { return id == ObjectID{} }
func (id SetID) IsZero() bool     { return id == SetID{} }
func (id NodeID) IsZero() bool    { return id == NodeID{} }
func (id ClusterID) IsZero() bool { return id == ClusterID{} }

// Short returns the first 8 digits, for messages people read.
func (id ObjectID) Short() string { return id.String()[:8] }

// Short returns the first 8 digits, for messages people read.
func (id NodeID) Short() string { return id.String()[:8] }

func newID() (id [idLen]byte) {
	rand.Read(id[:]) // never fails (crypto/rand)
	return id
}

func parseID(what, s string) (id [idLen]byte, err error) {
	if len(s) != 2*idLen {
		return id, fmt.Errorf("%s %q: want %d hexadecimal digits", what, s, 2*idLen)
	}
	if _, err := hex.Decode(id[:], []byte(s)); err != nil {
		return id, fmt.Errorf("%s %q: %w", what, s, err)
	}
	return id, nil
}

func idFrom(what string, b []byte) (id [idLen]byte, err error) {
	if len(b) != idLen {
		return id, fmt.Errorf("%s: %d bytes, want %d", what, len(b), idLen)
	}
	copy(id[:], b)
	return id, nil
}
