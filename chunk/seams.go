package chunk

import (
	"context"
	"errors"
	"io"
	"os"
)

// Errors that cross the seams. Callers test them with errors.Is.
var (
	// ErrNotHeld: the peer answered, and does not have that block.
	ErrNotHeld = errors.New("block not held")
	// ErrWrongNode: another node, incarnation or cluster answered.
	ErrWrongNode = errors.New("wrong node")
	// ErrRefused: the peer refused our token, or we refused a caller's.
	ErrRefused = errors.New("request refused")
	// ErrCorrupt: bytes that do not match their checksum, or an answer
	// that breaks the protocol.
	ErrCorrupt = errors.New("corrupt answer")
	// ErrSourceChanged: a registered file is no longer what was registered.
	ErrSourceChanged = errors.New("registered source has changed")
	// ErrDamaged: two contents were seen under one object id.
	ErrDamaged = errors.New("object is damaged")
	// ErrNoProvider: no node that can be reached holds the bytes.
	ErrNoProvider = errors.New("no reachable provider")
	// ErrStalled: providers live, and no byte arrived within the bound.
	ErrStalled = errors.New("no progress")
	// ErrNoSpace: the cache has no room and can make none. Reads go on,
	// uncached.
	ErrNoSpace = errors.New("no space in the cache")
	// ErrClosed: the component was closed.
	ErrClosed = errors.New("closed")
)

// Peer is how to reach one running node.
type Peer struct {
	Node        NodeID
	Incarnation uint64 // new at every start; an answer of another one is refused
	Name        string
	Zone        string
	Addrs       map[string]string // transport ("tcp", "verbs") to HOST:PORT
}

// Provider is a hint: a peer that holds some or all of a set.
type Provider struct {
	Peer
	Keeper   bool // must not evict
	Complete bool // held all of the set when the record was written
}

// Transport moves blocks from a peer into memory it owns and lends.
// Implementations: rdma/tcp, rdma/verbs, rdmatest's fake one-sided one.
type Transport interface {
	// Fetch brings the blocks, all of them or none. Their bytes match the
	// sum the peer declared for them. It ends soon after ctx does.
	// Errors: ErrNotHeld, ErrWrongNode, ErrRefused, ErrCorrupt,
	// ErrSourceChanged, or the network's. Safe for concurrent use.
	Fetch(ctx context.Context, from Peer, refs []BlockRef) (Lease, error)
}

// Streamer is a Transport that can also hand on a block while it arrives, so
// that it is summed and stored piece by piece while the processor's cache holds
// it. Optional: a Transport whose memory others write into has no need of it.
type Streamer interface {
	// FetchTo is Fetch of one block without lent memory: put gets its bytes in
	// order, in pieces that are whole pages but for the last, each valid
	// during the call only; of a block that comes slowly, once in a few
	// seconds at least, since that is how it is seen to come. They are not to
	// be trusted before FetchTo has returned without an error. An error of put
	// ends the fetch and is returned, wrapped. Data of what is returned is nil;
	// of a block that is Zero, put gets nothing.
	FetchTo(ctx context.Context, from Peer, ref BlockRef, put func(piece []byte) error) (Received, error)
}

// Lease lends the memory that fetched blocks lie in until Release, which is
// called exactly once. The bytes must not be touched afterwards.
type Lease interface {
	Blocks() []Received // in the order asked for
	Release()
}

// Received is one block as it arrived.
type Received struct {
	Ref  BlockRef
	Data []byte // nil when Zero
	Sum  uint32 // CRC-32C of Data, computed here and equal to what the peer declared
	Zero bool   // every byte of the block is zero; none were sent
}

// Block is what a Source hands to the serving side of a transport.
type Block struct {
	File *os.File // the bytes are File[Off, Off+Len); nil when Zero
	Off  int64
	Len  int64
	Sum  uint32
	Zero bool
	// Fixed says that the bytes cannot change while they are lent: Release
	// reports nothing.
	Fixed bool
	// Release gives back what keeps File open; called exactly once. It
	// reports ErrSourceChanged when the file changed since the block was
	// handed out; the connection is then broken, never ended cleanly.
	Release func() error
}

// Source answers for the blocks held here. cache implements it; the serving
// side of every transport consumes it.
type Source interface {
	// Block returns a block whose sum is bound: recorded durably enough to
	// outlive this process before it is returned. Errors: ErrNotHeld,
	// ErrSourceChanged. Safe for concurrent use.
	Block(ctx context.Context, object ObjectID, index int) (Block, error)
}

// Store is the local side of the engine: files of objects on this machine.
type Store interface {
	// Open returns the local file of an object, made if there is none.
	// ErrNoSpace: none can be made now, and the object is read uncached.
	Open(ctx context.Context, o Object) (File, error)
}

// Held is the read side of one object's bytes on this machine. Safe for
// concurrent use.
type Held interface {
	// Has reports whether a block is here and readable through Reader.
	Has(block int) bool
	// Have returns a copy of the map of present blocks.
	Have() Bitmap
	// Complete reports whether every block is here. Once true, it stays
	// true for as long as the File is open.
	Complete() bool
	// Sum returns the checksum recorded for a present block.
	Sum(block int) (uint32, bool)
}

// File is one object's bytes on this machine, complete or not. Safe for
// concurrent use. A File that is open is not evicted.
type File interface {
	Held
	// Put stores a verified block. Storing a block twice is harmless.
	// ErrNoSpace, or the disk's error, leaves the block absent.
	Put(block int, data []byte, sum uint32) error
	// PutZero records blocks whose every byte is zero; nothing is written.
	PutZero(blocks Bitmap) error
	// Reader returns the open local file: object offset x lies at file
	// offset x. It stays open until Close.
	Reader() *os.File
	io.Closer
}

// Stager is a File that takes a block piece by piece. Optional.
type Stager interface {
	// Stage begins to write an absent block; one stage of a block at a time.
	// A Put of the same block ends the stage. ErrNoSpace as of Put.
	Stage(block int) (Stage, error)
}

// Stage is one block being written; it stays absent until Commit. Exactly one
// of Commit and Abort is called. Not safe for concurrent use.
type Stage interface {
	// Write appends to the block.
	Write(piece []byte) error
	// Commit makes the block present, with its checksum. An error leaves it
	// absent.
	Commit(sum uint32) error
	Abort()
}

// Registry is the engine's view of the metadata store.
type Registry interface {
	// Locate returns at most a few dozen providers of a set that live, in
	// random order; empty when there are none. An unreachable store is an
	// error, never an empty answer.
	Locate(ctx context.Context, set SetID) ([]Provider, error)
	// Announce says that this node provides the set.
	Announce(ctx context.Context, set SetID, complete bool) error
}

// Availability is news of what a peer holds of one object. The first news of
// a Follow has Full set and the whole map; later ones add blocks.
type Availability struct {
	Full   bool
	Have   Bitmap // when Full
	Added  []int  // when not
	Sent   []int  // blocks that the peer began to send to others, as often as it did
	Keeper bool   // the peer answers for the object's checksums
	Peers  []Peer // others that fetch the object, as far as the peer says
}

// Scout asks peers what they hold.
type Scout interface {
	// Follow calls on with each piece of news until ctx ends, the peer is
	// gone (its error), or on returns false. Calls do not overlap.
	Follow(ctx context.Context, from Peer, o Object, on func(Availability) bool) error
}

// Facts is what is bound about an object, from those with authority over it
// (its keepers, by way of the store or directly).
type Facts interface {
	// Zeros returns the blocks known to be all zero; length 0 if none are.
	Zeros(ctx context.Context, o Object) (Bitmap, error)
	// Sum returns the checksum bound for a block by a keeper. Not bound, or
	// nobody to ask: false. The engine then trusts the peer's own sum.
	Sum(ctx context.Context, o Object, block int) (sum uint32, ok bool)
}
