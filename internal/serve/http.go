package serve

import (
	"crypto/tls"
	_ "embed"
	"fmt"
	"html/template"
	"math"
	"net"
	"net/http"
	"net/http/pprof"
	"runtime"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/siftdb/sift"
	"github.com/siftdb/sift/internal/bytesize"
)

// listenHTTP starts to serve the status page and /metrics.
func (s *Server) listenHTTP() error {
	ln, err := net.Listen("tcp", s.cfg.HTTPAddr)
	if err != nil {
		return fmt.Errorf("serve: %w", err)
	}
	s.httpAddr = ln.Addr()
	ln = &limitedListener{Listener: ln, room: make(chan struct{}, maxHTTPClients)}
	if s.cfg.TLS != nil {
		ln = tls.NewListener(ln, s.cfg.TLS)
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(collector{s}, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /{$}", s.status)
	for pattern, page := range s.cfg.Pages {
		mux.HandleFunc(pattern, page)
	}
	if s.cfg.Pprof {
		mux.HandleFunc("GET /debug/pprof/", pprof.Index)
		mux.HandleFunc("GET /debug/pprof/cmdline", pprof.Cmdline)
		mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
		mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
		mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	}
	s.http = &http.Server{
		Handler:           s.guard(mux),
		ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second, WriteTimeout: 2 * time.Minute, IdleTimeout: time.Minute,
		MaxHeaderBytes: 16 << 10,
	}
	s.tasks.Go(func() {
		if err := s.http.Serve(ln); err != http.ErrServerClosed {
			s.cfg.Logger.Error("serving the status page failed", "err", err)
		}
	})
	return nil
}

// guard requires the password, if there is one. Without a password, which only a loopback address
// can have, it refuses requests under other names: the name of a web site may resolve to this
// machine (DNS rebinding), and its pages could read everything.
func (s *Server) guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s.password() == "" {
			if !isLocalHost(r.Host) {
				http.Error(w, "without a password, only requests to localhost or a loopback address are answered", http.StatusMisdirectedRequest)
				return
			}
		} else if _, password, ok := r.BasicAuth(); !ok || !s.checkPassword([]byte(password)) {
			w.Header().Set("WWW-Authenticate", `Basic realm="sift"`)
			http.Error(w, "the server's password is required", http.StatusUnauthorized)
			return
		}
		w.Header().Set("X-Content-Type-Options", "nosniff")
		w.Header().Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'")
		next.ServeHTTP(w, r)
	})
}

// isLocalHost reports whether a Host header, with or without a port, is localhost or a loopback
// address. It is empty in some requests of HTTP/1.0, which no browser sends.
func isLocalHost(host string) bool {
	if host == "" {
		return true
	}
	local, err := isLoopback(host)
	if err != nil {
		local, err = isLoopback(host + ":80")
	}
	return local && err == nil
}

// collector exports figures to Prometheus.
type collector struct{ s *Server }

var (
	perCommand     = prometheus.NewDesc("sift_commands_total", "Commands executed.", []string{"command"}, nil)
	commandTime    = prometheus.NewDesc("sift_command_seconds_total", "Time spent executing commands.", []string{"command"}, nil)
	commandLatency = prometheus.NewDesc("sift_command_duration_seconds", "Duration of commands.", nil, nil)
	buildInfo      = prometheus.NewDesc("sift_build_info", "Versions of the server.", []string{"redis_version", "go_version"}, nil)
	perFilter      = []string{"db", "key", "kind"}
	filterSize     = prometheus.NewDesc("sift_filter_bytes", "Memory of a filter.", perFilter, nil)
	filterN        = prometheus.NewDesc("sift_filter_items", "Items in a filter.", perFilter, nil)
	filterFPR      = prometheus.NewDesc("sift_filter_expected_fpr", "Expected false positive rate of a filter.", perFilter, nil)
	filterSeen     = prometheus.NewDesc("sift_filter_observed_fpr", "Observed false positive rate of a filter.", perFilter, nil)
	groupLag       = prometheus.NewDesc("sift_group_lag_entries", "Log entries that a node of the group lacks, as far as its leader knows.", []string{"node"}, nil)
	shardLeads     = prometheus.NewDesc("sift_shard_leads", "Whether the node leads the group of these slots.", []string{"slots"}, nil)
	shardNodes     = prometheus.NewDesc("sift_shard_nodes", "Nodes of the group of these slots.", []string{"slots"}, nil)
	shardLag       = prometheus.NewDesc("sift_shard_lag_entries", "Log entries that a node of the group of these slots lacks, as far as its leader knows.", []string{"slots", "node"}, nil)
	levelBytes     = prometheus.NewDesc("sift_level_bytes", "Size of a level of the store.", []string{"level"}, nil)
)

// metric returns the histogram of all commands.
func (l *latency) metric() prometheus.Metric {
	buckets := map[float64]uint64{}
	total := uint64(0)
	for i := range l.counts {
		total += l.counts[i].Load()
		if i < latencyBuckets-1 {
			buckets[float64(uint64(1)<<i)/1e6] = total
		}
	}
	nanos := int64(0)
	for _, cmd := range commands {
		nanos += cmd.nanos.Load()
	}
	return prometheus.MustNewConstHistogram(commandLatency, total, float64(nanos)/1e9, buckets)
}

// maxFilterSeries bounds the filters that the status page shows and that have time series.
const maxFilterSeries = 200

// Describe sends nothing, which makes the collector unchecked: what it collects depends on which
// filters exist.
func (c collector) Describe(chan<- *prometheus.Desc) {}

// Collect sends the current figures.
func (c collector) Collect(ch chan<- prometheus.Metric) {
	v := c.s.figures()
	one := func(name, help string, kind prometheus.ValueType, value float64) {
		ch <- prometheus.MustNewConstMetric(prometheus.NewDesc("sift_"+name, help, nil, nil), kind, value)
	}
	const gauge, counter = prometheus.GaugeValue, prometheus.CounterValue
	one("uptime_seconds", "Time since the start.", gauge, v.Uptime.Seconds())
	one("clients", "Open connections.", gauge, float64(v.Clients))
	one("connections_total", "Connections accepted.", counter, float64(v.Connections))
	one("rejected_connections_total", "Connections rejected.", counter, float64(v.Rejected))
	one("evicted_connections_total", "Connections closed because they held memory that others needed.", counter, float64(v.Evicted))
	one("error_replies_total", "Error replies.", counter, float64(v.Errors))
	one("auth_failures_total", "Wrong passwords and user names.", counter, float64(v.AuthFailures))
	one("protocol_errors_total", "Connections closed because of invalid input.", counter, float64(v.ProtocolErrors))
	one("keyspace_hits_total", "GETs of existing keys.", counter, float64(v.Hits))
	one("keyspace_misses_total", "GETs of absent keys.", counter, float64(v.Misses))
	one("expired_keys_total", "Expired keys removed.", counter, float64(v.Expired))
	one("filters", "Bloom and cuckoo filters.", gauge, float64(v.Filters))
	one("filter_memory_bytes", "Memory of all filters.", gauge, float64(v.FilterBytes))
	one("request_memory_bytes", "Memory of requests and replies.", gauge, float64(v.RequestBytes))
	one("syncs_total", "Syncs of the store.", counter, float64(v.Syncs))
	one("checkpoints_total", "Checkpoints of filters.", counter, float64(v.Checkpoints))
	one("store_gets_total", "Lookups in the store.", counter, float64(v.StoreGets))
	one("store_block_reads_total", "Blocks that lookups read from disk.", counter, float64(v.StoreBlockReads))
	one("store_cache_hits_total", "Blocks found in the block cache.", counter, float64(v.StoreCacheHits))
	one("store_filter_probes_total", "Probes of table filters.", counter, float64(v.FilterProbes))
	one("store_filter_reads_saved_total", "Table reads saved by a filter.", counter, float64(v.FilterSaved))
	one("store_filter_false_positives_total", "False positives of table filters.", counter, float64(v.FilterFalse))
	one("store_memory_bytes", "Memory of the store.", gauge, float64(v.StoreMemory))
	if c.s.cfg.Group != nil {
		if c.s.shards != nil {
			collectShards(ch, c.s.shardStates())
		}
		g := v.Group
		leads := c.s.cfg.Leads && (c.s.shards == nil || g.Leader == g.Self)
		one("group_leads", "Whether the node leads its group.", gauge, float64(count(leads)))
		one("group_nodes", "Nodes of the group.", gauge, float64(len(g.Members)))
		one("group_term", "The number of the group's last election.", counter, float64(g.Term))
		one("group_committed_index", "Index up to which the log is known to be committed.", counter, float64(g.Committed))
		one("group_applied_index", "Index up to which the log is applied on this node.", counter, float64(g.Applied))
		for _, m := range g.Members {
			if m.Lag >= 0 {
				ch <- prometheus.MustNewConstMetric(groupLag, gauge, float64(m.Lag), m.ID)
			}
		}
	}
	for _, cmd := range commands {
		if n := cmd.calls.Load(); n > 0 {
			ch <- prometheus.MustNewConstMetric(perCommand, counter, float64(n), cmd.name)
			ch <- prometheus.MustNewConstMetric(commandTime, counter, float64(cmd.nanos.Load())/1e9, cmd.name)
		}
	}
	ch <- c.s.stats.latency.metric()
	ch <- prometheus.MustNewConstMetric(buildInfo, gauge, 1, redisVersion, runtime.Version())
	for i, l := range c.s.levels() {
		ch <- prometheus.MustNewConstMetric(levelBytes, gauge, float64(l.Bytes), fmt.Sprint(i))
	}
	states, _ := c.s.filterStates(maxFilterSeries)
	for _, f := range states {
		for desc, value := range map[*prometheus.Desc]float64{
			filterSize: float64(f.Bytes), filterN: float64(f.Items), filterFPR: f.Expected, filterSeen: f.Observed,
		} {
			ch <- prometheus.MustNewConstMetric(desc, gauge, value, strconv.Itoa(f.DB), f.Key, f.Kind)
		}
	}
}

// collectShards exports the figures of a node's groups, except for the directory group.
func collectShards(ch chan<- prometheus.Metric, shards []shardState) {
	for _, g := range shards {
		of := g.Slots()
		const gauge = prometheus.GaugeValue
		ch <- prometheus.MustNewConstMetric(shardLeads, gauge, float64(count(g.Leader == g.Self)), of)
		ch <- prometheus.MustNewConstMetric(shardNodes, gauge, float64(len(g.Members)), of)
		for _, m := range g.Members {
			if m.Lag >= 0 {
				ch <- prometheus.MustNewConstMetric(shardLag, gauge, float64(m.Lag), of, m.ID)
			}
		}
	}
}

//go:embed status.html
var statusHTML string

var statusPage = template.Must(template.New("status").Funcs(template.FuncMap{
	"bytes": formatBytes, "rate": formatRate, "count": formatCount,
	"perItem": func(v float64) string { return strconv.FormatFloat(v, 'f', max(0, 2-int(math.Log10(max(v, 1)))), 64) },
	"round":   func(d time.Duration) time.Duration { return d.Round(time.Second) },
}).Parse(statusHTML))

// status writes the status page.
func (s *Server) status(w http.ResponseWriter, r *http.Request) {
	type level struct {
		Level                       int
		Tables                      int
		Bytes, Probes, Saved, False uint64
		Expected, Observed          float64
	}
	data := struct {
		Now                      time.Time
		Addr                     string
		F                        figures
		MaxFilterBytes           int64
		Levels                   []level
		Filters                  []filterState
		MoreFilters              int
		HitRate, SavedShare      float64
		MaxClients               int
		MaxRequestBytes          int64
		BlockCache, TableFilters uint64
		Shards                   []shardState
	}{Now: time.Now().UTC().Truncate(time.Second), Addr: s.Addr().String(), F: s.figures(), MaxFilterBytes: s.cfg.FilterBytes, MaxClients: s.cfg.MaxClients,
		MaxRequestBytes: s.cfg.RequestBytes}
	var filters int
	data.Filters, filters = s.filterStates(maxFilterSeries)
	data.MoreFilters = filters - len(data.Filters)
	s.eachPart(func(p *Server) error {
		m := p.db.Metrics().Memory
		data.BlockCache += m.BlockCache
		data.TableFilters += m.Filters
		return nil
	})
	if s.shards != nil {
		data.Shards = s.shardStates()
	}
	for i, l := range s.levels() {
		if l.Tables > 0 {
			data.Levels = append(data.Levels, level{i, l.Tables, l.Bytes, l.Filter.Probes, l.Filter.Useful, l.Filter.FalsePositive,
				l.Filter.ExpectedFPR, l.Filter.ObservedFPR()})
		}
	}
	data.HitRate = share(data.F.Hits, data.F.Hits+data.F.Misses)
	data.SavedShare = share(data.F.FilterSaved, data.F.FilterProbes)
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	if err := statusPage.Execute(w, data); err != nil {
		s.cfg.Logger.Debug("sending the status page failed", "err", err)
	}
}

// levels adds up the levels of the stores.
func (s *Server) levels() (sum []sift.LevelMetrics) {
	s.eachPart(func(p *Server) error {
		levels := p.db.Metrics().Levels
		if sum == nil {
			sum = levels[:]
			return nil
		}
		for i, l := range levels {
			a := &sum[i]
			switch whole := float64(a.Bytes + l.Bytes); {
			case a.Bytes == 0:
				a.Filter.ExpectedFPR = l.Filter.ExpectedFPR
			case l.Bytes > 0:
				a.Filter.ExpectedFPR = (a.Filter.ExpectedFPR*float64(a.Bytes) + l.Filter.ExpectedFPR*float64(l.Bytes)) / whole
			}
			a.Tables += l.Tables
			a.Bytes += l.Bytes
			a.Filter.Probes += l.Filter.Probes
			a.Filter.Useful += l.Filter.Useful
			a.Filter.TruePositive += l.Filter.TruePositive
			a.Filter.FalsePositive += l.Filter.FalsePositive
		}
		return nil
	})
	return sum
}

func share(part, whole uint64) float64 {
	if whole == 0 {
		return math.NaN()
	}
	return float64(part) / float64(whole)
}

func formatBytes(v any) string {
	switch v := v.(type) {
	case uint64:
		return bytesize.Size(v).String()
	case int64:
		return bytesize.Size(v).String()
	case int:
		return bytesize.Size(v).String()
	}
	return fmt.Sprint(v)
}

func formatRate(v float64) string {
	if math.IsNaN(v) {
		return "–"
	}
	if v > 0 && v < 1e-6 {
		return "< 0.0001%"
	}
	return fmt.Sprintf("%.3g%%", 100*v)
}

// formatCount groups digits by threes.
func formatCount(v any) string {
	s := fmt.Sprint(v)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "\u202f" + s[i:]
	}
	return s
}
