package staging

import (
	"fmt"

	"google.golang.org/protobuf/proto"

	"github.com/p2pfs/p2pfs/chunk"
	"github.com/p2pfs/p2pfs/meta"
	"github.com/p2pfs/p2pfs/node/nodepb"
)

// noteVersion is what this program can read.
const noteVersion = 1

// state says how far a staged file came.
type state = nodepb.StagedNote_State

const (
	stateOpen       = nodepb.StagedNote_STATE_OPEN
	statePrivate    = nodepb.StagedNote_STATE_PRIVATE
	statePublishing = nodepb.StagedNote_STATE_PUBLISHING
	stateFailed     = nodepb.StagedNote_STATE_FAILED
)

// note is what lies beside the bytes of a staged file.
type note struct {
	state     state
	dir       meta.InodeID
	entry     meta.Entry     // name, file id and attributes; no size, no object
	exclusive bool           // must not replace a published name
	published bool           // the file id has been published before
	base      chunk.ObjectID // published last under the file id; zero: none
	object    chunk.Object   // of the publish under way; zero: none, or an empty file
	sent      bool           // a name may stand for object: the store's answer was lost
	reason    string         // stateFailed
	whenNs    int64          // of the last change of state
}

func (n note) encode() ([]byte, error) {
	m := &nodepb.StagedNote{
		MinReader: noteVersion, State: n.state, Inode: uint64(n.entry.Inode), Dir: uint64(n.dir), Name: []byte(n.entry.Name),
		Mode: n.entry.Mode, Uid: n.entry.UID, Gid: n.entry.GID, MtimeNs: n.entry.MtimeNs, CtimeNs: n.entry.CtimeNs,
		Exclusive: n.exclusive, Published: n.published, Reason: n.reason, WhenNs: n.whenNs,
		Xattrs: []byte(n.entry.XAttrs), Sent: n.sent,
	}
	if !n.base.IsZero() {
		m.Base = n.base[:]
	}
	if o := n.object; !o.ID.IsZero() {
		m.Object, m.Set = o.ID[:], o.Set[:]
		m.Size, m.ChunkSize, m.BlockSize, m.Sparse = o.Size, o.ChunkSize, o.BlockSize, o.Sparse
	}
	b, err := proto.Marshal(m)
	if err != nil {
		return nil, fmt.Errorf("write the note of a staged file: %w", err)
	}
	return b, nil
}

func decodeNote(b []byte) (note, error) {
	n, err := parseNote(b)
	if err != nil {
		return note{}, fmt.Errorf("read the note of a staged file: %w: %w", meta.ErrFormat, err)
	}
	return n, nil
}

func parseNote(b []byte) (note, error) {
	var m nodepb.StagedNote
	if err := proto.Unmarshal(b, &m); err != nil {
		return note{}, err
	}
	switch {
	case m.MinReader > noteVersion:
		return note{}, fmt.Errorf("it is of version %d, this program knows %d", m.MinReader, noteVersion)
	case m.State < stateOpen || m.State > stateFailed:
		return note{}, fmt.Errorf("unknown state %d", m.State)
	case m.Inode <= uint64(meta.RootDir) || m.Dir == 0:
		return note{}, fmt.Errorf("file id %d in directory %d", m.Inode, m.Dir)
	case m.Mode&^0o7777 != 0:
		return note{}, fmt.Errorf("mode %#o", m.Mode)
	}
	if err := meta.CheckName(string(m.Name)); err != nil {
		return note{}, err
	}
	if err := meta.XAttrs(m.Xattrs).Check(); err != nil {
		return note{}, err
	}
	n := note{
		state: m.State, dir: meta.InodeID(m.Dir), exclusive: m.Exclusive, published: m.Published, reason: m.Reason, whenNs: m.WhenNs,
		sent: m.Sent,
		entry: meta.Entry{
			Name: string(m.Name), Kind: meta.KindFile, Inode: meta.InodeID(m.Inode), Mode: m.Mode, UID: m.Uid, GID: m.Gid,
			MtimeNs: m.MtimeNs, CtimeNs: m.CtimeNs, XAttrs: meta.XAttrs(m.Xattrs),
		},
	}
	var err error
	if len(m.Base) > 0 {
		if n.base, err = chunk.ObjectIDFrom(m.Base); err != nil {
			return note{}, err
		}
	}
	if len(m.Object) == 0 {
		return n, nil
	}
	if n.object.ID, err = chunk.ObjectIDFrom(m.Object); err != nil {
		return note{}, err
	}
	if n.object.Set, err = chunk.SetIDFrom(m.Set); err != nil {
		return note{}, err
	}
	n.object.Size, n.object.ChunkSize, n.object.BlockSize, n.object.Sparse = m.Size, m.ChunkSize, m.BlockSize, m.Sparse
	return n, n.object.Validate()
}
