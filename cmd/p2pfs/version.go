package main

import (
	"fmt"
	"maps"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/p2pfs/p2pfs/node/doctor"
)

// version is set by the linker (-X main.version=...) in releases; otherwise
// the build's own record is used.
var version string

func (a *app) versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version of the program",
		Long:  "Print the version of the program, of what it was built with, and of the protocols\nit speaks.",
		Args:  argCount(0, 0),
		RunE:  func(*cobra.Command, []string) error { return a.printVersion() },
	}
}

// versionJSON is the JSON that version prints.
type versionJSON struct {
	Version   string         `json:"version"`
	Revision  string         `json:"revision,omitempty"`
	Modified  bool           `json:"modified,omitempty"`
	Go        string         `json:"go"`
	GoFuse    string         `json:"go_fuse,omitempty"`
	Platform  string         `json:"platform"`
	RDMA      bool           `json:"rdma"` // built with it
	Protocols map[string]int `json:"protocols"`
}

func newVersionJSON() versionJSON {
	v := versionJSON{
		Version: version, Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH,
		RDMA: doctor.BuiltWithRDMA, Protocols: protocols(),
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		info = &debug.BuildInfo{}
	}
	if v.Version == "" {
		v.Version = info.Main.Version
	}
	if v.Version == "" || v.Version == "(devel)" {
		v.Version = "devel"
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			v.Revision = s.Value
		case "vcs.modified":
			v.Modified = s.Value == "true"
		}
	}
	for _, d := range info.Deps {
		if d.Path == "github.com/hanwen/go-fuse/v2" {
			v.GoFuse = d.Version
		}
	}
	return v
}

func (a *app) printVersion() error {
	v := newVersionJSON()
	if a.json {
		return a.printJSON(v)
	}
	rev := ""
	if v.Revision != "" {
		rev = " (" + v.Revision
		if v.Modified {
			rev += ", modified"
		}
		rev += ")"
	}
	rdma := "with RDMA"
	if !v.RDMA {
		rdma = "without RDMA"
	}
	return a.printf("p2pfs %s%s\n%s %s, go-fuse %s, %s\n%s", v.Version, rev, v.Go, v.Platform, orDash(v.GoFuse), rdma, protocolLines(v.Protocols))
}

// protocolLines shows each protocol's version on a line.
func protocolLines(p map[string]int) string {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(p)) {
		fmt.Fprintf(&b, "%s %d\n", name, p[name])
	}
	return b.String()
}
