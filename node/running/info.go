package running

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"
	"unicode/utf8"
)

// Info is what a running daemon says of itself. A value.
type Info struct {
	Node       string    // id: 32 hexadecimal digits
	Name       string    // shown to people
	Mountpoint string    // absolute, without symlinks
	CacheDirs  []string  // absolute
	Socket     string    // of the control service, absolute
	PID        int       // of the daemon
	Started    time.Time // for people; nothing is decided by it
	MetaURL    string    // of the store, without a password
	Version    string    // of the program

	process process // tells the daemon from a later process with its pid
}

// String names the node the way messages do.
func (i Info) String() string {
	switch {
	case i.Node == "" && i.Name == "":
		return i.Socket
	case i.Name == "":
		return short(i.Node)
	case i.Node == "":
		return i.Name
	}
	return fmt.Sprintf("%s (%s)", i.Name, short(i.Node))
}

func short(id string) string {
	if len(id) > 8 {
		return id[:8]
	}
	return id
}

// format is the version of the published file. A reader ignores files of a
// later format: their daemon is another program's business.
const format = 1

// record is the form on disk. Fields are added, never renamed.
type record struct {
	Format     int       `json:"format"`
	Node       string    `json:"node"`
	Name       text      `json:"name"`
	Mountpoint text      `json:"mountpoint"`
	CacheDirs  []text    `json:"cache_dirs"`
	Socket     text      `json:"socket"`
	PID        int       `json:"pid"`
	Process    process   `json:"process"`
	Started    time.Time `json:"started"`
	MetaURL    text      `json:"meta_url"`
	Version    text      `json:"version"`
}

func encode(i Info) ([]byte, error) {
	r := record{
		Format: format, Node: i.Node, Name: text(i.Name), Mountpoint: text(i.Mountpoint),
		Socket: text(i.Socket), PID: i.PID, Process: i.process, Started: i.Started,
		MetaURL: text(i.MetaURL), Version: text(i.Version),
	}
	for _, d := range i.CacheDirs {
		r.CacheDirs = append(r.CacheDirs, text(d))
	}
	b, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("encode the facts of node %s: %w", i, err)
	}
	return append(b, '\n'), nil
}

// decode reads a published file and refuses one that no daemon of ours wrote.
func decode(b []byte) (Info, error) {
	var r record
	if err := json.Unmarshal(b, &r); err != nil {
		return Info{}, fmt.Errorf("decode: %w", err)
	}
	i := Info{
		Node: r.Node, Name: string(r.Name), Mountpoint: string(r.Mountpoint), Socket: string(r.Socket),
		PID: r.PID, Started: r.Started, MetaURL: string(r.MetaURL), Version: string(r.Version), process: r.Process,
	}
	for _, d := range r.CacheDirs {
		i.CacheDirs = append(i.CacheDirs, string(d))
	}
	if r.Format != format {
		return Info{}, fmt.Errorf("format %d, this program knows %d", r.Format, format)
	}
	return i, i.check()
}

// check reports what makes i useless to those who look for the node.
func (i Info) check() error {
	switch {
	case !validKey(i.Node):
		return fmt.Errorf("node id %q: want letters and digits", i.Node)
	case i.PID <= 0:
		return fmt.Errorf("pid %d", i.PID)
	case !filepath.IsAbs(i.Socket):
		return fmt.Errorf("control socket %q is not an absolute path", i.Socket)
	case i.Mountpoint != "" && !filepath.IsAbs(i.Mountpoint):
		return fmt.Errorf("mountpoint %q is not an absolute path", i.Mountpoint)
	}
	return nil
}

// text is a string of any bytes in JSON, which holds UTF-8 only: other bytes
// travel in base64 behind a prefix.
type text string

const base64Prefix = "base64:"

// MarshalText implements encoding.TextMarshaler.
func (t text) MarshalText() ([]byte, error) {
	if utf8.ValidString(string(t)) && !strings.HasPrefix(string(t), base64Prefix) {
		return []byte(t), nil
	}
	return []byte(base64Prefix + base64.StdEncoding.EncodeToString([]byte(t))), nil
}

// UnmarshalText implements encoding.TextUnmarshaler.
func (t *text) UnmarshalText(b []byte) error {
	enc, ok := strings.CutPrefix(string(b), base64Prefix)
	if !ok {
		*t = text(b)
		return nil
	}
	raw, err := base64.StdEncoding.DecodeString(enc)
	if err != nil {
		return errors.New("bad base64 text")
	}
	*t = text(raw)
	return nil
}
