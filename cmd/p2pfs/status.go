package main

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/p2pfs/p2pfs/node/nodepb"
)

func (a *app) statusCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "status",
		Short: "Show the node on this machine",
		Long: `Show the node on this machine: who it is, its metadata store, its mount, its cache,
and what it has received from and sent to other nodes since it started.

` + exitCodesHelp,
		Example: `  p2pfs status
  p2pfs status --node /var/cache/p2pfs/models --json`,
		Args: argCount(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error { return a.status(cmd.Context()) },
	}
}

// statusJSON is the JSON that status prints.
type statusJSON struct {
	Node     nodeJSON          `json:"node"`
	Meta     metaJSON          `json:"meta"`
	Mount    mountJSON         `json:"mount"`
	Cache    cacheJSON         `json:"cache"`
	Staging  stagingJSON       `json:"staging"`
	Counters map[string]uint64 `json:"counters"`
	Warnings []string          `json:"warnings"`
}

type nodeJSON struct {
	ID          string            `json:"id"`
	Name        string            `json:"name"`
	Zone        string            `json:"zone"`
	Incarnation uint64            `json:"incarnation"`
	PID         int64             `json:"pid"`
	Version     string            `json:"version"`
	Addrs       map[string]string `json:"addrs"`
	Started     string            `json:"started"` // RFC 3339
}

type metaJSON struct {
	URL          string `json:"url"`
	State        string `json:"state"`
	Cluster      string `json:"cluster"`
	Embedded     bool   `json:"embedded"`
	StaleAnswers uint64 `json:"stale_answers"`
	Error        string `json:"error,omitempty"`
	// Restored is the last time that this node brought names back.
	Restored *restoredJSON `json:"restored,omitempty"`
}

type restoredJSON struct {
	At      string `json:"at"`
	Why     string `json:"why"`
	Names   int64  `json:"names"`
	Removed int64  `json:"removed"`
	Waiting int64  `json:"waiting"`
}

func newRestoredJSON(r *nodepb.StatusReply_Restored) *restoredJSON {
	if r == nil {
		return nil
	}
	return &restoredJSON{
		At: time.Unix(0, r.GetUnixNs()).UTC().Format(time.RFC3339Nano), Why: r.GetWhy(),
		Names: r.GetNames(), Removed: r.GetRemoved(), Waiting: r.GetWaiting(),
	}
}

type mountJSON struct {
	Mountpoint        string `json:"mountpoint"`
	MountpointBase64  string `json:"mountpoint_base64,omitempty"`
	Passthrough       string `json:"passthrough"`
	PassthroughReason string `json:"passthrough_reason,omitempty"`
	ReadOnly          bool   `json:"read_only"`
	OpenFiles         int64  `json:"open_files"`
	Consistency       string `json:"consistency"`
}

type cacheJSON struct {
	UsedBytes      int64      `json:"used_bytes"`
	LimitBytes     int64      `json:"limit_bytes"`      // 0: none
	FreeSpaceBytes int64      `json:"free_space_bytes"` // that may still be written, above what is kept free
	Objects        int64      `json:"objects"`
	Complete       int64      `json:"complete"`
	InPlace        int64      `json:"in_place"`
	Roots          []rootJSON `json:"roots"`
}

// stagingJSON is what was written here and is not published.
type stagingJSON struct {
	Files  int64 `json:"files"`
	Bytes  int64 `json:"bytes"`
	Failed int64 `json:"failed"` // of those, files that wait for recover
}

type rootJSON struct {
	Dir       string `json:"dir"`
	DirBase64 string `json:"dir_base64,omitempty"`
	UsedBytes int64  `json:"used_bytes"`
	State     string `json:"state"`
}

func newStatusJSON(r *nodepb.StatusReply) statusJSON {
	n, m, mt, c := r.GetNode(), r.GetMeta(), r.GetMount(), r.GetCache()
	out := statusJSON{
		Node: nodeJSON{
			ID: n.GetId(), Name: n.GetName(), Zone: n.GetZone(), Incarnation: n.GetIncarnation(), PID: n.GetPid(),
			Version: n.GetVersion(), Addrs: notNil(n.GetAddrs()),
			Started: time.Unix(0, n.GetStartedUnixNs()).UTC().Format(time.RFC3339Nano),
		},
		Meta: metaJSON{
			URL: m.GetUrl(), State: m.GetState(), Cluster: m.GetCluster(), Embedded: m.GetEmbedded(),
			StaleAnswers: m.GetStaleAnswers(), Error: m.GetError(), Restored: newRestoredJSON(r.GetRestored()),
		},
		Mount: mountJSON{
			Passthrough: mt.GetPassthrough(), PassthroughReason: mt.GetPassthroughReason(), ReadOnly: mt.GetReadOnly(),
			OpenFiles: mt.GetOpenFiles(), Consistency: mt.GetConsistency(),
		},
		Cache: cacheJSON{
			UsedBytes: c.GetUsedBytes(), LimitBytes: c.GetLimitBytes(), FreeSpaceBytes: c.GetFreeSpaceBytes(),
			Objects: c.GetObjects(), Complete: c.GetComplete(), InPlace: c.GetInPlace(), Roots: []rootJSON{},
		},
		Staging: stagingJSON{
			Files: r.GetStaging().GetFiles(), Bytes: r.GetStaging().GetBytes(), Failed: r.GetStaging().GetFailed(),
		},
		Counters: notNil(r.GetCounters()),
		Warnings: append([]string{}, r.GetWarnings()...),
	}
	out.Mount.Mountpoint, out.Mount.MountpointBase64 = jsonText(mt.GetMountpoint())
	for _, root := range c.GetRoots() {
		j := rootJSON{UsedBytes: root.GetUsedBytes(), State: root.GetState()}
		j.Dir, j.DirBase64 = jsonText(root.GetDir())
		out.Cache.Roots = append(out.Cache.Roots, j)
	}
	for _, always := range []string{"received_bytes", "sent_bytes"} {
		if _, ok := out.Counters[always]; !ok {
			out.Counters[always] = 0
		}
	}
	return out
}

func (a *app) status(ctx context.Context) error {
	return a.once(ctx, "", func(ctx context.Context, s *session) error {
		r, err := s.ctl.Status(ctx, &nodepb.StatusRequest{})
		if err != nil {
			return asked(s.Info, "status", err)
		}
		if a.json {
			return a.printJSON(newStatusJSON(r))
		}
		return a.printStatus(newStatusJSON(r))
	})
}

func (a *app) printStatus(s statusJSON) error {
	var t table
	row := t.pair
	row("node", "%s (%s)", s.Node.Name, s.Node.ID)
	row("running", "since %s, pid %d, version %s", s.Node.Started, s.Node.PID, orDash(s.Node.Version))
	if s.Node.Zone != "" {
		row("zone", "%s", s.Node.Zone)
	}
	row("reached at", "%s", addresses(s.Node.Addrs))
	where := ""
	if s.Meta.Embedded {
		where = ", inside this node"
	}
	row("metadata", "%s (%s%s)", s.Meta.URL, s.Meta.State, where)
	if s.Meta.Error != "" {
		row("", "%s", s.Meta.Error)
	}
	row("cluster", "%s", s.Meta.Cluster)
	if b := s.Meta.Restored; b != nil {
		row("names back", "%d at %s: %s", b.Names, b.At, b.Why)
	}
	access := ""
	if s.Mount.ReadOnly {
		access = "read-only, "
	}
	row("mounted at", "%s (%sconsistency %s, %s)", a.shown(s.Mount.Mountpoint), access, s.Mount.Consistency, plural(s.Mount.OpenFiles, "open file"))
	row("passthrough", "%s", reason(s.Mount.Passthrough, s.Mount.PassthroughReason))
	limit := "no limit but the disk, which takes " + formatSize(s.Cache.FreeSpaceBytes) + " more"
	if s.Cache.LimitBytes > 0 {
		limit = "of " + formatSize(s.Cache.LimitBytes)
	}
	row("cache", "%s used, %s; %s: %d complete, %d registered in place",
		formatSize(s.Cache.UsedBytes), limit, plural(s.Cache.Objects, "object"), s.Cache.Complete, s.Cache.InPlace)
	for _, root := range s.Cache.Roots {
		row("", "%s: %s, %s", a.shown(root.Dir), formatSize(root.UsedBytes), root.State)
	}
	if s.Staging.Files > 0 {
		row("not published", "%s, %s; %d for p2pfs recover", plural(s.Staging.Files, "file"), formatSize(s.Staging.Bytes), s.Staging.Failed)
	}
	row("received", "%s from other nodes", formatSize(int64(s.Counters["received_bytes"])))
	row("sent", "%s to other nodes", formatSize(int64(s.Counters["sent_bytes"])))
	for _, name := range slices.Sorted(maps.Keys(s.Counters)) {
		if name != "received_bytes" && name != "sent_bytes" && s.Counters[name] != 0 {
			row(name, "%d", s.Counters[name])
		}
	}
	for _, warning := range s.Warnings {
		row("warning", "%s", warning)
	}
	return t.print(a.out)
}

// reason adds why, if it is known.
func reason(what, why string) string {
	if why == "" {
		return what
	}
	return what + ": " + why
}
