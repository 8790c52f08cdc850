package main

import (
	"fmt"
	"net"
	"net/url"
	"strings"

	"github.com/p2pfs/p2pfs/node"
)

// readyNode is what mount tells when the mount can be used; also its JSON.
type readyNode struct {
	Mountpoint       string   `json:"mountpoint"`
	MountpointBase64 string   `json:"mountpoint_base64,omitempty"`
	Node             string   `json:"node"`
	Name             string   `json:"name"`
	PID              int      `json:"pid"`
	CacheDirs        []string `json:"cache_dirs"`
	MetaURL          string   `json:"meta_url"`
	MetaDir          string   `json:"meta_dir,omitempty"`
	Embedded         bool     `json:"embedded"`
	NewCluster       bool     `json:"new_cluster"`
	Listen           string   `json:"listen"`
	HTTP             string   `json:"http,omitempty"`
	Join             string   `json:"join,omitempty"` // the command for other nodes
	LogFile          string   `json:"log_file,omitempty"`
	Warnings         []string `json:"warnings"` // as in status
}

func newReadyNode(i node.Info, cfg node.Config, pid int) readyNode {
	r := readyNode{
		Node: i.ID.String(), Name: i.Name, PID: pid, CacheDirs: cfg.CacheDirs, MetaURL: i.MetaURL,
		Embedded: i.Embedded, NewCluster: i.NewCluster, Listen: i.Listen, HTTP: i.HTTP,
		Warnings: append([]string{}, i.Warnings...),
	}
	r.Mountpoint, r.MountpointBase64 = jsonText(i.Mountpoint)
	if i.Embedded {
		r.MetaDir = cfg.MetaDir
		r.Join = "p2pfs mount " + i.MetaURL + " MOUNTPOINT"
	}
	return r
}

// printReady says that the mount can be used, and how others join.
func (a *app) printReady(r readyNode) error {
	if a.json {
		return a.printJSON(r)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s is mounted: node %s (%s), pid %d, cache %s\n", a.shown(r.Mountpoint), r.Name, shortID(r.Node), r.PID, r.CacheDirs[0])
	if r.HTTP != "" {
		fmt.Fprintf(&b, "status page: http://%s/\n", r.HTTP)
	}
	switch {
	case r.NewCluster && r.Embedded:
		fmt.Fprintf(&b, "new cluster, its metadata store runs inside this node")
		if r.MetaDir != "" {
			fmt.Fprintf(&b, " and lies in %s", r.MetaDir)
		}
		b.WriteByte('\n')
	case r.NewCluster:
		fmt.Fprintf(&b, "new cluster: the store at %s was empty\n", r.MetaURL)
	}
	if r.Join != "" {
		fmt.Fprintf(&b, "other nodes join with: %s\n", r.Join)
	}
	if r.LogFile != "" { // of a node in the foreground they are in its log, on standard error
		for _, w := range r.Warnings {
			fmt.Fprintf(&b, "warning: %s\n", w)
		}
	}
	return a.printf("%s", b.String())
}

// isWildcard reports whether HOST:PORT means every address of the machine.
func isWildcard(hp string) bool {
	host, _, err := net.SplitHostPort(hp)
	if err != nil {
		return false
	}
	ip := net.ParseIP(host)
	return host == "" || ip != nil && ip.IsUnspecified()
}

// onlyLocal reports whether HOST:PORT can be reached from this machine alone.
func onlyLocal(hp string) bool {
	host, _, err := net.SplitHostPort(hp)
	if err != nil {
		return false
	}
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// localStore reports whether a store lies on this machine, or it is not clear.
func localStore(metaURL string) bool {
	u, err := url.Parse(metaURL)
	if err != nil || u.Host == "" {
		return true
	}
	for hp := range strings.SplitSeq(u.Host, ",") {
		if _, _, err := net.SplitHostPort(hp); err != nil {
			hp = net.JoinHostPort(strings.Trim(hp, "[]"), "0")
		}
		if !onlyLocal(hp) {
			return false
		}
	}
	return true
}
