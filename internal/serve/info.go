package serve

import (
	"fmt"
	"math"
	"os"
	"runtime"
	"sort"
	"strings"
	"sync"
	"time"
)

// section is a part of INFO.
type section struct {
	name  string
	extra bool // not one of the default sections
	text  func(c *client, v *figures, b *strings.Builder)
}

var sections = []section{
	{"Server", false, func(c *client, v *figures, b *strings.Builder) {
		up := int64(v.Uptime.Seconds())
		fmt.Fprintf(b, "redis_version:%s\r\nredis_git_sha1:00000000\r\nredis_git_dirty:0\r\nredis_build_id:0\r\nredis_mode:%s\r\nserver_name:sift\r\nos:%s\r\narch_bits:%d\r\ngo_version:%s\r\nprocess_id:%d\r\nrun_id:%x\r\ntcp_port:%s\r\nuptime_in_seconds:%d\r\nuptime_in_days:%d\r\n",
			redisVersion, c.srv.mode(), runtime.GOOS+" "+runtime.GOARCH, 32<<(^uint(0)>>63), runtime.Version(), os.Getpid(), c.srv.secret, portOf(c.srv.Addr().String()), up, up/86400)
	}},
	{"Clients", false, func(c *client, v *figures, b *strings.Builder) {
		fmt.Fprintf(b, "connected_clients:%d\r\ncluster_connections:0\r\nmaxclients:%d\r\nblocked_clients:0\r\ntracking_clients:0\r\nrequest_memory:%d\r\n", v.Clients, c.srv.cfg.MaxClients, v.RequestBytes)
	}},
	{"Memory", false, func(c *client, v *figures, b *strings.Builder) {
		fmt.Fprintf(b, "used_memory:%d\r\nused_memory_human:%s\r\nused_memory_rss:%d\r\nused_memory_peak:%d\r\nfilter_memory:%d\r\nmaxmemory:%d\r\nmaxmemory_policy:noeviction\r\nmem_fragmentation_ratio:1.00\r\nstore_memory:%d\r\n",
			v.HeapBytes, formatBytes(v.HeapBytes), v.SystemBytes, v.SystemBytes, v.FilterBytes, c.srv.cfg.FilterBytes, v.StoreMemory)
	}},
	{"Persistence", false, func(c *client, v *figures, b *strings.Builder) {
		root := c.srv.root
		fmt.Fprintf(b, "loading:0\r\nasync_loading:0\r\nrdb_changes_since_last_save:0\r\nrdb_bgsave_in_progress:%d\r\nrdb_last_save_time:%d\r\nrdb_last_bgsave_status:%s\r\naof_enabled:1\r\naof_rewrite_in_progress:0\r\naof_last_bgrewrite_status:ok\r\nappendfsync:%s\r\naof_last_write_status:%s\r\nsyncs:%d\r\ncheckpoints:%d\r\n",
			count(root.saving.Load()), c.srv.stats.lastSave.Load(), okOrErr(root.saveFailed.Load()), v.Fsync, okOrErr(v.Failed), v.Syncs, v.Checkpoints)
	}},
	{"Stats", false, func(c *client, v *figures, b *strings.Builder) {
		fmt.Fprintf(b, "total_connections_received:%d\r\ntotal_commands_processed:%d\r\ninstantaneous_ops_per_sec:%d\r\nrejected_connections:%d\r\nexpired_keys:%d\r\nevicted_keys:0\r\nevicted_clients:%d\r\nkeyspace_hits:%d\r\nkeyspace_misses:%d\r\npubsub_channels:0\r\npubsub_patterns:0\r\ntotal_error_replies:%d\r\nprotocol_errors:%d\r\nauth_failures:%d\r\n",
			v.Connections, v.Commands, c.srv.opsPerSec(v.Commands), v.Rejected, v.Expired, v.Evicted, v.Hits, v.Misses, v.Errors, v.ProtocolErrors, v.AuthFailures)
	}},
	{"Replication", false, func(c *client, v *figures, b *strings.Builder) {
		fmt.Fprintf(b, "role:%s\r\nconnected_slaves:%d\r\nmaster_failover_state:no-failover\r\nmaster_repl_offset:%d\r\n", c.srv.root.role(), v.Followers, v.Group.Applied)
	}},
	{"CPU", false, func(c *client, v *figures, b *strings.Builder) {
		user, system := cpuSeconds()
		fmt.Fprintf(b, "used_cpu_sys:%.6f\r\nused_cpu_user:%.6f\r\nused_cpu_sys_children:0.000000\r\nused_cpu_user_children:0.000000\r\n", system, user)
	}},
	{"Modules", false, func(c *client, v *figures, b *strings.Builder) {
		b.WriteString("module:name=bf,ver=80000,api=1,filters=0,usedby=[],using=[],options=[]\r\n")
	}},
	{"Commandstats", true, func(c *client, v *figures, b *strings.Builder) {
		for _, name := range commandNames() {
			cmd := commands[name]
			if calls, rejected := cmd.calls.Load(), cmd.rejected.Load(); calls+rejected > 0 {
				usec := cmd.nanos.Load() / 1000
				fmt.Fprintf(b, "cmdstat_%s:calls=%d,usec=%d,usec_per_call=%.2f,rejected_calls=%d,failed_calls=%d\r\n",
					name, calls, usec, float64(usec)/math.Max(1, float64(calls)), rejected, cmd.failed.Load())
			}
		}
	}},
	{"Errorstats", false, func(c *client, v *figures, b *strings.Builder) {
		e := &c.srv.stats.errorCounts
		e.mu.Lock()
		defer e.mu.Unlock()
		var words []string
		for word := range e.byWord {
			words = append(words, word)
		}
		sort.Strings(words)
		for _, word := range words {
			fmt.Fprintf(b, "errorstat_%s:count=%d\r\n", word, e.byWord[word])
		}
	}},
	{"Cluster", false, func(c *client, v *figures, b *strings.Builder) {
		fmt.Fprintf(b, "cluster_enabled:%d\r\n", count(c.srv.cfg.Group != nil))
	}},
	{"Keyspace", false, func(c *client, v *figures, b *strings.Builder) {
		if c.srv.follows() {
			return // a follower does not count changes
		}
		var total [numDatabases]keyCount
		for _, p := range c.counted() {
			if err := p.using(func() error { return c.addKeys(&total, p) }); err != nil {
				c.srv.cfg.Logger.Error("counting the keys failed", "err", err)
				return
			}
		}
		for db, n := range total {
			if n.keys > 0 {
				fmt.Fprintf(b, "db%d:keys=%d,expires=%d,avg_ttl=0\r\n", db, n.keys, n.expires)
			}
		}
	}},
	{"Store", false, func(c *client, v *figures, b *strings.Builder) {
		fmt.Fprintf(b, "store_gets:%d\r\nstore_block_reads:%d\r\nstore_cache_hits:%d\r\nstore_filter_probes:%d\r\nstore_filter_reads_saved:%d\r\nstore_filter_false_positives:%d\r\nstore_tables:%d\r\nstore_table_bytes:%d\r\nstore_table_entries:%d\r\n",
			v.StoreGets, v.StoreBlockReads, v.StoreCacheHits, v.FilterProbes, v.FilterSaved, v.FilterFalse, v.StoreTables, v.StoreTableBytes, v.StoreEntries)
	}},
	{"Filters", false, func(c *client, v *figures, b *strings.Builder) { fmt.Fprintf(b, "filters:%d\r\n", v.Filters) }},
}

// figures returns the figures that INFO shows: those of the node. In a transaction, these include
// only the store of the current server.
func (c *client) figures() figures {
	if !c.inExec {
		return c.srv.root.figures()
	}
	v := c.srv.root.ownFigures()
	if c.srv.db != nil {
		c.srv.addTo(&v)
	}
	return v
}

// counted returns the servers whose keys INFO counts. In a transaction, which delays all other
// clients of its server, INFO does not wait for other servers.
func (c *client) counted() (out []*Server) {
	if c.inExec {
		return []*Server{c.srv}
	}
	for _, p := range c.srv.parts() {
		if !p.follows() {
			out = append(out, p)
		}
	}
	return out
}

// addKeys adds the numbers of a server's keys to total.
func (c *client) addKeys(total *[numDatabases]keyCount, p *Server) error {
	if p.db == nil {
		return nil
	}
	dbs, err := p.keyCounts.count(p, c.inExec, true)
	if err != nil {
		return err
	}
	for db := range total {
		n := dbs[p.gens[db].Load()]
		total[db].keys += n.keys
		total[db].expires += n.expires
		if c.inExec {
			if err := c.in(db, func() error {
				more, err := c.overlaid()
				total[db].keys += more.keys
				total[db].expires += more.expires
				return err
			}); err != nil {
				return err
			}
		}
	}
	return nil
}

func info(c *client, args [][]byte) {
	v := c.figures()
	var b strings.Builder
	for _, sec := range sections {
		wanted := len(args) == 1 && !sec.extra
		for _, a := range args[1:] {
			wanted = wanted || is(a, sec.name) || is(a, "all") || is(a, "everything") || is(a, "default") && !sec.extra
		}
		if !wanted {
			continue
		}
		if b.Len() > 0 {
			b.WriteString("\r\n")
		}
		b.WriteString("# " + sec.name + "\r\n")
		sec.text(c, &v, &b)
	}
	c.w.BulkString(b.String())
}

// opsPerSec returns the rate of commands between the last two calls that were at least a second
// apart.
func (s *Server) opsPerSec(commands uint64) uint64 {
	r := &s.opsRate
	r.mu.Lock()
	defer r.mu.Unlock()
	if d := time.Since(r.at); d >= time.Second {
		if !r.at.IsZero() && commands >= r.commands {
			r.perSec = uint64(float64(commands-r.commands) / d.Seconds())
		}
		r.at, r.commands = time.Now(), commands
	}
	return r.perSec
}

// opsRate is the state of opsPerSec.
type opsRate struct {
	mu               sync.Mutex
	at               time.Time
	commands, perSec uint64
}

func okOrErr(failed bool) string {
	if failed {
		return "err"
	}
	return "ok"
}
