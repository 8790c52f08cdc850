package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/p2pfs/p2pfs/node/nodepb"
)

func (a *app) statCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "stat PATH",
		Short: "Show a file, what of it is here, and who holds it",
		Long: `Show what the cluster knows of a file, a directory or a symlink: size, object,
how much of it is on this machine, and which nodes hold all or some of it. The
nodes are asked; one that does not answer is shown as gone.

` + exitCodesHelp,
		Example: `  p2pfs stat /mnt/models/llama/model-00001-of-00030.safetensors`,
		Args:    argCount(1, 1),
		RunE:    func(cmd *cobra.Command, args []string) error { return a.stat(cmd.Context(), args[0]) },
	}
}

// statJSON is the JSON that stat prints.
type statJSON struct {
	Path       string `json:"path"` // where it is seen on this machine
	PathBase64 string `json:"path_base64,omitempty"`
	entryJSON
	Inode        uint64         `json:"inode"`
	Set          string         `json:"set,omitempty"`
	ChunkSize    int64          `json:"chunk_size"`
	BlockSize    int64          `json:"block_size"`
	Blocks       int64          `json:"blocks"`
	LocalBytes   int64          `json:"local_bytes"`
	Pinned       bool           `json:"pinned"`            // not evicted here
	Expires      string         `json:"expires,omitempty"` // RFC 3339; from then on the name is not there
	ExpiresNs    int64          `json:"expires_ns,omitempty"`
	SourcePath   string         `json:"source_path,omitempty"` // of a file registered here
	SourceBase64 string         `json:"source_path_base64,omitempty"`
	Providers    []providerJSON `json:"providers"`
	Error        string         `json:"error,omitempty"` // why the providers are not known
}

type providerJSON struct {
	Node     string            `json:"node"`
	Name     string            `json:"name"`
	Zone     string            `json:"zone,omitempty"`
	Addrs    map[string]string `json:"addrs"`
	Complete bool              `json:"complete"`
	Blocks   int64             `json:"blocks"`
	Keeper   bool              `json:"keeper"`
	Alive    bool              `json:"alive"`
	Self     bool              `json:"self"`
}

func newStatJSON(path string, r *nodepb.StatReply) statJSON {
	out := statJSON{
		entryJSON: newEntryJSON(r.GetItem()), Inode: r.GetInode(), Set: r.GetSet(),
		ChunkSize: r.GetChunkSize(), BlockSize: r.GetBlockSize(), Blocks: r.GetBlocks(), LocalBytes: r.GetLocalBytes(),
		Pinned: r.GetPinned(), Error: r.GetError(), Providers: []providerJSON{},
	}
	if ns := r.GetExpiresNs(); ns != 0 {
		out.Expires, out.ExpiresNs = time.Unix(0, ns).UTC().Format(time.RFC3339Nano), ns
	}
	out.Path, out.PathBase64 = jsonText(path)
	out.Name, out.NameBase64 = jsonText(lastName(string(r.GetItem().GetPath())))
	out.SourcePath, out.SourceBase64 = jsonText(r.GetSource())
	for _, p := range r.GetProviders() {
		out.Providers = append(out.Providers, providerJSON{
			Node: p.GetNode(), Name: p.GetName(), Zone: p.GetZone(), Addrs: notNil(p.GetAddrs()), Complete: p.GetComplete(),
			Blocks: p.GetBlocks(), Keeper: p.GetKeeper(), Alive: p.GetAlive(), Self: p.GetSelf(),
		})
	}
	return out
}

// lastName returns the last part of a path inside the mount.
func lastName(p string) string { return p[strings.LastIndexByte(p, '/')+1:] }

// notNil keeps an empty map from being null in JSON.
func notNil[V any](m map[string]V) map[string]V {
	if m == nil {
		return map[string]V{}
	}
	return m
}

func (a *app) stat(ctx context.Context, name string) error {
	return a.once(ctx, name, func(ctx context.Context, s *session) error {
		r, err := s.ctl.Stat(ctx, &nodepb.PathRequest{Path: []byte(s.Inside)})
		if err != nil {
			return asked(s.Info, "stat "+quoteName(name), err)
		}
		if a.json {
			return a.printJSON(newStatJSON(s.Path, r))
		}
		return a.printStat(s.Path, r)
	})
}

func (a *app) printStat(path string, r *nodepb.StatReply) error {
	it := r.GetItem()
	var t table
	row := t.pair
	row("path", "%s", a.shown(path))
	row("kind", "%s", it.GetKind())
	row("mode", "%s, owner %s, group %s", modeString(it), userName(it.GetUid()), groupName(it.GetGid()))
	row("modified", "%s", time.Unix(0, it.GetMtimeNs()).Format(time.RFC3339))
	if ns := r.GetExpiresNs(); ns != 0 {
		row("expires", "%s", time.Unix(0, ns).Format(time.RFC3339))
	}
	row("inode", "%d", r.GetInode())
	switch it.GetKind() {
	case "symlink":
		row("target", "%s", a.shown(string(it.GetTarget())))
	case "file":
		row("size", "%d (%s)", it.GetSize(), formatSize(it.GetSize()))
		if it.GetObject() == "" {
			break
		}
		row("object", "%s", it.GetObject())
		row("set", "%s", r.GetSet())
		row("blocks", "%d of %s, chunks of %s", r.GetBlocks(), formatSize(r.GetBlockSize()), formatSize(r.GetChunkSize()))
		pinned := ""
		if r.GetPinned() {
			pinned = ", pinned"
		}
		row("here", "%s (%s, %s)%s", it.GetState(), formatSize(r.GetLocalBytes()), percent(r.GetLocalBytes(), it.GetSize()), pinned)
		if len(r.GetSource()) > 0 {
			row("source", "%s%s", a.shown(string(r.GetSource())), sourceNote(it.GetSource()))
		}
	}
	if err := t.print(a.out); err != nil {
		return err
	}
	if r.GetError() != "" {
		if err := a.printf("\nwho else holds it is not known: %s\n", r.GetError()); err != nil {
			return err
		}
	}
	if len(r.GetProviders()) == 0 {
		return nil
	}
	return a.printProviders(r)
}

// sourceNote says what is wrong with a registered file.
func sourceNote(state string) string {
	switch state {
	case "changed":
		return " (changed since it was registered: served to nobody else)"
	case "gone":
		return " (gone)"
	}
	return ""
}

func (a *app) printProviders(r *nodepb.StatReply) error {
	if err := a.printf("\n"); err != nil {
		return err
	}
	var t table
	t.row("HELD BY", "NODE", "HOLDS", "ROLE", "STATE", "ADDRESS")
	for _, p := range r.GetProviders() {
		role, state := "provider", "alive"
		if p.GetKeeper() {
			role = "keeper"
		}
		if !p.GetAlive() {
			state = "gone"
		}
		if p.GetSelf() {
			state = "this node"
		}
		t.row(orDash(p.GetName()), shortID(p.GetNode()), percent(p.GetBlocks(), r.GetBlocks()),
			role, state, addresses(p.GetAddrs()))
	}
	return t.print(a.out)
}

// percent rounds down, so that 100% means all.
func percent(part, whole int64) string {
	if whole <= 0 {
		return "100%"
	}
	return fmt.Sprintf("%d%%", int64(float64(part)/float64(whole)*100))
}

func shortID(id string) string { return id[:min(8, len(id))] }

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// addresses shows where a node is reached, the plain address where there is
// only TCP.
func addresses(addrs map[string]string) string {
	if len(addrs) == 1 && addrs["tcp"] != "" {
		return addrs["tcp"]
	}
	var all []string
	for _, kind := range slices.Sorted(maps.Keys(addrs)) {
		all = append(all, kind+"="+addrs[kind])
	}
	return orDash(strings.Join(all, " "))
}
