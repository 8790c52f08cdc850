package meta

import (
	"context"
	"errors"
	"time"
)

// Errors of every store and of the layers above. Callers test them with
// errors.Is.
var (
	// ErrNotFound: the store answered, and there is no such record.
	ErrNotFound = errors.New("not found")
	// ErrExist: the name is taken.
	ErrExist = errors.New("already exists")
	// ErrConflict: a condition of Apply did not hold; read again.
	ErrConflict = errors.New("changed by another")
	// ErrUnavailable: the store did not answer in time. Never an answer
	// about the record.
	ErrUnavailable = errors.New("metadata store unreachable")
	// ErrDenied: the store refused our credentials.
	ErrDenied = errors.New("metadata store refused the credentials")
	// ErrFormat: a record or a store that this program cannot read.
	ErrFormat = errors.New("unreadable metadata")
	// ErrNotDir, ErrIsDir, ErrNotEmpty, ErrName: as the errno of the name.
	ErrNotDir   = errors.New("not a directory")
	ErrIsDir    = errors.New("is a directory")
	ErrNotEmpty = errors.New("directory not empty")
	ErrName     = errors.New("invalid name")
	// ErrStale: the file that was meant has no name any more, or another one
	// has its name (ESTALE).
	ErrStale = errors.New("stale file")
	// ErrNoXAttr: there is no such extended attribute (ENODATA).
	ErrNoXAttr = errors.New("no such extended attribute")
	// ErrXAttrSpace: an entry's extended attributes would be too large (ENOSPC).
	ErrXAttrSpace = errors.New("no room for extended attributes")
	// ErrLoop: a directory would be moved below itself (EINVAL).
	ErrLoop = errors.New("a directory cannot be moved below itself")
	// ErrGap: a watch lost events; what was cached of the slot is void.
	ErrGap = errors.New("events were lost")
)

// Slot names a group of records that change together: one directory
// ("d/<dir>"), one object ("o/<object>"), one set ("s/<set>"), one node
// ("n/<node>"), the store itself ("store"). A change touches one slot, so that
// it fits one hash tag of a Redis Cluster. Slots hold no byte that a store
// must escape: letters, digits and "/" only.
type Slot string

// Record is one field of a slot.
type Record struct {
	Slot    Slot
	Field   string // any bytes but NUL
	Value   []byte
	Version uint64 // of this record: grows with every change of it
}

// Key names one record.
type Key struct {
	Slot  Slot
	Field string
}

// Page is one page of a slot's records.
type Page struct {
	Records []Record
	// Next continues the listing; empty at the end. Opaque.
	Next string
	// Version is the slot's version that the first page was read at. Later
	// pages are read at the same one where the store can.
	Version uint64
}

// If is a condition on one field, or on the whole slot.
type If struct {
	Field string
	// Store: Field is one of the slot of the store itself, whichever slot is
	// changed; only with Present. A store that cannot check two slots at once
	// checks it right before.
	Store bool
	// Exactly one of these is meant:
	Absent   bool   // the field does not exist
	Present  bool   // it does
	Version  uint64 // it has this record version (if not 0)
	NoOthers bool   // the slot has no field but "." and those that begin with "/gone/" (Field is ignored)
}

// Set is one change of a field; a nil Value deletes it.
type Set struct {
	Field string
	Value []byte
}

// Event is one change of a watched slot.
type Event struct {
	Record             // Value nil: the field is gone
	SlotVersion uint64 // the slot's version after this change
}

// MaxSets is the most fields one Apply may change: etcd's default allows 128
// operations a transaction, conditions and bookkeeping included.
const MaxSets = 100

// Slots is all that a store must be able to do. Reads are linearizable:
// whatever an Apply that returned before the read began has written is seen.
// Implementations retry transient faults inside ctx's deadline and otherwise
// answer ErrUnavailable (wrapped); they are safe for concurrent use.
type Slots interface {
	// Get returns one record for each key, in order, in one round trip where
	// the store can; a record that does not exist has a nil Value. A key with
	// an empty field asks for the slot's version instead: its Record has only
	// Version. What is read of one slot in one Get of at most MaxSets keys is
	// of one moment.
	Get(ctx context.Context, keys ...Key) ([]Record, error)
	// List returns a page of a slot's records in no particular order; at
	// most limit of them. A slot without records is an empty page.
	List(ctx context.Context, slot Slot, next string, limit int) (Page, error)
	// Version returns the slot's version, 0 if it never changed. It grows
	// with every Apply on the slot.
	Version(ctx context.Context, slot Slot) (uint64, error)
	// Apply makes all of the changes if every condition holds, else none and
	// ErrConflict. It returns the slot's new version. An error other than
	// ErrConflict may mean that the changes were made.
	Apply(ctx context.Context, slot Slot, conds []If, sets []Set) (uint64, error)
	// Watch calls on with every change of the slot after version since, in
	// order, until ctx ends (nil) or events were lost (ErrGap). The events
	// of one Apply come in one call, so that a version is never half seen.
	// It keeps trying while the store is down. Calls of on do not overlap.
	Watch(ctx context.Context, slot Slot, since uint64, on func([]Event)) error
	// Lease writes a record that vanishes ttl after its last renewal.
	// conds are as in Apply.
	Lease(ctx context.Context, key Key, value []byte, ttl time.Duration, conds []If) (Lease, error)
	// Close ends every Watch and lets go of the store. Leases stay until
	// they run out or are released.
	Close() error
}

// Lease is one leased record.
type Lease interface {
	// Renew extends the lease by its ttl; ErrNotFound if it has run out.
	Renew(ctx context.Context) error
	// Release deletes the record if it is still this lease's.
	Release(ctx context.Context) error
}
