package node

import (
	"fmt"
	"html/template"
	"net/http"
	"os"
	"path/filepath"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/p2pfs/p2pfs/node/nodepb"
)

// status describes the node for `p2pfs status`, the page and the metrics.
func (n *Node) status() *nodepb.StatusReply {
	vs, cs, ms := n.view.State(), n.cache.Stats(), n.mount.Stats()
	r := &nodepb.StatusReply{
		Node: &nodepb.StatusReply_Node{
			Id: n.id.String(), Name: n.cfg.Name, Zone: n.cfg.Zone, Incarnation: n.incarnation,
			Pid: int64(os.Getpid()), Version: n.cfg.Version, Addrs: n.addrs, StartedUnixNs: n.started.UnixNano(),
		},
		Meta: &nodepb.StatusReply_Meta{
			Url: n.storage.redacted, State: vs.State, Cluster: n.store.Cluster.String(),
			StaleAnswers: vs.Stale, Embedded: n.storage.embedded != nil,
		},
		Mount: &nodepb.StatusReply_Mount{
			Mountpoint: []byte(n.cfg.Mountpoint), Passthrough: ms.Passthrough, PassthroughReason: ms.PassthroughReason,
			ReadOnly: n.cfg.ReadOnly, OpenFiles: int64(ms.OpenFiles), Consistency: n.cfg.Consistency,
		},
		Cache: &nodepb.StatusReply_Cache{
			UsedBytes: cs.UsedBytes, LimitBytes: cs.LimitBytes,
			Objects: int64(cs.Objects), Complete: int64(cs.Complete), InPlace: int64(cs.InPlace),
		},
		Counters: n.counters(),
		Warnings: n.warnings(),
	}
	st := n.staging.Load().Stats()
	r.Staging = &nodepb.StatusReply_Staging{Files: int64(st.Files), Bytes: st.Bytes, Failed: int64(st.Failed)}
	r.Restored = n.restored()
	if vs.Err != nil {
		r.Meta.Error = vs.Err.Error()
	}
	for _, root := range cs.Roots {
		r.Cache.FreeSpaceBytes += max(0, root.FreeBytes)
		r.Cache.Roots = append(r.Cache.Roots, &nodepb.StatusReply_Root{Dir: []byte(root.Dir), UsedBytes: root.UsedBytes, State: root.State})
	}
	return r
}

// counters are the figures that only grow, by name.
func (n *Node) counters() map[string]uint64 {
	ts, es, cs, ms := n.transferred(), n.engine.Stats(), n.cache.Stats(), n.mount.Stats()
	ps := n.staging.Load().Stats()
	out := map[string]uint64{
		"received_bytes":     ts.ReceivedBytes,
		"sent_bytes":         ts.SentBytes,
		"fetch_requests":     ts.Requests,
		"fetch_errors":       ts.Errors,
		"fetch_corrupt":      ts.Corrupt,
		"blocks_served":      ts.Served,
		"serve_errors":       ts.ServeErrors,
		"refused_requests":   ts.Refused,
		"blocks_fetched":     uint64(es.Blocks),
		"blocks_duplicate":   uint64(es.Duplicates),
		"blocks_hedged":      uint64(es.Hedges),
		"blocks_uncached":    uint64(es.Uncached),
		"peers_demoted":      uint64(es.Demoted),
		"evicted_files":      cs.Evictions,
		"daemon_reads":       ms.Reads,
		"passthrough_opens":  ms.PassthroughOpens,
		"handovers":          ms.Handovers,
		"meta_stale_answers": n.view.State().Stale,
		"publishes":          ps.Publishes,
		"publish_failures":   ps.Failures,
		"published_bytes":    ps.PublishedBytes,
	}
	n.rdmaCounters(out)
	return out
}

// warnings are the things an administrator should know of.
func (n *Node) warnings() []string {
	var out []string
	if ms := n.mount.Stats(); ms.PassthroughReason != "" && n.cfg.Passthrough != "off" {
		out = append(out, "no kernel passthrough: "+ms.PassthroughReason)
	}
	for _, root := range n.cache.Stats().Roots {
		if root.Aside > 0 {
			out = append(out, fmt.Sprintf("%d files whose maps cannot be read, and which may be kept copies, are set aside in %s: copy what you know back to its name, and remove them", root.Aside, filepath.Join(root.Dir, "aside")))
		}
		if root.State != "ok" {
			out = append(out, fmt.Sprintf("cache directory %s: %s", root.Dir, root.State))
		}
	}
	if vs := n.view.State(); vs.Err != nil {
		out = append(out, fmt.Sprintf("metadata store %s: %v", n.storage.redacted, vs.Err))
	}
	if n.noRDMA != "" && len(n.cfg.RDMA.Devices) > 0 {
		out = append(out, "blocks go over TCP: "+n.noRDMA)
	}
	if u := n.unpublished(); u != "" {
		out = append(out, u)
	}
	if h := n.heldWarning(); h != "" {
		out = append(out, h)
	}
	return out
}

// gauges are the figures that go up and down.
func (n *Node) gauges() map[string]float64 {
	st := n.staging.Load().Stats()
	cs, ms := n.cache.Stats(), n.mount.Stats()
	up := 0.0
	if n.view.State().Err == nil {
		up = 1
	}
	return map[string]float64{
		"cache_used_bytes": float64(cs.UsedBytes),
		"cache_objects":    float64(cs.Objects),
		"open_files":       float64(ms.OpenFiles),
		"inodes":           float64(ms.Inodes),
		"meta_up":          up,
		"staged_files":     float64(st.Files),
		"staged_bytes":     float64(st.Bytes),
		"unpublished":      float64(st.Failed),
	}
}

// collector gives Prometheus the node's figures as they are when asked.
type collector struct{ node *Node }

// Describe implements prometheus.Collector: the metrics are unchecked, since
// their names come with their values.
func (collector) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (c collector) Collect(out chan<- prometheus.Metric) {
	emit := func(name, suffix string, kind prometheus.ValueType, v float64) {
		d := prometheus.NewDesc("p2pfs_"+name+suffix, name, nil, prometheus.Labels{"node": c.node.cfg.Name})
		out <- prometheus.MustNewConstMetric(d, kind, v)
	}
	for name, v := range c.node.counters() {
		emit(name, "_total", prometheus.CounterValue, float64(v))
	}
	for name, v := range c.node.gauges() {
		emit(name, "", prometheus.GaugeValue, v)
	}
}

// statusHandler serves /metrics, /healthz and a status page.
func (n *Node) statusHandler() http.Handler {
	reg := prometheus.NewRegistry()
	reg.MustRegister(collector{n}, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	page := template.Must(template.New("status").Parse(statusPage))
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(reg, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		if err := page.Execute(w, n.status()); err != nil {
			n.log.Debug("status page not sent", "err", err)
		}
	})
	return mux
}

const statusPage = `<!doctype html>
<title>p2pfs {{.Node.Name}}</title>
<style>body{font:15px sans-serif;margin:2em}td{padding:.15em 1em .15em 0}</style>
<h1>p2pfs node {{.Node.Name}}</h1>
{{range .Warnings}}<p><b>{{.}}</b></p>{{end}}
<table>
<tr><td>node<td>{{.Node.Id}}
<tr><td>mounted at<td>{{printf "%s" .Mount.Mountpoint}}
<tr><td>passthrough<td>{{.Mount.Passthrough}} {{.Mount.PassthroughReason}}
<tr><td>metadata store<td>{{.Meta.Url}}: {{.Meta.State}}
<tr><td>not published<td>{{.Staging.Files}} files, {{.Staging.Bytes}} bytes; {{.Staging.Failed}} wait for p2pfs recover
<tr><td>cluster<td>{{.Meta.Cluster}}
<tr><td>cache<td>{{.Cache.UsedBytes}} bytes in {{.Cache.Objects}} objects, {{.Cache.InPlace}} registered in place
</table>
<h2>Counters</h2>
<table>{{range $k, $v := .Counters}}<tr><td>{{$k}}<td>{{$v}}{{end}}</table>
`
