package cache

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/p2pfs/p2pfs/chunk"
)

// layoutVersion is the newest layout of a root that this program knows. Roots of
// an older one become of this one when they are opened; nothing in them has to
// change for that.
//
//	1  objects, registered files
//	2  staged files, kept objects: a program that knows neither would evict
//	   objects that nobody else may have
const layoutVersion = 2

const rootFileName = "root.json"

// rootFile is what a root says of itself.
type rootFile struct {
	node    chunk.NodeID
	cluster chunk.ClusterID // zero until bound
	layout  int             // read from disk; writing makes it layoutVersion
}

// rootJSON is the form on disk. Fields may be added; a change that an older
// program must not overlook raises Layout.
type rootJSON struct {
	Layout  int    `json:"layout"`
	Node    string `json:"node"`
	Cluster string `json:"cluster,omitempty"`
}

// encode returns the file's bytes.
func (r rootFile) encode() []byte {
	j := rootJSON{Layout: layoutVersion, Node: r.node.String()}
	if !r.cluster.IsZero() {
		j.Cluster = r.cluster.String()
	}
	b, _ := json.MarshalIndent(j, "", "  ") // strings and an int cannot fail
	return append(b, '\n')
}

// decodeRoot reads the file's bytes. Errors wrap ErrLayout.
func decodeRoot(b []byte) (rootFile, error) {
	var j rootJSON
	d := json.NewDecoder(bytes.NewReader(b))
	if err := d.Decode(&j); err != nil {
		return rootFile{}, fmt.Errorf("%w: not JSON: %w", ErrLayout, err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return rootFile{}, fmt.Errorf("%w: bytes after the JSON object", ErrLayout)
	}
	switch {
	case j.Layout > layoutVersion:
		return rootFile{}, fmt.Errorf("%w: its layout is version %d and this program knows up to %d: use the newer program, or another directory", ErrLayout, j.Layout, layoutVersion)
	case j.Layout < 1:
		return rootFile{}, fmt.Errorf("%w: layout version %d", ErrLayout, j.Layout)
	}
	r := rootFile{layout: j.Layout}
	var err error
	if r.node, err = chunk.ParseNodeID(j.Node); err != nil {
		return rootFile{}, fmt.Errorf("%w: %w", ErrLayout, err)
	}
	if r.node.IsZero() {
		return rootFile{}, fmt.Errorf("%w: node id is zero", ErrLayout)
	}
	if j.Cluster != "" {
		if r.cluster, err = chunk.ParseClusterID(j.Cluster); err != nil {
			return rootFile{}, fmt.Errorf("%w: %w", ErrLayout, err)
		}
	}
	return r, nil
}

// readRoot reads a directory's root file; ok is false if there is none.
func readRoot(dir string) (r rootFile, ok bool, err error) {
	path := filepath.Join(dir, rootFileName)
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		if _, err := os.Lstat(filepath.Join(dir, "objects")); err == nil {
			return r, false, fmt.Errorf("cache root %s: %w: it has objects but no %s: put the file back, or move the directory away", dir, ErrLayout, rootFileName)
		}
		return r, false, nil
	}
	if err != nil {
		return r, false, fmt.Errorf("read cache root: %w", err)
	}
	if r, err = decodeRoot(b); err != nil {
		return r, false, fmt.Errorf("read %s (if it is lost, move the directory away): %w", path, err)
	}
	return r, true, nil
}

// writeRoot replaces a directory's root file and returns when it would survive
// a power failure.
func writeRoot(dir string, r rootFile) error {
	path := filepath.Join(dir, rootFileName)
	f, err := os.CreateTemp(dir, rootFileName+".*.tmp")
	if err != nil {
		return fmt.Errorf("write cache root: %w", err)
	}
	_, err = f.Write(r.encode())
	if err == nil {
		err = f.Sync()
	}
	if e := f.Close(); err == nil {
		err = e
	}
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		os.Remove(f.Name())
		return fmt.Errorf("write %s: %w", path, err)
	}
	return syncDir(dir)
}

// syncDir makes the names in a directory durable.
func syncDir(dir string) error {
	d, err := openBare(dir, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return fmt.Errorf("sync directory: %w", err)
	}
	err = d.Sync()
	if e := d.Close(); err == nil {
		err = e
	}
	if err != nil {
		return fmt.Errorf("sync directory %s: %w", dir, err)
	}
	return nil
}
