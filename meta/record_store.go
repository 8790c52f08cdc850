package meta

import (
	"crypto/rand"
	"fmt"

	"google.golang.org/protobuf/proto"

	"github.com/p2pfs/p2pfs/chunk"
	"github.com/p2pfs/p2pfs/meta/metapb"
)

// Format is the layout of a store that this program makes, reads and writes.
const Format = 1

// secretLen and epochLen are lengths of a store record's fields, in bytes.
const (
	secretLen = 32
	epochLen  = 16
)

// StoreInfo is what a store says about itself and its cluster.
type StoreInfo struct {
	Cluster   chunk.ClusterID
	Secret    []byte  // 32 bytes; tokens between nodes are derived from it
	Epoch     Epoch   // another one means another history of the store
	Epochs    []Epoch // the earlier ones, in order; nil: the store was never lost
	ChunkSize int64   // default for new objects, bytes
	// ReadOnly: the store may be read and not written by this program.
	ReadOnly bool
	// Created: this very call made the cluster.
	Created bool
}

// newStoreInfo returns the facts of a cluster that nobody has made before.
func newStoreInfo(chunkSize int64) StoreInfo {
	s := StoreInfo{Cluster: chunk.NewClusterID(), Secret: make([]byte, secretLen), ChunkSize: chunkSize, Created: true}
	rand.Read(s.Secret)
	rand.Read(s.Epoch[:])
	return s
}

// MarshalStore returns the record of a store.
func MarshalStore(s StoreInfo) ([]byte, error) {
	m := &metapb.Store{
		Format: Format, MinReader: Format, MinWriter: Format,
		ClusterId: s.Cluster[:], Secret: s.Secret, Epoch: s.Epoch[:], ChunkSize: s.ChunkSize,
	}
	for _, e := range s.Epochs {
		m.Epochs = append(m.Epochs, e[:])
	}
	if s.ReadOnly {
		m.Format, m.MinWriter = Format+1, Format+1
	}
	b, err := proto.Marshal(m)
	if err != nil {
		return nil, fmt.Errorf("write store record: %w", err)
	}
	return b, nil
}

// UnmarshalStore reads the record of a store. It refuses a store that this
// program is too old to read.
func UnmarshalStore(b []byte) (StoreInfo, error) {
	s, err := decodeStore(b)
	if err != nil {
		return StoreInfo{}, fmt.Errorf("read store record: %w: %w", ErrFormat, err)
	}
	return s, nil
}

func decodeStore(b []byte) (StoreInfo, error) {
	var m metapb.Store
	if err := proto.Unmarshal(b, &m); err != nil {
		return StoreInfo{}, err
	}
	switch {
	case m.Format == 0 || m.MinReader == 0 || m.MinWriter == 0:
		return StoreInfo{}, fmt.Errorf("it names no format")
	case m.MinReader > Format:
		return StoreInfo{}, fmt.Errorf("the store has format %d, which needs a newer p2pfs (this one knows format %d)", m.Format, Format)
	case len(m.Secret) != secretLen:
		return StoreInfo{}, fmt.Errorf("secret of %d bytes", len(m.Secret))
	case len(m.Epoch) != epochLen:
		return StoreInfo{}, fmt.Errorf("epoch of %d bytes", len(m.Epoch))
	}
	cluster, err := chunk.ClusterIDFrom(m.ClusterId)
	if err != nil {
		return StoreInfo{}, err
	}
	if err := checkChunkSize(m.ChunkSize); err != nil {
		return StoreInfo{}, err
	}
	var epochs []Epoch
	for _, e := range m.Epochs {
		if len(e) != epochLen {
			return StoreInfo{}, fmt.Errorf("earlier epoch of %d bytes", len(e))
		}
		epochs = append(epochs, Epoch(e))
	}
	return StoreInfo{
		Cluster: cluster, Secret: m.Secret, Epoch: Epoch(m.Epoch), Epochs: epochs,
		ChunkSize: m.ChunkSize, ReadOnly: m.MinWriter > Format,
	}, nil
}

// checkChunkSize reports why size cannot be a cluster's default chunk size.
func checkChunkSize(size int64) error {
	o := chunk.Object{ID: chunk.ObjectID{1}, Size: 1, ChunkSize: size, BlockSize: chunk.BlockSizeFor(size, 1)}
	if err := o.Validate(); err != nil {
		return fmt.Errorf("chunk size %d: it must be a multiple of %d", size, chunk.MinBlockSize)
	}
	return nil
}
