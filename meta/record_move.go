package meta

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"

	"google.golang.org/protobuf/proto"

	"github.com/p2pfs/p2pfs/meta/metapb"
)

// txID names one attempt to move an entry to another directory.
type txID [16]byte

func newTx() (tx txID) {
	rand.Read(tx[:])
	return tx
}

// field names the decision about tx in the slot of the target's directory.
func (tx txID) field() string { return txPrefix + hex.EncodeToString(tx[:]) }

// move says where an entry is being moved to, or that the directory it stands
// for is being removed: to is no place then.
type move struct {
	to Place
	tx txID
	// version is that of the entry it replaces; 0: the name is free. Of a
	// removal it is that of the directory's own record.
	version uint64
}

// removal reports whether the directory is to be removed.
func (mv *move) removal() bool { return mv.to == Place{} }

func decodeMove(m *metapb.Move) (*move, error) {
	mv := &move{to: Place{InodeID(m.Dir), string(m.Name)}, version: m.Version}
	if mv.removal() && mv.version != 0 {
		return mv, nil
	}
	if err := CheckName(mv.to.Name); err != nil {
		return nil, fmt.Errorf("moved to a place that cannot be: %w", err)
	}
	if m.Dir == 0 || len(m.Tx) != len(mv.tx) {
		return nil, fmt.Errorf("moved to directory %d as %x", m.Dir, m.Tx)
	}
	copy(mv.tx[:], m.Tx)
	return mv, nil
}

// rewriteMove returns an entry's record with another move, or none for nil,
// and all else in it as it was. ctime is in nanoseconds; 0 leaves it.
func rewriteMove(b []byte, mv *move, ctime int64) ([]byte, error) {
	var m metapb.Entry
	if err := proto.Unmarshal(b, &m); err != nil {
		return nil, fmt.Errorf("rewrite entry: %w: %w", ErrFormat, err)
	}
	m.Move = nil
	if mv != nil {
		m.Move = &metapb.Move{Dir: uint64(mv.to.Dir), Name: []byte(mv.to.Name), Tx: mv.tx[:], Version: mv.version}
	}
	if ctime != 0 {
		m.CtimeNs = ctime
	}
	return marshalProto(&m)
}

func marshalProto(m proto.Message) ([]byte, error) {
	b, err := proto.Marshal(m)
	if err != nil {
		return nil, fmt.Errorf("write record: %w", err)
	}
	return b, nil
}

// outcome of a move. A decision that is not there means aborted.
type outcome int

const (
	moveOpen outcome = iota + 1
	moveDone
	moveAborted
)

// decision is what the target's slot says of a move.
type decision struct {
	from    Place
	outcome outcome
}

// marshalDecision returns the record of a decision; old is as in MarshalEntry.
func marshalDecision(d decision, old []byte) ([]byte, error) {
	m := &metapb.Decision{}
	if old != nil {
		if err := proto.Unmarshal(old, m); err != nil {
			return nil, fmt.Errorf("rewrite decision: %w: %w", ErrFormat, err)
		}
	}
	m.Dir, m.Name, m.Outcome = uint64(d.from.Dir), []byte(d.from.Name), metapb.Outcome(d.outcome)
	return marshalProto(m)
}

func unmarshalDecision(b []byte) (decision, error) {
	var m metapb.Decision
	if err := proto.Unmarshal(b, &m); err != nil {
		return decision{}, fmt.Errorf("read decision: %w: %w", ErrFormat, err)
	}
	d := decision{from: Place{InodeID(m.Dir), string(m.Name)}, outcome: outcome(m.Outcome)}
	if d.outcome < moveOpen || d.outcome > moveAborted || d.from.Dir == 0 {
		return decision{}, fmt.Errorf("read decision: %w: outcome %d of a move from directory %d", ErrFormat, m.Outcome, m.Dir)
	}
	if err := CheckName(d.from.Name); err != nil {
		return decision{}, fmt.Errorf("read decision: %w: %w", ErrFormat, err)
	}
	return d, nil
}

// dirMove is the journal of moves of directories: the last one that was begun.
type dirMove struct {
	tx   txID
	from Place
	to   InodeID
}

// marshalDirMove returns the record of a move; old is as in MarshalEntry.
func marshalDirMove(d dirMove, old []byte) ([]byte, error) {
	m := &metapb.DirMove{}
	if old != nil {
		if err := proto.Unmarshal(old, m); err != nil {
			return nil, fmt.Errorf("rewrite move of a directory: %w: %w", ErrFormat, err)
		}
	}
	m.Tx, m.FromDir, m.FromName, m.ToDir = d.tx[:], uint64(d.from.Dir), []byte(d.from.Name), uint64(d.to)
	return marshalProto(m)
}

func unmarshalDirMove(b []byte) (dirMove, error) {
	var m metapb.DirMove
	if err := proto.Unmarshal(b, &m); err != nil {
		return dirMove{}, fmt.Errorf("read move of a directory: %w: %w", ErrFormat, err)
	}
	d := dirMove{from: Place{InodeID(m.FromDir), string(m.FromName)}, to: InodeID(m.ToDir)}
	if len(m.Tx) != len(d.tx) || d.from.Dir == 0 || d.to == 0 {
		return dirMove{}, fmt.Errorf("read move of a directory: %w: from %d to %d as %x", ErrFormat, m.FromDir, m.ToDir, m.Tx)
	}
	if err := CheckName(d.from.Name); err != nil {
		return dirMove{}, fmt.Errorf("read move of a directory: %w: %w", ErrFormat, err)
	}
	copy(d.tx[:], m.Tx)
	return d, nil
}
