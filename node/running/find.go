package running

import (
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
)

// EnvNode is the environment variable that stands for --node.
const EnvNode = "P2PFS_NODE"

// Query is what a command knows of the node it is meant for. Empty fields were
// not given.
type Query struct {
	Path string // a path under the mount, or the mountpoint; relative to the working directory
	Node string // --node: a cache directory or a control socket
	Env  string // the same from the environment
}

// Found is the node a command is meant for.
type Found struct {
	Info
	Path   string // the query's path, absolute, without symlinks outside of the mount
	Inside string // its part inside the mount: "" or "a/b"; bytes as they are
}

// ErrNoNode matches every error that means that there is no node to talk to.
var ErrNoNode = errors.New("no such node runs here")

// Find returns the node that a query means: the one whose mount the path lies
// under, else the one named by Node, else by Env, else the only one running
// here. Errors match ErrNoNode and say what runs here and what to do.
func Find(q Query) (Found, error) {
	infos, err := List()
	if err != nil {
		return Found{}, err
	}
	mounts, err := Mounts()
	if err != nil {
		return Found{}, err
	}
	return find(q, infos, mounts)
}

// find is Find among these daemons and mounts.
func find(q Query, infos []Info, mounts []Mount) (Found, error) {
	if q.Path != "" {
		return findPath(q, infos, mounts)
	}
	for _, told := range []struct{ how, node string }{{"--node", q.Node}, {EnvNode, q.Env}} {
		if told.node == "" {
			continue
		}
		i, err := findTold(told.how, told.node, infos)
		return Found{Info: i}, err
	}
	i, err := findOnly(infos)
	return Found{Info: i}, err
}

// findPath finds the node of a path under a mount.
func findPath(q Query, infos []Info, mounts []Mount) (Found, error) {
	told, err := toldInfo(q, &infos)
	if err != nil {
		return Found{}, err
	}
	abs, err := resolve(q.Path, points(infos, mounts))
	if err != nil {
		return Found{}, err
	}
	point := longestPrefix(abs, points(infos, mounts))
	if point == "" {
		return Found{}, notUnder(q.Path, infos)
	}
	i, root, ok := owner(point, infos, mounts)
	switch {
	case ok:
	case told.Node != "" && told.Mountpoint == "":
		i, root = told, "/"
	default:
		return Found{}, orphan(q.Path, point)
	}
	if q.Node != "" && told.Socket != i.Socket {
		return Found{}, noNode("%q is under the mount of node %s, but --node names node %s; give one or the other", q.Path, i, told)
	}
	in := inside(path.Join(root, inside(abs, point)), "/")
	return Found{Info: i, Path: abs, Inside: in}, nil
}

// toldInfo returns the node named by the flag, else by the environment, and
// adds it to infos. A wrong flag is an error; a wrong environment is not, as
// long as the path says enough.
func toldInfo(q Query, infos *[]Info) (Info, error) {
	var told Info
	var err error
	switch {
	case q.Node != "":
		if told, err = findTold("--node", q.Node, *infos); err != nil {
			return Info{}, err
		}
	case q.Env != "":
		if told, err = findTold(EnvNode, q.Env, *infos); err != nil {
			return Info{}, nil
		}
	default:
		return Info{}, nil
	}
	if !slices.ContainsFunc(*infos, func(i Info) bool { return i.Socket == told.Socket }) {
		*infos = append(*infos, told)
	}
	return told, nil
}

// points returns every directory at which a mount of ours begins.
func points(infos []Info, mounts []Mount) []string {
	var p []string
	for _, i := range infos {
		if i.Mountpoint != "" {
			p = append(p, i.Mountpoint)
		}
	}
	for _, m := range mounts {
		p = append(p, m.Point)
	}
	return p
}

// owner returns the daemon behind a mount, and which directory inside of it is
// shown there: another than "/" for a bind mount of a part.
func owner(point string, infos []Info, mounts []Mount) (Info, string, bool) {
	for _, i := range infos {
		if i.Mountpoint == point {
			return i, "/", true
		}
	}
	m, ok := mountAt(point, mounts)
	if !ok {
		return Info{}, "", false
	}
	for _, i := range infos {
		if o, ok := mountAt(i.Mountpoint, mounts); ok && o.Device == m.Device {
			return i, m.Root, true
		}
	}
	return Info{}, "", false
}

// mountAt returns the topmost mount at a point.
func mountAt(point string, mounts []Mount) (Mount, bool) {
	for n := len(mounts) - 1; n >= 0; n-- {
		if mounts[n].Point == point {
			return mounts[n], true
		}
	}
	return Mount{}, false
}

// findTold finds the node named by a cache directory or a control socket.
func findTold(how, name string, infos []Info) (Info, error) {
	abs, err := resolve(name, points(infos, nil))
	if err != nil {
		return Info{}, fmt.Errorf("%s: %w", how, err)
	}
	for _, i := range infos {
		if i.Socket == abs || slices.ContainsFunc(i.CacheDirs, func(d string) bool { return sameDir(d, abs) }) {
			return i, nil
		}
	}
	fi, err := os.Stat(abs)
	switch {
	case err != nil:
		return Info{}, noNode("%s %q names neither a cache directory nor a control socket: %w%s", how, name, err, running(infos))
	case fi.Mode()&os.ModeSocket != 0:
		if !listening(abs) {
			return Info{}, noNode("%s %q: no node listens on that socket any more%s", how, name, running(infos))
		}
		return Info{Socket: abs}, nil
	case !fi.IsDir():
		return Info{}, noNode("%s %q is neither a directory nor a socket%s", how, name, running(infos))
	}
	i, err := readInfo(filepath.Join(abs, linkName))
	switch {
	case errors.Is(err, os.ErrNotExist):
		return Info{}, noNode("%s %q: no node runs with that cache directory%s", how, name, running(infos))
	case err != nil:
		return Info{}, fmt.Errorf("%s %q: %w", how, name, err)
	case !i.Alive():
		return Info{}, notRunning(i)
	}
	return i, nil
}

func sameDir(a, b string) bool {
	if a == b {
		return true
	}
	r, err := resolve(a, nil)
	return err == nil && r == b
}

// findOnly returns the node when there is no choice. Nodes of others do not
// make a choice: this user could not talk to them.
func findOnly(infos []Info) (Info, error) {
	usable := slices.DeleteFunc(slices.Clone(infos), func(i Info) bool { return !mayConnect(i.Socket) })
	switch {
	case len(usable) == 1:
		return usable[0], nil
	case len(usable) > 1:
		return Info{}, noNode("more than one node runs here%s\nchoose one: give a path under its mount, or --node CACHE_DIR, or set %s", running(usable), EnvNode)
	case len(infos) > 0:
		return Info{}, noNode("the nodes that run here belong to another user%s\nrun the command as that user (sudo)", running(infos))
	}
	return Info{}, noNode("no p2pfs node runs here\nstart one with: p2pfs mount [META_URL] MOUNTPOINT")
}
